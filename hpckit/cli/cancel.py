"""`hpckit cancel JOBID...`."""

from pathlib import Path

import typer

from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, raise_last, settled_root
from hpckit.cli.output import note, print_json, say
from hpckit.cli.view import status_line, status_record
from hpckit.errors import DamagedRunError, HpckitError, JobError, OutsideError, RequestError
from hpckit.find import find_runs, refuse_doubtful
from hpckit.run_record import is_slurm_id
from hpckit.runs import DamagedRun, Run
from hpckit.schedulers.slurm import SLURM
from hpckit.schedulers.slurm.ending import cancel_by_id
from hpckit.slurm.client import own_patience_s, patience
from hpckit.submission.states import RunStatus
from hpckit.submission.waiting import cancel as cancel_runs


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cancel)


def cancel(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """End jobs, or remove them from the queue. Jobs that are over stay as they were.

    Slurm's own id is enough also where the run cannot be read: Slurm says whose the job is.
    """
    with patience():
        with patience(own_patience_s() / 3):
            root = settled_root(runs, tuple(job_ids))
        errors = _cancel_called(job_ids, root, json=json)
    raise_last(errors)


def _cancel_called(job_ids: list[str], root: Path, *, json: bool) -> list[HpckitError]:
    """Cancel what is called so; return what is wrong with some of it."""
    called: dict[Path, Run] = {}
    by_id: dict[str, HpckitError | None] = {}
    errors: list[HpckitError] = []
    for word in job_ids:
        damaged: list[DamagedRun] = []
        try:
            found, why = find_runs(word, root, damaged), None
            for run in found:
                refuse_doubtful(run, word)
        except (RequestError, OutsideError) as error:
            if not (is_slurm_id(word) or isinstance(error, DamagedRunError | OutsideError)):
                raise
            found, why = [], error
        errors += [row.error for row in damaged]
        if is_slurm_id(word) and not (found and all(run.mine for run in found)):
            by_id[word] = why
        elif why:
            errors.append(why)
        called |= {run.dir: run for run in found if word not in by_id}
    _cancel(list(called.values()), by_id, json=json, errors=errors)
    return errors


def _cancel(
    runs: list[Run],
    by_id: dict[str, HpckitError | None],
    *,
    json: bool,
    errors: list[HpckitError],
) -> None:
    states = {word: cancel_by_id(word, why) for word, why in by_id.items()}
    found: list[RunStatus] = cancel_runs(runs) if runs else []
    if json and (found or states or not errors):
        records = [status_record(status) for status in found]
        records += [{"job_id": word, "state": state} for word, state in states.items()]
        print_json(records[0] if len(records) == 1 else {"jobs": records})
    elif not json:
        say_all([status_line(status) for status in found])
        say_all(
            [
                f"{word} {state} according to Slurm; hpckit has no run of this job"
                for word, state in states.items()
            ]
        )
    silent = [row.run for row in found if row.unanswered and not row.finished]
    answered = [row for row in found if row.run not in silent]
    asked = [(row.run.scheduler, row.run.job_id, row.state) for row in answered]
    asked += [(SLURM, *row) for row in states.items()]
    texts = [scheduler.unheeded(job_id, state) for scheduler, job_id, state in asked]
    errors += [JobError(text) for text in texts if text]
    errors += [_nobody_here(row) for row in found if row.elsewhere and row.run.scheduler.by_mark]
    if silent:
        errors.append(_not_answered(silent))
    if not errors and not all(status.finished or status.elsewhere for status in found):
        note("The end is asked for; some jobs are still ending.")


def _not_answered(runs: list[Run]) -> OutsideError:
    words = " ".join(dict.fromkeys(run.array_job_id or run.job_id for run in runs))
    return OutsideError(
        f"Asked Slurm to cancel {words}. Slurm has not answered; ask again: hpckit status {words}"
    )


def _nobody_here(status: RunStatus) -> OutsideError:
    return OutsideError(
        f"Run {status.run.run_id} cannot be ended from here: {status.reason_text}. If it was "
        f"submitted on another machine, cancel it there. Its logs are in {status.run.dir}/logs."
    )


def say_all(lines: list[str]) -> None:
    """Print lines, if there are any."""
    if lines:
        say("\n".join(lines))
