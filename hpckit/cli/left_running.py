"""What a command says of a job that goes on without it: each holds its GPUs to its time limit."""

from typing import TYPE_CHECKING

from hpckit.cli.output import note
from hpckit.errors import HpckitError, JobError

if TYPE_CHECKING:
    from hpckit import Run

# What ends a command's wait; Ctrl-C besides.
BREAKS = (HpckitError, OSError)
_KINDS = {"shell": "shell", "jupyter": "notebook"}


def goes_on(error: BaseException, *, many: bool = False) -> str:
    """Say whether jobs go on that a command no longer waits for: after an error they may."""
    if isinstance(error, KeyboardInterrupt):
        return "go on" if many else "goes on"
    return "may go on"


def say_left(run: "Run", kind: str, error: BaseException) -> None:
    """Say of a session that a command leaves how to come back, and how to end it.

    A JobError says what became of the job.
    """
    if isinstance(error, JobError):
        return
    what = f"The {_KINDS[kind]}'s job {goes_on(error)}"
    note(f"\n{what}. Come back: hpckit {kind} {run.job_id}")
    note(f"End it: hpckit cancel {run.job_id}")
