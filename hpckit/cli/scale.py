"""`hpckit scale`: the same work in several sizes; how fast each was, and what follows of it."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit import RunStatus
from hpckit.api.options import job_spec
from hpckit.api.scale import (
    ScalingReport,
    Study,
    WantedOptions,
    check_pictures,
    check_wanted,
    send_study,
    study,
)
from hpckit.api.study_plan import StudyPlan, plan_study
from hpckit.cli.arguments import DryRunOption, JsonOption, RunsOption, finite
from hpckit.cli.left_running import BREAKS, goes_on
from hpckit.cli.mistakes import OwnWordsCommand
from hpckit.cli.options import with_options
from hpckit.cli.output import note, print_json, say, say_note, say_whose, show_text
from hpckit.cli.submit import say_job, show_script
from hpckit.cli.view import NeverStarting, counted_states
from hpckit.cli.written import check_files, is_stdout, write
from hpckit.errors import RequestError

# A study has lists of these, or none at all.
_OWN = ("nodes", "gpus", "tasks_per_node", "array", "zip", "parallel")

NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="A workload; or with PROGRAM a strategy."),
]
ProgramArgument = Annotated[
    str | None,
    typer.Argument(metavar="[PROGRAM]", help="Your own program, as of submit."),
]
ModuleOption = Annotated[
    str | None, typer.Option("--module", "-m", metavar="MODULE", help="A Python module.")
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus", "--gpus-per-node", metavar="[TYPE:]N,N,...",
        help="GPUs per node of each size; 2x4 is two nodes of 4 GPUs.",
    ),
]  # fmt: skip
NodesOption = Annotated[
    str | None, typer.Option("--nodes", "-N", metavar="N,N,...", help="Nodes of each size.")
]
TasksOption = Annotated[
    str | None,
    typer.Option(
        "--tasks-per-node", metavar="N,N,...",
        help="Ranks per node of each size, for ddp and mpi without GPUs.",
    ),
]  # fmt: skip
RepeatOption = Annotated[
    int, typer.Option(metavar="N", help="Runs of each size; with one there are no intervals.")
]
WeakOption = Annotated[
    bool, typer.Option("--weak", help="Weak scaling: the work grows with the size.")
]
GrowOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Argument that grows in weak scaling, if the workload does not say it; repeatable.",
    ),
]
TurnOption = Annotated[
    bool, typer.Option("--in-turn", help="Start each run when the one before is over.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from", "--resume", metavar="STUDY",
        help="Submit nothing: gather a study by its name, or the latest.",
    ),
]  # fmt: skip
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Do not wait for the runs; gather them later with --from.")
]
EfficiencyOption = Annotated[
    float,
    typer.Option(
        callback=finite,
        metavar="PART",
        help="Lowest efficiency that is worth the GPUs, 0 to 1.",
    ),
]
StepsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Steps of the full training, to extrapolate to.")
]
EpochsOption = Annotated[
    int | None, typer.Option(metavar="N", help="The same in epochs, if the runs log them.")
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print the sizes as CSV.")]
HtmlOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page with pictures, for a browser.")
]
PngOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the picture as PNG.")]
SvgOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the picture as SVG.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=OwnWordsCommand)(with_options(scale, without=_OWN))


def scale(
    context: typer.Context,
    name: NameArgument = None,
    program: ProgramArgument = None,
    *,
    typed: Mapping[str, Any],
    module: ModuleOption = None,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    tasks_per_node: TasksOption = None,
    repeat: RepeatOption = 3,
    weak: WeakOption = False,
    grow: GrowOption = None,
    in_turn: TurnOption = False,
    from_: FromOption = None,
    no_wait: NoWaitOption = False,
    efficiency: EfficiencyOption = 0.7,
    full_steps: StepsOption = None,
    full_epochs: EpochsOption = None,
    runs: RunsOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
    csv: CsvOption = False,
    html: HtmlOption = None,
    png: PngOption = None,
    svg: SvgOption = None,
) -> None:
    """Run the same work in several sizes; show time, speed-up and efficiency.

    Exit status: 1 if a run did not end well. Ctrl-C stops waiting; the runs go on, and --from
    gathers them.
    """
    outputs = Outputs(json=json, csv=csv, html=html, pictures=(png, svg))
    wanted = WantedOptions(efficiency=efficiency, full_steps=full_steps, full_epochs=full_epochs)
    outputs.check(none_yet=no_wait and from_ is None)
    check_wanted(wanted)
    lists = {"gpus": gpus, "nodes": nodes, "tasks_per_node": tasks_per_node}
    if from_ is None:
        words = {**typed, "args": context.obj or ()}
        plan = plan_study(
            job_spec(_named(name), words, program=program, module=module), lists, repeat=repeat,
            weak=weak, grow=grow or (), in_turn=in_turn or None, runs=runs, preview=dry_run,
            tell=say_note,
        )  # fmt: skip
        if dry_run:
            _preview(plan, json=json)
            return
        found = _send(plan)
    else:
        found = _called(from_, runs, [name, *lists.values()])
    if not no_wait:
        _wait(found, wanted if json else None)
    elif from_ is None and not json:
        say(found.name)
        return
    outputs.show(found.report(**wanted))
    if any((status.finished and not status.good) or status.never_starts
           for status in found.runs.status()):  # fmt: skip
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where a study's figures go: to stdout in one shape, and into files."""

    json: bool
    csv: bool
    html: Path | None
    pictures: tuple[Path | None, Path | None]

    def check(self, *, none_yet: bool) -> None:
        """Refuse what cannot be given, before anything is submitted.

        `none_yet`: there will be no figures at the end of the command, which does not wait.

        Raises:
            RequestError: two shapes, a file's name with another ending than its option, or a page
                or table of figures that are not there.
            OutsideError: matplotlib, which draws the pictures, is not installed.
        """
        if self.json and self.csv:
            raise RequestError("Give one of --json and --csv.")
        drawn = self._drawn
        for word, given in {"csv": self.csv, "html": self.html, **drawn}.items():
            if none_yet and given:
                raise RequestError(
                    f"--{word} needs figures, and --no-wait does not wait for them: leave it out, "
                    "and give it to `hpckit scale --from STUDY` later."
                )
        printed = [word for word, given in (("json", self.json), ("csv", self.csv)) if given]
        check_files(self._files, printed)
        if any(self.pictures):
            check_pictures()

    def show(self, report: ScalingReport) -> None:
        """Print the figures, and write the files."""
        if self.json:
            print_json(report.document())
        elif self.csv:
            show_text(report.csv())
        elif any(map(is_stdout, self._files.values())):
            note(report.text())
        else:
            say(report.text())
        for kind, path in self._drawn.items():
            if path is not None and (picture := write(kind, path, report.picture)):
                note(f"The picture is in {picture}.")
        if self.html is not None and (page := write("html", self.html, report.html)):
            note(f"The page is in {page}. Open it in a browser.")

    @property
    def _drawn(self) -> dict[str, Path | None]:
        return dict(zip(("png", "svg"), self.pictures, strict=True))

    @property
    def _files(self) -> dict[str, Path | None]:
        return {**self._drawn, "html": self.html}


def _named(name: str | None) -> str:
    if name is None:
        raise RequestError(
            "Give a workload or a strategy with a program, as in `hpckit scale ddp --gpus 1,2`; or "
            "a study that was submitted, as in `hpckit scale --from latest`."
        )
    return name


def _called(word: str, runs: Path | None, others: Sequence[str | None]) -> Study:
    """Return the study that `--from` names.

    Raises:
        RequestError: there are words of a submission too.
    """
    if any(other is not None for other in others):
        raise RequestError("--from submits nothing: leave out the workload and its sizes.")
    found = study(word, runs=runs)
    say_whose(found.runs[0])
    return found


def _preview(plan: StudyPlan, *, json: bool) -> None:
    """Say what would be submitted; print the script of the smallest size."""
    for submission in plan.sizes:
        say_job(submission)
        if plan.part["grow"]:
            note(f"  {shlex.join(submission.job.command)}")
    note(f"{len(plan.order)} runs in all; this is the script of the smallest size:")
    show_script(plan.sizes[0], json=json)


def _send(plan: StudyPlan) -> Study:
    for submission in plan.sizes:
        say_job(submission)
    found = send_study(plan, tell=note)
    note(f"Submitted study {found.name}: {len(found.runs)} runs")
    return found


def _wait(found: Study, wanted: WantedOptions | None) -> None:
    """Wait for all runs; whoever stops that gets the document of what is known, if `wanted`."""
    counts = Counting()
    try:
        found.wait(look=counts)
    except (*BREAKS, KeyboardInterrupt) as error:
        go_on = goes_on(error, many=True)
        note(f"No longer waiting; the runs {go_on}. Gather them: hpckit scale --from {found.name}")
        if wanted is not None:  # a script learns the study's name here alone
            with suppress(*BREAKS):
                print_json(found.report(**wanted).document())
        raise


class Counting:
    """Says how many runs are in which state, when that has changed; and which will never start."""

    def __init__(self) -> None:
        self._said = ""
        self._never = NeverStarting()

    def __call__(self, statuses: list[RunStatus]) -> None:
        """Look at a round of statuses."""
        self._never(statuses)
        line = counted_states(statuses)
        if line != self._said:
            note(f"{len(statuses)} runs: {line}")
            self._said = line
