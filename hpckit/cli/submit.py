"""`hpckit submit`: a workload, or one's own program under a strategy."""

from typing import Annotated

import typer

from hpckit.cli.announce import say_job, say_which_script
from hpckit.cli.arguments import (
    AccountOption,
    CpusOption,
    ExcludeOption,
    GpusOption,
    JsonOption,
    LauncherOption,
    MemoryOption,
    NodesOption,
    PartitionOption,
    QosOption,
    RunsOption,
    SettingsOption,
    TimeOption,
    say_note,
)
from hpckit.cli.mistakes import OwnWordsCommand
from hpckit.cli.output import note, print_json, say, show_text
from hpckit.errors import RequestError
from hpckit.job.checks import CHECKS
from hpckit.job.program import typed_program
from hpckit.job.spec import JobSpec
from hpckit.submission.model import Submission, render_script
from hpckit.submission.prepare import prepare
from hpckit.text import parse_minutes

# Few programs have options of these names.
_HPCKITS = frozenset(
    {
        "--nodes",
        "--gpus",
        "--partition",
        "--account",
        "--env",
        "--executor",
        "--dry-run",
        "--follow",
    }
)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=OwnWordsCommand)(submit)


def submit(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A workload; or with PROGRAM a strategy.")
    ],
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROGRAM]",
            help="Your own program: a Python file, an executable, a .sh, .R or .jl file, or a word "
            "such as lmp that the environment provides. NAME is then serial, dp, ddp, mirrored or "
            "mpi. Its arguments go after `--`.",
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("--module", "-m", metavar="MODULE", help="A Python module, as PROGRAM."),
    ] = None,
    nodes: NodesOption = None,
    gpus: GpusOption = None,
    tasks_per_node: Annotated[
        int | None, typer.Option(help="Ranks per node, for ddp and mpi without GPUs.")
    ] = None,
    cpus_per_task: CpusOption = None,
    mem_gb: MemoryOption = None,
    time: TimeOption = None,
    site: Annotated[str | None, typer.Option(help="Site file (else detected).")] = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    qos: QosOption = None,
    constraint: Annotated[
        str | None,
        typer.Option("--constraint", "-C", help="Features that the nodes must have, as in 'a|b'."),
    ] = None,
    reservation: Annotated[
        str | None, typer.Option("--reservation", help="Name of a reservation of nodes.")
    ] = None,
    exclude: ExcludeOption = None,
    template: Annotated[str, typer.Option(help="Script template.")] = "base",
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment of the site; or a venv's path, conda:NAME, module:NAME, "
            "apptainer:IMAGE."
        ),
    ] = None,
    launcher: LauncherOption = None,
    settings: SettingsOption = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            "--array", metavar="KEY=A,B,C", help="One job per value; repeat for a product."
        ),
    ] = None,
    parallel: Annotated[int | None, typer.Option(help="Array tasks at once.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="JOBID", help="Start after this job has ended with status 0."),
    ] = None,
    max_requeues: Annotated[int, typer.Option(help="Restarts after time limit or preemption.")] = 0,
    executor: Annotated[str, typer.Option(help="auto, slurm or local (this machine).")] = "auto",
    job_name: Annotated[str | None, typer.Option("--name", "-J", help="Job name.")] = None,
    runs: RunsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script; submit nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Ask Slurm whether and when it would start.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the job is over.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Watch it until it is over.")
    ] = False,
    json: JsonOption = False,
    sample_interval: Annotated[
        float, typer.Option(metavar="S", help="Seconds between GPU samples; 0 = off.")
    ] = 10.0,
    skip_check: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help=f"Switch a check off: {', '.join(CHECKS)}."),
    ] = None,
) -> None:
    """Submit a workload, or your own program, as one job or an array; return at once."""
    _say_swallowed(context.obj or ())
    gpu_type, gpu_count = parse_gpus(gpus)
    spec = JobSpec(
        target=name,
        program=None if program is None else typed_program(program),
        module=module,
        args=tuple(context.obj or ()),
        settings=tuple(settings or ()),
        array=tuple(array or ()),
        parallel=parallel,
        nodes=nodes,
        gpus=gpu_count,
        gpu_type=gpu_type,
        tasks_per_node=tasks_per_node,
        cpus_per_task=cpus_per_task,
        mem_gb=mem_gb,
        time_min=None if time is None else parse_minutes(time),
        site=site,
        partition=partition,
        account=account,
        qos=qos,
        constraint=constraint,
        reservation=reservation,
        exclude=exclude,
        template=template,
        env=env,
        launcher=launcher,
        executor=executor,
        name=job_name,
        after=tuple(after or ()),
        max_requeues=max_requeues,
        sample_interval_s=sample_interval,
        skip_checks=tuple(skip_check or ()),
    )
    submission = prepare(spec, runs, preview=dry_run, tell=say_note)
    if dry_run:
        _preview(submission, json=json)
    elif check:
        from hpckit.submission.check import check_with_slurm  # noqa: PLC0415  # see carry_out

        say(check_with_slurm(submission))
    else:
        # A dry run needs none of it, and would take a tenth longer.
        from hpckit.cli.carry_out import carry_out  # noqa: PLC0415

        carry_out(submission, wait=wait, follow=follow, json=json)


def _say_swallowed(own_words: tuple[str, ...]) -> None:
    """Say of options that are hpckit's by their names, and stand where the program gets them."""
    swallowed = [word for word in own_words if word.partition("=")[0] in _HPCKITS]
    if swallowed:
        note(
            f"note: {', '.join(swallowed)} stands after `--`: your script gets it. Options of "
            "hpckit go before `--`"
        )


def parse_gpus(text: str | None) -> tuple[str | None, int | None]:
    """Read `4` or `A100:4` as (type, count).

    Raises:
        RequestError: it is neither.
    """
    if text is None:
        return None, None
    kind, _, count = text.rpartition(":")
    if not count.isdecimal():
        raise RequestError(f"--gpus {text!r} must be a number per node, or TYPE:N as in A100:4.")
    return kind or None, int(count)


def _preview(submission: Submission, *, json: bool) -> None:
    script = render_script(submission).text
    say_job(submission)
    say_which_script(submission)
    if json:
        print_json({"run_id": submission.place.run_id, "script": script})
    else:
        show_text(script)
