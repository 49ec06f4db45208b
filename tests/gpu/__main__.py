"""`make test-gpu`: make all checks of this machine's GPU, and write gpu-report.md and .json.

    python -m tests.gpu [--out FOLDER] [--dry] [--go-on] [PYTEST WORDS, as -k sampler]

Checks run in one pytest, because each new process needs seconds for CUDA. Where that process dies,
or hangs past a check's limit, the check counts as crashed and another pytest makes the rest. The
report is written anew after each line that a check says; with --go-on, one that was cut off (by the
end of a job's time) is completed. Exit status: 0 all passed, 1 a check did not, 2 nothing was
tested.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.gpu.checks import limit_s
from tests.gpu.document import GO_ON, LIMIT_S, make_document, markdown, summary
from tests.gpu.dry import write_scene
from tests.gpu.head import ROOT
from tests.gpu.journal import CRASHED, RUNNING, VARIABLE, Journal, Made, read_checks, read_head
from tests.gpu.machine import DRY
from tests.gpu.raw import NAME as RAW
from tests.gpu.raw import secrets
from tests.gpu.surroundings import caches, scratch_folder, undisturbed

_COLLECT_S = 120.0
_RESTARTS = 12
_HEAD_S = 120.0
_POLL_S = 0.1
# A download of torch is not the checks' time.
_MOST_BEFORE_S = 60.0


class Session:
    """All checks of one report. `where` is what pytest is told of their place.

    `scratch` is for the checks' own files. By default pytest would also remove those of earlier
    pytests on this machine, which can take minutes.
    """

    where: tuple[str, ...] = ("tests/gpu",)

    def __init__(
        self, out: Path, words: list[str], scratch: Path, *, dry: bool, limit_s: float,
        before_s: float, go_on: bool = False,
    ) -> None:  # fmt: skip
        self.out = out
        self.words = words
        self.scratch = scratch
        self.dry = dry
        self.go_on = go_on
        self.told_to_end = ""
        self.limit_s = limit_s
        self.journal = Journal(out / "gpu-report.part.jsonl")
        self.began = time.monotonic() - before_s
        self.environ = undisturbed(os.environ) | caches(os.environ, scratch)

    @property
    def environ_mark(self) -> bytes:
        """What stands in the environment of pytest and of all that it starts."""
        return f"{VARIABLE}={self.journal.path}".encode()

    @property
    def seconds(self) -> float:
        """How long it took so far."""
        return time.monotonic() - self.began

    def run(self) -> int:
        """Make all checks; return the exit status."""
        self.forget(but_made=self.go_on)
        if why := self._look():
            print(f"{why}\nNothing was tested.", file=sys.stderr)
            return 2
        for _ in range(_RESTARTS):
            before = len(self.checks())
            status = self._pytest()
            if status in (2, 3, 4) and not self.checks():
                print("pytest could not begin. Nothing was tested.", file=sys.stderr)
                self.forget()
                return 2
            over = self.told_to_end or self.seconds > self.limit_s
            if not self.left() or len(self.checks()) == before or over:
                break
        return self._write_last()

    def forget(self, *, but_made: bool = False) -> None:
        """Remove what an earlier report left; or only what its end cut off."""
        journal, checks = self.journal.events(), self.checks()
        kept = (RAW, "gpu-report.md", "gpu-report.json") if but_made else ()
        for name in {"gpu-report.part.jsonl", "gpu-report.md", "gpu-report.json", RAW} - {*kept}:
            (self.out / name).unlink(missing_ok=True)
        if but_made:
            made = {row.id for row in checks if row.verdict not in (RUNNING, CRASHED)}
            for row in journal:
                if row.get("id") in made:
                    self.journal.put(row)

    def end_soon(self, number: int, _frame: object = None) -> None:
        """Have the report finished: a job's time is nearly over, or somebody has seen enough."""
        self.told_to_end = signal.Signals(number).name

    def checks(self) -> list[Made]:
        """Return what was begun so far."""
        return read_checks(self.journal.events())

    def expected(self) -> list[str]:
        """Return the ids of all checks that pytest found."""
        found = [row["ids"] for row in self.journal.events() if row.get("event") == "collected"]
        return found[0] if found else []  # a restart's are those that were left

    def left(self) -> list[str]:
        """Return what was not made yet."""
        made = {row.id for row in self.checks()}
        return [name for name in self.expected() if name not in made]

    def write(self, *, over: bool) -> dict[str, Any]:
        """Write the report as it stands."""
        events = self.journal.events()
        document = make_document(
            read_head(events), read_checks(events), expected=self.expected(),
            seconds=self.seconds, over=over, dry=self.dry, only=" ".join(self.words),
            secrets=secrets(),
        )  # fmt: skip
        replace(self.out / "gpu-report.json", json.dumps(document, indent=0) + "\n")
        replace(self.out / "gpu-report.md", markdown(document))
        return document

    def _look(self) -> str:
        """Ask the machine what it is, in a process that may hang; return why there is no GPU."""
        argv = [sys.executable, "-m", "tests.gpu.head"]
        try:
            found = subprocess.run(
                argv, cwd=ROOT, env=self.environ, capture_output=True, text=True, timeout=_HEAD_S
            )
        except subprocess.TimeoutExpired:
            return f"The GPU's driver did not answer for {_HEAD_S:g} s."
        if self.told_to_end:
            return f"It was ended by {self.told_to_end} before the first check."
        if found.returncode:
            said = found.stderr.strip().splitlines()
            return said[-1] if said else f"tests.gpu.head ended with status {found.returncode}."
        head = json.loads(found.stdout.splitlines()[-1])
        if (why := head.pop("unusable")) and not self.dry:
            return f"{why} Take a Python whose torch can: make test-gpu PYTHON=/path/to/python3."
        self.environ["CUDA_VISIBLE_DEVICES"] = head.pop("uuid")  # a restart's, too
        self.journal.put({"event": "head", **head})
        return ""

    def _pytest(self) -> int:
        argv = [
            *(sys.executable, "-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir", str(ROOT)),
            *("--confcutdir", "tests/gpu", "-m", "gpu", "-p", "no:cacheprovider", *self.where),
            *("--basetemp", str(self.scratch / "checks")),
            *self.words,
        ]
        # The site's plug-ins are not needed, and may not work.
        quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", VARIABLE: str(self.journal.path)}
        environ = {**self.environ, **quiet}
        process = subprocess.Popen(argv, cwd=ROOT, env=environ, start_new_session=True)
        try:
            why = self._watch(process)
        finally:
            end(process, self.environ_mark)
        self._after(process.returncode, why)
        return process.returncode

    def _watch(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for pytest, and write the report after each check; return why it was ended."""
        began, seen = time.monotonic(), 0
        while process.poll() is None:
            time.sleep(_POLL_S)
            events = self.journal.events()
            if len(events) != seen:
                seen = len(events)
                with suppress(OSError):  # a full disk may have room again later
                    self.write(over=False)
            checks = read_checks(events)
            running = next((row for row in checks if row.verdict == RUNNING), None)
            if running:
                limit = limit_s(running.budget_s)
                if time.time() - running.began_s > limit:
                    return f"it took more than its limit of {limit:g} s"
            elif not checks and time.monotonic() - began > _COLLECT_S:
                return f"pytest found no check in {_COLLECT_S:g} s"
            if self.told_to_end:
                return f"all checks were ended by {self.told_to_end}"
            if self.seconds > self.limit_s:
                return f"the time of {self.limit_s:g} s for all checks was over"
        return ""

    def _after(self, status: int, why: str) -> None:
        """Say of the check that was running what became of it."""
        for row in self.checks():
            if row.verdict == RUNNING:
                how = why or f"its process {ended(status)}"
                self.journal.put(
                    {"event": "ended", "id": row.id, "verdict": CRASHED, "why": how,
                     "seconds": round(time.time() - row.began_s, 1)}
                )  # fmt: skip

    def _write_last(self) -> int:
        try:
            document = self.write(over=True)
        except OSError as error:
            print(f"The report could not be written: {error}", file=sys.stderr)
            return 1
        print(
            f"\n{document['verdict'].upper()}: {summary(document)}\n"
            f"The report: {self.out / 'gpu-report.md'} and {self.out / 'gpu-report.json'}"
        )
        if document["not_made"] or document["counts"]["crashed"]:
            print(f"What was cut off: {GO_ON}")
        return 0 if document["verdict"] in ("passed", "dry") else 1


def replace(path: Path, text: str) -> None:
    """Write a file in one step: whoever reads it sees the old or the new."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def end(process: subprocess.Popen[bytes], mark: bytes) -> None:
    """End pytest and what it started, which may be in sessions of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def ended(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


def main() -> int:
    """Read the command line; make the checks."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description="Make the checks of a GPU; the rest is pytest's."
    )
    parser.add_argument("--out", type=Path, default=ROOT, help="where the report goes")
    parser.add_argument("--dry", action="store_true", help="no GPU: the CPU and a stub of NVML")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for all checks")
    parser.add_argument("--before", type=float, default=0.0, help="seconds that were used before")
    parser.add_argument("--go-on", action="store_true", help="complete the report that is there")
    options, words = parser.parse_known_args()
    out = options.out.resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        print(
            f"The report cannot be written to {out}: {error}. Name another folder: make test-gpu "
            "GPU_OUT=FOLDER.\nNothing was tested.",
            file=sys.stderr,
        )
        return 2
    place, lack = scratch_folder([Path(tempfile.gettempdir()), out])
    if lack:
        print(f"In {place}, where checks write, {lack}: some may fail by that.", file=sys.stderr)
    # On NFS, files of a process that was killed may stay for a moment.
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as name:
        return run_in(Path(name), out, options, words)


def run_in(scratch: Path, out: Path, options: argparse.Namespace, words: list[str]) -> int:
    """Make the checks, whose own files are in a folder; return the exit status."""
    before = min(options.before, _MOST_BEFORE_S)
    session = Session(
        out, words, scratch, dry=options.dry, limit_s=options.limit, before_s=before,
        go_on=options.go_on,
    )  # fmt: skip
    if scratch.parent != Path(tempfile.gettempdir()):
        session.environ["TMPDIR"] = str(scratch)
    if options.dry:
        path = f"{scratch}/bin:{os.environ.get('PATH', os.defpath)}"
        session.environ |= {DRY: str(scratch), "PATH": path, **write_scene(scratch)}
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, session.end_soon)
    return session.run()


if __name__ == "__main__":
    sys.exit(main())
