"""`hpckit.stats`: what a job did with its GPUs, cores and memory, and what to change."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpckit.api import log
from hpckit.api.job_stats import JobStats, StatsList
from hpckit.api.lookup import settled_folder
from hpckit.api.run import Run, handle
from hpckit.errors import HpckitError, RequestError
from hpckit.job_spec.arguments import JOB, PATH, checked, job_word, maybe
from hpckit.paths import typed_path
from hpckit.report.at_end import save
from hpckit.report.gather import Gathered, gather, live_steps
from hpckit.report.node_faults import counted_events
from hpckit.report.samples_alone import check_folder
from hpckit.report.targets import find_targets
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.slurm.client import patience
from hpckit.stats.advice.loading import advised, find_rule, forget_rules, rules_here
from hpckit.stats.document import json_schema


@checked(job=JOB, runs=maybe(PATH), samples=maybe(PATH))
def stats(
    job: Run | str | int | Path,
    *,
    runs: Path | str | None = None,
    samples: Path | str | None = None,
) -> JobStats:
    """Return how anyone's job used its GPUs, cores and memory, and what to change.

    Args:
        job: a run, Slurm's id (`123`, `123_4`, a step `123.0`), a run's id or folder, or `latest`.
        runs: the folder of runs; `latest` is then the newest in it.
        samples: a folder of samples to use instead of the job's. They are enough where Slurm does
            not know the job, or does not answer.

    Raises:
        NotFoundError: there is no such job. RequestError: it is an array of several tasks, or
            there are no samples of it in `samples`. OutsideError: Slurm does not answer, and there
            are no samples.
    """
    word = job_word(job)
    root, own = (None if path is None else typed_path(path) for path in (runs, samples))
    found, missing = stats_asked([word], root, own)
    if missing:
        raise missing[-1]
    if len(found) > 1:
        one, ours = found[0].job.job_id, all(row.job.run_id for row in found)
        also = f", or all of them with hpckit.runs({word!r}).stats()" if ours else ""
        raise RequestError(
            f"{word} is an array of {len(found)} tasks. Give one of them: {one}{also}"
        )
    return found[0]


def stats_of_runs(runs: Sequence[RunFolder]) -> StatsList:
    """Return the same of runs that are at hand."""
    every = StatsList()
    for root in dict.fromkeys(run.dir.parent for run in runs):
        found, missing = _called([str(run.dir) for run in runs if run.dir.parent == root], root)
        if missing:
            raise missing[-1]
        every += found
    return every


def stats_asked(
    words: Sequence[str],
    runs: Path | None,
    samples: Path | None = None,
    tell: Callable[[str], None] = log,
    files: Collection[str] = (),
) -> tuple[StatsList, list[HpckitError]]:
    """Return the accounts of the jobs that words mean, and why others have none.

    `files` are what will be written of them, of html, png and svg: their samples are read once.
    The summary of each of the user's own runs is written into its folder.

    Raises:
        RequestError: the folder of samples has none.
    """
    if samples is not None:
        check_folder(samples)
    with patience():
        root = settled_folder(runs, words, tell)
        return _called(words, root, samples, files, here_only=runs is not None)


def grafana_dashboard() -> str:
    """Return a Grafana dashboard of what `openmetrics` says, as Grafana imports it."""
    from hpckit.stats.dashboard import dashboard  # noqa: PLC0415  # seldom

    return dashboard()


def stats_schema() -> dict[str, Any]:
    """Return the JSON Schema of `JobStats.document`."""
    return json_schema()


@checked(rule=str)
def explain_advice(rule: str) -> str:
    """Return a page on a rule of the advice: what it looks at, its limits, what it says.

    Raises:
        RequestError: there is no such rule.
    """
    from hpckit.stats.advice.explaining import explain  # noqa: PLC0415  # seldom

    return explain(find_rule(rule, rules_here()))


def _called(
    words: Sequence[str],
    root: Path,
    samples: Path | None = None,
    files: Collection[str] = (),
    *,
    here_only: bool = False,
) -> tuple[StatsList, list[HpckitError]]:
    forget_rules()  # a notebook may live longer than a rule stays as it was
    with patience():
        targets, missing = find_targets(words, root, samples, here_only=here_only)
        live = live_steps(targets)
    found = StatsList()
    points = _points_of(files, len(targets)) if files else ()
    for target, row in zip(targets, gather(targets, samples, live, points), strict=True):
        run = target.known.run
        found.append(replace(_account(row, samples), run=None if run is None else handle(run)))
        if run is not None and run.mine and not samples:
            _learn(run, row)
    return found, [*missing]


def _learn(run: RunFolder, found: Gathered) -> None:
    """Write down what a run tells of bad nodes."""
    status = found.known.status
    events = [*(status.node_events() if status else ()), *counted_events(run, found.job)]
    if events:
        from hpckit.api.bad_nodes import write_down  # noqa: PLC0415  # seldom

        write_down(events)


def _points_of(files: Collection[str], jobs: int) -> tuple[int, ...]:
    from hpckit.pages.write import points_of  # noqa: PLC0415  # seldom

    return points_of(files, jobs)


def _account(found: Gathered, samples: Path | None) -> JobStats:
    job, advice = advised(found.job, found.timelines)
    whole = replace(found, job=job)
    kept = whole if samples else save(whole, advice)
    return JobStats(job=kept.job, advice=advice, timelines=kept.timelines, found=kept)
