"""`hpckit.scale`: the same work in several sizes, repeated; how fast each was, and what follows.

A study is recorded nowhere but in its runs: each run's record names it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from hpckit.api import log
from hpckit.api.lookup import settled_folder
from hpckit.api.options import SizelessOptions, job_spec
from hpckit.api.run import Run, handle
from hpckit.api.run_list import RunList
from hpckit.api.run_status import status_of, wait
from hpckit.api.study_plan import StudyPlan, plan_study, send_runs
from hpckit.errors import HpckitError, NotFoundError, RequestError
from hpckit.files import write_shown
from hpckit.job_spec.arguments import (
    FUNCTION,
    PATH,
    checked,
    is_several,
    maybe,
    own_number,
    several,
    shown,
)
from hpckit.paths import typed_path
from hpckit.run_folders.find import newest_runs, refuse_doubtful
from hpckit.run_folders.logged_times import lifetime, without_odd_times
from hpckit.run_folders.run_record import StudyPart
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.scaling.document import as_csv, document
from hpckit.scaling.study import About, Outcome, Scaling, Shape, Wanted, evaluate
from hpckit.scaling.timing import Timing, timing_of
from hpckit.scaling.writing import text
from hpckit.submission.status import RunStatus
from hpckit.values import MOST, Seconds


def _is_size(given: object) -> bool:
    return isinstance(given, str) or (type(given) is int and abs(given) <= MOST)


Sizes = Iterable[int | str] | int | str | None


def _sizes(given: Any, name: str) -> list[int | str] | int | str | None:  # noqa: ANN401  # users' own
    """Read the values of one axis.

    Raises:
        RequestError: one is neither a number nor a text.
    """
    if given is None:
        return None
    one = isinstance(given, str) or not is_several(given)
    rows = [own_number(row) for row in ([given] if one else given)]
    if not all(map(_is_size, rows)):
        raise RequestError(f"{shown(given, name)} must be a number, or a list of them.")
    return rows[0] if one else rows


@checked(repeat=int, in_turn=bool | None, runs=maybe(PATH))
def scale(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    gpus: Sizes = None,
    nodes: Sizes = None,
    tasks_per_node: Sizes = None,
    repeat: int = 3,
    weak: bool | str | Sequence[str] = False,
    in_turn: bool | None = None,
    runs: Path | str | None = None,
    **options: Unpack[SizelessOptions],
) -> "Study":
    """Submit the same work in several sizes, each several times; return at once.

    All sizes are checked before any is submitted, and where one cannot be submitted, those that
    were are cancelled.

    Args:
        target: a workload's name; or with a program serial, dp, ddp, mirrored or mpi.
        program: your own, as of `submit`.
        module: likewise.
        gpus: GPUs per node of each size, as in [1, 2, "2x4"]: 2x4 is two nodes of 4.
        nodes: nodes of each size.
        tasks_per_node: ranks, for ddp and mpi without GPUs. One of the three has several values.
        repeat: runs of each size; one has no interval.
        weak: the work grows with the size: names of the arguments that do; True: those that the
            workload says.
        in_turn: whether a run waits for the one before; by default on this machine alone.
        runs: where runs live.
        **options: the others of `submit`.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    grow = () if isinstance(weak, bool) else several(weak, "weak")
    plan = plan_study(
        job_spec(target, dict(options), program=program, module=module),
        {
            "gpus": _sizes(gpus, "gpus"),
            "nodes": _sizes(nodes, "nodes"),
            "tasks_per_node": _sizes(tasks_per_node, "tasks_per_node"),
        },
        repeat=repeat,
        weak=weak is True or bool(grow),
        grow=grow,
        in_turn=in_turn,
        runs=None if runs is None else typed_path(runs),
        tell=log,
    )
    return send_study(plan)


@checked(name=str, runs=maybe(PATH))
def study(name: str = "latest", *, runs: Path | str | None = None) -> "Study":
    """Return a study by its name, or the latest.

    `runs` is the folder of runs, and `latest` then the newest study in it.

    Raises:
        NotFoundError: there is none. RequestError: others could have written its runs.
    """
    root = settled_folder(None if runs is None else typed_path(runs))
    here_only = runs is not None and name == "latest"
    parts = [row for row in newest_runs(root, None, here_only=here_only) if "study" in row.record]
    mine = [run for run in parts if run.mine]
    wanted = mine[0].record["study"]["id"] if mine and name == "latest" else name
    found = [run for run in parts if run.record["study"]["id"] == wanted]
    if not found:
        raise NotFoundError(
            f"There is no study {name!r} in {root}{'' if here_only else ' or in your index'}: "
            "`hpckit scale` says a study's name when it submits. See `hpckit jobs`, or give the "
            "folder of its runs."
        )
    found = [run for run in found if run in mine] or [
        run for run in found if run.owner == found[0].owner
    ]
    for run in found:
        refuse_doubtful(run, run.run_id)
    return Study(handle(run) for run in reversed(found))


class Study:
    """The runs of one study, in the order of their submission."""

    def __init__(self, runs: "Iterator[Run] | RunList") -> None:
        self.runs = RunList(runs)
        if not self.runs or "study" not in self.runs[0]._folder.record:
            raise RequestError(
                "These are not the runs of a study: hpckit.study(NAME) returns one by its name."
            )
        self._part: StudyPart = self.runs[0]._folder.record["study"]

    @property
    def name(self) -> str:
        """What the study is called: `hpckit.study(name)` finds it again."""
        return self._part["id"]

    @checked(timeout=Seconds | None, look=maybe(FUNCTION))
    def wait(
        self,
        timeout: float | None = None,
        *,
        look: Callable[[list[RunStatus]], None] | None = None,
    ) -> "Study":
        """Wait until all runs are over, or can never start; `look` as of `hpckit.wait`.

        Raises:
            StillRunningError: `timeout` seconds have passed; the runs go on.
        """
        wait(self.runs, timeout, look=look)
        return self

    @checked(efficiency=float, full_steps=int | None, full_epochs=int | None)
    def report(
        self,
        *,
        efficiency: float = 0.7,
        full_steps: int | None = None,
        full_epochs: int | None = None,
    ) -> "ScalingReport":
        """Return what the runs tell that are over: times, speed-up, efficiency, laws.

        Args:
            efficiency: the lowest that is worth the devices, 0 to 1.
            full_steps: of the full training; by default the runs' own number.
            full_epochs: the same in epochs.

        Raises:
            RequestError: a number is out of range. OutsideError: Slurm does not answer.
        """
        wanted = _read_wanted(efficiency, full_steps, full_epochs)
        part, first = self._part, self.runs[0]._folder
        about = About(
            study=part["id"],
            name=str(first.record["name"]),
            weak=part["weak"],
            grow=tuple(part["grow"]),
            sizes=part["sizes"],
            repeats=part["repeats"],
            in_turn=part["in_turn"],
            submitted_at=first.submitted_at,
        )
        found = [_outcome(status) for status in status_of(self.runs)]
        return ScalingReport(figures=evaluate(about, found, wanted))

    def __repr__(self) -> str:
        return f"Study({self.name!r}, {len(self.runs)} runs)"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingReport:
    """What a study tells; `figures` has it as values, with None for what is unknown."""

    figures: Scaling

    def document(self) -> dict[str, Any]:
        """Return what `hpckit scale --json` prints."""
        return document(self.figures)

    def csv(self) -> str:
        """Return the sizes as comma-separated values."""
        return as_csv(self.figures)

    def text(self) -> str:
        """Return the report as a page of plain text."""
        return text(self.figures)

    @checked(path=PATH)
    def html(self, path: Path | str) -> Path:
        """Write a page for a browser: one file; return its path.

        Raises:
            OutsideError: it cannot be written.
        """
        from hpckit.pages.scaling import scaling_page  # noqa: PLC0415  # seldom

        return write_shown(typed_path(path), scaling_page(self.figures), "page")

    @checked(path=PATH)
    def picture(self, path: Path | str) -> Path:
        """Draw time, speed-up and efficiency over the sizes, as .png or .svg; return the path.

        Raises:
            RequestError: the name ends otherwise. OutsideError: matplotlib is not installed, or the
                file cannot be written.
        """
        from hpckit.scaling.picture import write_study_picture  # noqa: PLC0415  # seldom

        return write_study_picture(self.figures, typed_path(path))

    def _repr_html_(self) -> str:
        import html  # noqa: PLC0415  # for notebooks

        return f"<pre>{html.escape(self.text())}</pre>"


class WantedOptions(TypedDict, total=False):
    """What `Study.report` takes."""

    efficiency: float
    full_steps: int | None
    full_epochs: int | None


def check_wanted(wanted: WantedOptions) -> None:
    """Refuse what `Study.report` would, before anything is submitted.

    Raises:
        RequestError: a number is out of range.
    """
    _read_wanted(**wanted)


def check_pictures() -> None:
    """Refuse pictures that `Study.picture` could not draw, before anything is submitted.

    Raises:
        OutsideError: matplotlib is not installed.
    """
    from hpckit.plotting import require_matplotlib  # noqa: PLC0415  # seldom

    require_matplotlib()


def _read_wanted(
    efficiency: float = 0.7, full_steps: int | None = None, full_epochs: int | None = None
) -> Wanted:
    """Return what a reader wants to know.

    Raises:
        RequestError: a number is out of range, or both steps and epochs are given.
    """
    if not 0 < efficiency <= 1:
        raise RequestError(f"efficiency {efficiency:g} must be above 0 and at most 1, as in 0.7.")
    if full_steps is not None and full_epochs is not None:
        raise RequestError("Give full steps or full epochs, not both.")
    for what, value in (("full_steps", full_steps), ("full_epochs", full_epochs)):
        if value is not None and value < 1:
            raise RequestError(f"{what} {value} must be at least 1.")
    return Wanted(efficiency=efficiency, steps=full_steps, epochs=full_epochs)


def send_study(plan: StudyPlan, *, tell: Callable[[str], None] = log) -> Study:
    """Submit a study's runs, all or none.

    Raises:
        OutsideError: Slurm refuses or does not answer. KeyboardInterrupt: the user has.
    """
    return Study(send_runs(plan, tell))


def _outcome(status: RunStatus) -> Outcome:
    """Return what a run tells of a study."""
    run: RunFolder = status.run
    plan = run.record["plan"]
    shape = Shape(nodes=plan["nodes"], gpus=plan["total_gpus"], ranks=plan["ranks"])
    left_out, timing, odd = _why_not(status), Timing(), None
    if not left_out:
        try:
            times = [(row.restart, row.started, row.ended) for row in status.ranks]
            life = lifetime(run.submitted_at, times)
            rows, odd = without_odd_times(handle(run).metrics(), life)
            timing = timing_of(rows, _wall_s(status))
        except HpckitError as error:  # damaged, or its folder is gone
            left_out = str(error)
        if not left_out and not timing.seconds:
            left_out = "it says nothing of how long it took"
            left_out += f". {odd.text('timed')}" if odd else ""
    return Outcome(
        run_id=run.run_id,
        job_id=run.job_id,
        shape=shape,
        repeat=run.record["study"]["repeat"],
        state=str(status.state),
        left_out=left_out,
        on_cpu=bool(shape.gpus) and any(row.device == "cpu" for row in status.ranks),
        timing=timing,
        odd_times=odd,
    )


def _why_not(status: RunStatus) -> str:
    """Say why a run does not count; empty for one that does."""
    if status.never_starts:
        return f"it can never start; remove it: hpckit cancel {status.run.job_id}"
    if not status.finished:
        return f"it is {status.state}"
    if not status.good:
        return f"it is {status.state}; see hpckit logs {status.run.job_id} --errors"
    if status.restarts or any(row.restart for row in status.ranks):
        return "it was interrupted and started again"
    return ""


def _wall_s(status: RunStatus) -> float | None:
    """Return the seconds from the first rank's start to the last one's end."""
    ends = [row.ended for row in status.ranks]
    known = [end for end in ends if end is not None]
    if not known or len(known) < max(len(ends), status.run.ranks):
        return None
    return max(known) - min(row.started for row in status.ranks)
