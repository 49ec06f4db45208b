"""What the fake of Slurm's programs is told to say, and what ranks wrote."""

from pathlib import Path

from hpckit.run_folders.ranks import write_rank
from hpckit.run_folders.runs import Run
from hpckit.slurm.rows import COLUMN, ROW
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus
from tests.unit.made import rank

DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
OFF = "sacct: error: Slurm accounting storage is disabled"


def squeue_row(job: str, state: str, **cells: str) -> str:
    row = {"raw": job.replace("_", ""), "user": "u", "account": "a", "partition": "p", "qos": "q",
           "elapsed": "1:00", "limit": "1:00:00", "submit": "100", "start": "110", "end": "N/A",
           "nodes": "n[1-2]", "reason": "None", "name": "x"} | cells  # fmt: skip
    order = ("raw", "user", "account", "partition", "qos", "state", "elapsed", "limit", "submit",
             "start", "end", "nodes", "reason", "name")  # fmt: skip
    row["state"] = state
    return ROW + COLUMN.join([job, *(row[key] for key in order)]) + "\n"


def sacct_row(job: str, state: str, code: str = "0:0", reason: str = "None") -> str:
    cells = [job, job, "u", "a", "p", "q", state, reason, "n[1-2]", "60", "60", "100", "110",
             "170", code, "x"]  # fmt: skip
    return COLUMN.join(cells) + "\n"


def answers(folder: Path, **said: str) -> None:
    for name, text in said.items():
        (folder / name.replace("_", ".")).write_text(text)


def down(folder: Path, *, accounting: bool = False) -> None:
    answers(folder, squeue_rc="1", squeue_err=DOWN)
    if accounting:
        answers(folder, sacct_rc="1", sacct_err=OFF)


def end_ranks(run: Run, *codes: int | None) -> None:
    for number, code in enumerate(codes):
        ended = None if code is None else 20.0 + number
        write_rank(run.dir, rank(number, exit_code=code, ended=ended))


def one(run: Run) -> RunStatus:
    return statuses([run])[0]
