"""What takes a job script's place if another job may follow: it starts the job's own command.

`python -m hpckit.submission.follow_up KIND RUN_DIR NUMBER [--checkpoint=PATTERN] -- COMMAND...`.

`retry`: a job that has failed is submitted again (`retried`). `chain`: one of jobs that follow one
another (`chained`). What both do is in `watched`.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.submission.follow_up")

import os
import sys
from pathlib import Path

from hpckit.errors import HpckitError, refused_by_disk
from hpckit.notify.told import told_at_the_end
from hpckit.payload.last_line import end_with
from hpckit.submission.chained import Link
from hpckit.submission.container_step import step_ended_at_the_end
from hpckit.submission.retried import Retried
from hpckit.submission.watched import Watched

_CHECKPOINT = "--checkpoint="


def watched(
    kind: str, folder: str, number: int, argv: tuple[str, ...], pattern: str | None = None
) -> Watched:
    """Return the job that a job script names: one of a chain, or one that may be retried."""
    if kind == "chain":
        return Link(Path(folder), number, argv, pattern)
    task = os.environ.get("SLURM_ARRAY_TASK_ID")  # of an array, `number` is the first task's
    return Retried(Path(f"{folder}_{number + int(task)}" if task else folder), argv)


def main() -> None:
    """Run a job that another one may follow."""
    kind, folder, number, *rest = sys.argv[1:]
    at = rest.index("--")
    options, argv = rest[:at], tuple(rest[at + 1 :])
    pattern = next((word.removeprefix(_CHECKPOINT) for word in options), None)
    with told_at_the_end(), step_ended_at_the_end():
        try:
            sys.exit(watched(kind, folder, int(number), argv, pattern).run())
        except HpckitError as error:
            end_with(f"hpckit: {error}")
        except OSError as error:
            end_with(f"hpckit: {refused_by_disk(error)}")
