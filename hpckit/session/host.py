"""What runs as the program of a session's job: it starts what is served, and ends it when idle.

`python -m hpckit.session.host KIND [--idle S --interval S] -- COMMAND...`; COMMAND is what the user
gets, in the site's environment, with the container's words where it is one.
"""

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import cast

from hpckit.errors import HpckitError
from hpckit.frozen import frozen
from hpckit.payload.children import handle_passed
from hpckit.payload.last_line import end_with
from hpckit.run_folders.run_files import patiently
from hpckit.session.activity import Activity
from hpckit.session.folder import END, make_session_folder, remove_private, write_private
from hpckit.session.idle import IdleJudge, Stage, now_s, warning
from hpckit.session.served import Served, say
from hpckit.units import format_seconds

# Kind -> the module and class that serve it, made of the run's folder and the command.
SERVED = {
    "shell": ("hpckit.session.terminal", "Terminal"),
    "jupyter": ("hpckit.session.notebook", "Notebook"),
}
# Those that enter a container that the job script has started, as the keyword `container`.
ENTERING = frozenset(("shell",))
# Between two looks at the samples, at most; and how long serving takes without one.
_LOOK_S, _TURN_S = 10.0, 60.0


@frozen(kw_only=True)
class Asked:
    """What the command line of a host says.

    `gpus` are those that samples must tell of; `container` is the image of one that the job script
    has started, and in which the command runs.
    """

    kind: str
    command: tuple[str, ...]
    idle_s: float | None = None
    interval_s: float = 10.0
    gpus: int = 0
    container: str | None = None


def host_words(asked: Asked) -> tuple[str, ...]:
    """Return the words after `-m hpckit.session.host` that `parse` understands."""
    words = [asked.kind]
    if asked.idle_s is not None:
        words += [f"--idle={asked.idle_s:g}", f"--interval={asked.interval_s:g}"]
        words.append(f"--gpus={asked.gpus}")
    if asked.container is not None:
        words.append(f"--container={asked.container}")
    return (*words, "--", *asked.command)


def parse(words: Sequence[str]) -> Asked:
    """Understand a host's words."""
    parser = argparse.ArgumentParser("hpckit.session.host", allow_abbrev=False)
    parser.add_argument("kind", choices=sorted(SERVED))
    parser.add_argument("--idle", type=float)
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--container")
    at = list(words).index("--")
    found = parser.parse_args(words[:at])
    return Asked(
        kind=found.kind,
        command=tuple(words[at + 1 :]),
        idle_s=found.idle,
        interval_s=found.interval,
        gpus=found.gpus,
        container=found.container,
    )


class Host:
    """Serves one session to its end."""

    def __init__(self, served: Served, run_dir: Path, asked: Asked) -> None:
        self._served = served
        self._run_dir = run_dir
        self._idle: IdleJudge | None = None
        self._activity: Activity | None = None
        if asked.idle_s is not None:
            restart = int(os.environ.get("HPCKIT_RESTART") or 0)
            self._activity = Activity(run_dir / "samples", restart, asked.gpus)
            self._idle = IdleJudge(asked.idle_s, began_s=now_s(), interval_s=asked.interval_s)
        self._said: Stage = Stage.USED
        self._said_unknown = False
        self._signal: int | None = None

    def run(self) -> int:
        """Return the rank's exit status: 0 also for one that was ended because it was idle."""
        handle_passed(lambda _signum, _frame: None)  # they are for what the user runs
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._stopped)
        try:
            self._served.start()
            status = None
            while status is None:
                status = self._served.serve(self._turn_s())
                if status is None and self._idle and self._activity:
                    self._judge(self._idle, self._activity)
        finally:
            self._served.close()
        if self._said is Stage.OVER:
            return 0
        if self._signal:
            say(f"this session was ended by {signal.Signals(self._signal).name}")
        return status if self._signal is None else 128 + self._signal

    def _stopped(self, signum: int, _frame: FrameType | None = None) -> None:
        self._signal = self._signal or signum
        self._served.stop(f"the job is being ended ({signal.Signals(signum).name})")

    def _turn_s(self) -> float:
        """Return for how long nothing but serving is to be done."""
        return min(_LOOK_S, self._idle.notice_s / 4) if self._idle else _TURN_S

    def _judge(self, judge: IdleJudge, activity: Activity) -> None:
        """Look at what is new, and do what it asks for, once."""
        for reading in activity.new():
            judge.sampled(reading)
            if reading.busy is None and not self._said_unknown:
                self._said_unknown = True
                say("some GPUs or the cores cannot be read: what is unknown does not count as idle")
        if used := self._served.last_use():
            judge.used(used)
        stage = judge.stage(now_s())
        if stage is self._said or self._said is Stage.OVER:
            return
        self._said = stage
        if stage is Stage.WARNED:
            self._served.warn(warning(judge))
        elif stage is Stage.BLIND:
            say("there are no samples: whether this session is idle is unknown, so it goes on")
        elif stage is Stage.OVER:
            why = f"idle for {format_seconds(judge.idle_s)} (--idle)"
            with contextlib.suppress(OSError):  # it ends nevertheless; the log says why
                write_private(self._run_dir, END, {"why": "idle", "idle_s": judge.idle_s})
            say(f"this session was ended: {why}")
            self._served.stop(f"this session is ended: {why}")


def main() -> None:
    """Run a session's host."""
    asked, run_dir = parse(sys.argv[1:]), Path(os.environ["HPCKIT_RUN_DIR"])
    patiently(lambda: make_session_folder(run_dir))
    remove_private(run_dir, END)  # of an attempt before this one
    module, name = SERVED[asked.kind]
    make = getattr(importlib.import_module(module), name)
    more = {"container": asked.container} if asked.kind in ENTERING else {}
    served = cast("Served", make(run_dir, asked.command, **more))
    try:
        status = Host(served, run_dir, asked).run()
    except (HpckitError, OSError) as error:
        end_with(f"error: {error}")  # lines of hpckit's own are not taken for why a rank failed
    sys.exit(status)


if __name__ == "__main__":
    main()
