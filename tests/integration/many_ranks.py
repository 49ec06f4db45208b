"""Stands in for srun and for nodes: forks a job's supervisors, and counts what they ask of disks.

    python -E -P -m tests.integration.many_ranks SUBMITIT-FOLDER RANKS CASE

The supervisors are forks of this process, which has imported all they need: what is counted is
their own work in the run's folder. `CASE`: `ends`, or `fails`, where rank 0 fails with 3 once all
ranks are alive, and the others get SIGTERM when its supervisor has ended, as by srun. Prints, as
JSON, how many events each rank had.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from hpckit.notify import told
from hpckit.payload import children, rank, supervisor
from hpckit.submission import container_step, job_process, kept_signal, warned

PRELOADED = (told, rank, supervisor, container_step, kept_signal, warned)
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.listdir", "os.scandir", "os.link"}


def main() -> None:
    """Run all ranks; print what each asked for."""
    folder, number, case = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    job_process._import_submitit()
    pids = [start(folder, rank, number) for rank in range(number)]
    run = folder.parent
    while case == "fails" and len(list((run / "alive").iterdir())) < number:
        time.sleep(0.02)
    (run / "go").touch()
    codes = {0: ended(pids[0])}
    for pid in pids[1:] if codes[0] else ():
        os.kill(pid, signal.SIGTERM)
    codes |= {rank: ended(pid) for rank, pid in enumerate(pids) if rank}
    counts = [len((run / "events" / str(rank)).read_text().splitlines()) for rank in range(number)]
    print(json.dumps({"counts": counts, "codes": [codes[rank] for rank in range(number)]}))


def ended(pid: int) -> int:
    """Wait for a supervisor; return its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def start(folder: Path, rank: int, number: int) -> int:
    """Fork one supervisor; return its process."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        width = 4
        os.environ |= {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % width),
            "SLURM_NTASKS": str(number),
            "SLURM_STEP_NUM_TASKS": str(number),
            "SLURM_NODEID": str(rank // width),
        }
        sys.argv = ["in_job", str(folder)]
        children._BEGAN_UNDER = os.getppid()  # not what it was where that was imported
        listen(folder.parent, rank)
        job_process.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stderr.flush()
        os._exit(code)


def listen(run: Path, rank: int) -> None:
    """Write down each thing that this process asks about the run's folder."""
    to = os.open(run / "events" / str(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stat = os.stat

    def note(event: str, what: object) -> None:
        text = os.fspath(what) if isinstance(what, str | bytes | os.PathLike) else ""
        if str(run) in str(text) or str(text).startswith("/proc/self/fd/"):
            os.write(to, f"{event} {text}\n".encode())

    def counted(path: object, *words: object, **more: object) -> os.stat_result:
        note("stat", path)
        return stat(path, *words, **more)  # type: ignore[call-overload]

    os.stat = counted  # type: ignore[assignment]  # Python tells no hook of it
    sys.addaudithook(lambda event, args: note(event, args[0]) if event in EVENTS else None)


if __name__ == "__main__":
    main()
