"""A local run's state on disk: `local.json`, written by its controller, read from any process."""

import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from hpckit.files import DamagedFileError, read_json, reason
from hpckit.run_record import Pid, Size
from hpckit.runs import open_to_write, write_json
from hpckit.slurm.states import JobState
from hpckit.values import Count, Moment, Within, Word, rebuild

STATE = "local.json"
CANCEL = ".cancel"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalState:
    """State of a local run, in Slurm's words.

    `pid` and `pid_started` (clock ticks since boot) name the controller: a process id alone may by
    now belong to somebody else. Times are epoch seconds.
    """

    job_id: Word
    state: JobState
    host: Word
    pid: Pid
    pid_started: Count
    reason: Word = ""
    started: Moment | None = None
    ended: Moment | None = None
    exit_code: Annotated[int, Within(-255, 255)] | None = None
    restarts: Size = 0


def write_local_state(run_dir: Path, state: LocalState) -> None:
    """Replace the state file."""
    write_json(run_dir / STATE, asdict(state))


def begin_local_state(run_dir: Path, job_id: str, pid: int) -> None:
    """Write a first state for a controller just started, unless it has written its own by now.

    A controller that dies before its first word would otherwise look as if it were starting.
    """
    state = LocalState(
        job_id=job_id,
        state=JobState.PENDING,
        host=socket.gethostname(),
        pid=pid,
        pid_started=start_ticks(pid) or 0,
        reason="Resources",
    )
    with contextlib.suppress(FileExistsError), open_to_write(run_dir / STATE, "xb") as stream:
        stream.write(json.dumps(asdict(state)).encode())


def read_local_state(run_dir: Path, damaged: list[str] | None = None) -> LocalState | None:
    """Return a local run's state; a controller that vanished reads as NODE_FAIL. None: no file yet.

    On another machine than the run's, an unfinished state cannot be told and reads as UNKNOWN.
    A file that hpckit did not write is None, too; `damaged` is told why.
    """
    try:
        state = rebuild(LocalState, read_json(run_dir / STATE), newer=True)
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError) as error:
        if damaged is not None:
            damaged.append(f"{STATE}: {reason(error)}")
        return None
    if state.ended is not None:
        return state
    if state.host != socket.gethostname():
        return _changed(state, JobState.UNKNOWN, f"it runs on {state.host}; ask there")
    if start_ticks(state.pid) != state.pid_started:
        return _changed(state, JobState.NODE_FAIL, "its controlling process is gone")
    return state


def _changed(state: LocalState, word: JobState, reason: str) -> LocalState:
    return replace(state, state=word, reason=reason)


def ask_cancel(run_dir: Path) -> None:
    """Ask the controller to end this run; it looks several times a second."""
    open_to_write(run_dir / CANCEL, "ab").close()


def cancel_asked(run_dir: Path) -> bool:
    """Say whether somebody asked to end this run."""
    return (run_dir / CANCEL).exists()


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5), 22); None if gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name, field 2, may hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def my_start_ticks() -> int:
    """Return this process's own start."""
    return start_ticks(os.getpid()) or 0
