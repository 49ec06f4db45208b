"""A local run's state on disk: `local.json`, written by its controller, read from any process."""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from hpckit.files import DamagedFileError, no_room, read_json, reason
from hpckit.frozen import frozen
from hpckit.paths import is_there
from hpckit.processes import RUN_STATE, STARTED, stat_fields
from hpckit.run_folders.run_files import open_to_write, write_json
from hpckit.run_folders.runs import Run
from hpckit.schedulers.base import Answers
from hpckit.slurm.states import JobRecord, JobState
from hpckit.values import Count, Moment, Pid, Size, Within, Word, rebuild

STATE = "local.json"
_SOURCE = "local"
CANCEL = ".cancel"
CONTROLLER = "hpckit.schedulers.local.controller"
# Those of a run that began before the last update go by an older name.
_CONTROLLERS = ([CONTROLLER.encode()], [b"hpckit.payload.controller"])
# Room on the disk that the final state has for certain: hpckit's own words of a few hundred bytes.
_ROOM, _ROOM_BYTES, _REASON_CHARS = ".local.room", 4096, 400


@frozen(kw_only=True)
class LocalState:
    """State of a local run, in Slurm's words; `gpus` are those that it has got, as CUDA has them.

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
    gpus: tuple[Word, ...] = ()


def write_local_state(run_dir: Path, state: LocalState) -> None:
    """Replace the state file."""
    write_json(run_dir / STATE, asdict(state))


def reserve_last_state(run_dir: Path) -> None:
    """Take the room that the final state needs, while there is some."""
    with open_to_write(run_dir / _ROOM) as stream:
        stream.write(b" " * _ROOM_BYTES)


def write_last_state(run_dir: Path, state: LocalState) -> None:
    """Replace the state file for the last time, also where the disk has become full meanwhile.

    A run that failed then says so.

    Raises:
        OSError: neither is possible.
    """
    if state.state is JobState.FAILED and not state.reason and (why := no_room(run_dir)):
        state = replace(state, reason=why)
    state = replace(state, reason=state.reason[:_REASON_CHARS])
    try:
        write_local_state(run_dir, state)
    except OSError as error:
        if state.state is JobState.FAILED and not state.reason:
            why = f"{error.strerror}: {run_dir}"
            state = replace(state, reason=why[:_REASON_CHARS])
        try:
            with open(run_dir / _ROOM, "r+b", opener=_no_link) as stream:
                stream.write(json.dumps(asdict(state)).ljust(_ROOM_BYTES).encode())
        except FileNotFoundError:  # there was no room for that, either
            raise error from None
        (run_dir / _ROOM).replace(run_dir / STATE)
    else:
        with contextlib.suppress(OSError):
            (run_dir / _ROOM).unlink()


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def begin_local_state(run_dir: Path, job_id: str, pid: int) -> None:
    """Write a first state for a controller just started, unless it has written its own by now.

    A controller that dies before its first word would otherwise look as if it were starting.
    """
    state = LocalState(
        job_id=job_id,
        state=JobState.PENDING,
        host=os.uname().nodename,
        pid=pid,
        pid_started=start_ticks(pid) or 0,
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
    if state.host != os.uname().nodename:
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
    """Say whether somebody asked to end this run; not so while its disk does not answer."""
    return is_there(run_dir / CANCEL)


def controller_name(job_id: str) -> str:
    """Return the word by which the process list shows whose controller this is; arrays have one."""
    return job_id.partition("_")[0]


def controller_runs(job_id: str) -> bool:
    """Say whether a controller of this user's runs here for a job, when its state cannot tell."""
    name = controller_name(job_id).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mine = entry.stat().st_uid == os.getuid()
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if mine and words[-2:-1] == [name] and words[-3:-2] in _CONTROLLERS:
            return True
    return False


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5), 22); None if gone."""
    fields = stat_fields(pid)
    return None if not fields or fields[RUN_STATE] == "Z" else int(fields[STARTED])


def my_start_ticks() -> int:
    """Return this process's own start."""
    return start_ticks(os.getpid()) or 0


def states_of_runs(runs: Sequence[Run]) -> Answers:
    """Return what the controllers of local runs wrote; and what can be told without."""
    records: dict[str, JobRecord] = {}
    lost: dict[str, str] = {}
    damaged: dict[str, tuple[str, ...]] = {}
    for run in runs:
        wrong: list[str] = []
        local = read_local_state(run.dir, wrong)
        alive = local is None and controller_runs(run.job_id)
        if local is None and not alive:
            local = read_local_state(run.dir)  # it may just have written its last word
        why = wrong[-1] if wrong else f"{STATE} is gone"
        damaged[run.run_id] = tuple(wrong)
        if local is not None:
            records[run.job_id] = _record(run, local)
        elif alive:
            records[run.job_id] = JobRecord(
                job_id=run.job_id, state=JobState.UNKNOWN, source=_SOURCE, reason=why
            )
        else:
            here = os.uname().nodename
            lost[run.run_id] = (
                f"{why}; no process of this run is on {here}: it is over, or runs on another "
                "machine"
            )
    return Answers(records=records, lost=lost, damaged=damaged)


def _record(run: Run, local: LocalState) -> JobRecord:
    until = local.ended or (time.time() if local.state is JobState.RUNNING else None)
    lasted = until - local.started if local.started and until else None
    return JobRecord(
        job_id=run.job_id,
        state=local.state,
        source=_SOURCE,
        reason=local.reason or None,
        nodes=None if local.ended and local.started is None else (local.host,),
        elapsed_s=None if lasted is None else max(lasted, 0.0),
        time_limit_min=run.record["plan"]["time_min"],
        start_time=local.started,
        end_time=local.ended,
        exit_code=local.exit_code,
        restarts=local.restarts,
    )
