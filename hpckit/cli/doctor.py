"""`hpckit doctor [mpi|gpu|stats|notify]`: what a submission needs, and what is to be done."""

from typing import Annotated, Any

import typer

from hpckit.api import doctor as api
from hpckit.api.options import OPTIONS
from hpckit.cli.arguments import JsonOption, RunsOption
from hpckit.cli.init import TimeoutOption
from hpckit.cli.output import print_json, say, say_note

commands = typer.Typer(
    help="Check what a submission needs; say what to do.", invoke_without_command=True
)


def _declared(name: str) -> Any:  # noqa: ANN401
    """Return a field of `JobSpec` as an option of these commands, which have few of them."""
    row = OPTIONS[name]
    return typer.Option(*row.flags, metavar=row.metavar, help=row.help)


PartitionOption = Annotated[str | None, _declared("partition")]
AccountOption = Annotated[str | None, _declared("account")]
NodesOption = Annotated[int | None, _declared("nodes")]
SiteOption = Annotated[str | None, typer.Option("--site", help="Site file (else detected).")]
EnvOption = Annotated[str | None, typer.Option("--env", help="Environment, as for submit.")]
WithinOption = Annotated[
    str, typer.Option("--within", help="How long to wait for the jobs: minutes, 1h30m.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="doctor")


@commands.callback()
def doctor(
    context: typer.Context,
    site: SiteOption = None,
    runs: RunsOption = None,
    timeout_s: TimeoutOption = 10.0,
    json: JsonOption = False,
) -> None:
    """Check what a submission needs; submit nothing. Exit status 1 when something is bad."""
    if context.invoked_subcommand:
        return
    _end(api.doctor(site=site, runs=runs, timeout=timeout_s, tell=say_note), json=json)


@commands.command("mpi")
def mpi(
    site: SiteOption = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    env: EnvOption = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", min=1, max=2, help="Nodes for two ranks.")
    ] = None,
    runs: RunsOption = None,
    within: WithinOption = "10m",
    json: JsonOption = False,
) -> None:
    """Submit two-rank jobs by each launcher and kind of MPI.

    Exit status 1 when the one that `hpckit submit` uses does not work.
    """
    found = api.doctor_mpi(
        site=site, partition=partition, account=account, env=env, nodes=nodes, runs=runs,
        within=within, tell=say_note,
    )  # fmt: skip
    _end(found, json=json)


@commands.command("gpu")
def gpu(
    gpus: Annotated[
        str, typer.Option("--gpus", "--gpus-per-node", metavar="[TYPE:]N", help="GPUs per node.")
    ] = "1",
    nodes: NodesOption = None,
    site: SiteOption = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    env: EnvOption = None,
    runs: RunsOption = None,
    within: WithinOption = "10m",
    json: JsonOption = False,
) -> None:
    """Submit a short job that touches each GPU it gets. Name, memory, a product by torch."""
    found = api.doctor_gpu(
        gpus=gpus, nodes=nodes, site=site, partition=partition, account=account, env=env,
        runs=runs, within=within, tell=say_note,
    )  # fmt: skip
    _end(found, json=json)


@commands.command("stats")
def stats(
    site: SiteOption = None,
    runs: RunsOption = None,
    timeout_s: TimeoutOption = 10.0,
    json: JsonOption = False,
) -> None:
    """Say which sources of figures answer here. Samples, accounting, jobstats, Prometheus."""
    _end(api.doctor_stats(site=site, runs=runs, timeout=timeout_s), json=json)


@commands.command("notify")
def notify(site: SiteOption = None, json: JsonOption = False) -> None:
    """Send a test event to all who are told of your jobs. See docs/notify.md."""
    _end(api.doctor_notify(site=site), json=json)


def _end(found: api.Checks, *, json: bool) -> None:
    if json:
        print_json(found.document())
    else:
        say(str(found))
    if not found.good:
        raise typer.Exit(1)
