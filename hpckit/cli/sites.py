"""`hpckit sites list|show|detect`."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from hpckit.api import sites as api
from hpckit.api.options import OPTIONS
from hpckit.api.sites import (
    PartitionLimits,
    Site,
    detect_cluster,
    site_page,
    sources_of,
)
from hpckit.cli.arguments import JsonOption
from hpckit.cli.init import TimeoutOption, say_unknown
from hpckit.cli.output import print_json, say, say_note, table
from hpckit.text import plain
from hpckit.units import format_minutes

commands = typer.Typer(help="Clusters, as data.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="sites")


@commands.command("list")
def list_all(json: JsonOption = False) -> None:
    """List the known sites; `*` marks the one detected here."""
    every, here = api.sites_and_here(say_note)
    found = [(row, row.found) for row in every if row.found]
    if json:
        print_json(
            [
                {
                    "name": row.name,
                    "here": row.name == here,
                    "description": row.description,
                    "collection": place.collection.name,
                    "shadows": [below.name for below in place.shadows],
                    "path": str(place.path),
                }
                for row, place in found
            ]
        )
        return
    rows = [
        (
            f"{row.name} *" if row.name == here else row.name,
            place.collection.label(),
            ", ".join(below.label() for below in place.shadows),
            row.description,
        )
        for row, place in found
    ]
    say(table(("SITE", "FROM", "SHADOWS", "DESCRIPTION"), rows))


@commands.command()
def show(
    name: Annotated[str | None, typer.Argument(help="A site; else the one detected here.")] = None,
    json: JsonOption = False,
) -> None:
    """Show a site, and where each value was read. Limits, GPU types, environments."""
    site = api.site(name, tell=say_note)
    if json:
        print_json(_record(site))
    else:
        say(_page(site))


@commands.command()
def detect(timeout_s: TimeoutOption = 10.0, json: JsonOption = False) -> None:
    """Show what can be found out about the cluster here. Writes and submits nothing."""
    found = detect_cluster(timeout=timeout_s)
    if json:
        print_json(found.document())
        return
    say_unknown(found)
    say(site_page(found).partition("\n")[2].rstrip())


def _record(site: Site) -> dict[str, object]:
    names = ("name", "description", "contact", "url", "account_required", "time_min",
             "gpu_request", "gpu_type", "gpus_per_node", "cpus_per_gpu", "modules", "environment",
             "mpi", "runs", "grafana")  # fmt: skip
    defaults = {name: site.defaults.get(name) for name, row in OPTIONS.items() if row.site}
    record: dict[str, object] = {**defaults, **{name: getattr(site, name) for name in names}}
    record["cpu_masks"] = list(site.cpu_masks)
    record["srun_args"] = list(site.srun_args)
    record["sources"] = [
        {"name": row.name, "url": row.url, "edition": row.edition, "read": row.read,
         "gives": list(row.gives)}
        for row in site.sources
    ]  # fmt: skip
    record["prometheus"] = site.prometheus and site.prometheus.url
    record["gpu_types"] = dict(site.gpu_types)
    record["partitions"] = {
        name: {key: getattr(row, key) for key in _PARTITION}
        for name, row in site.partitions.items()
    }
    record["environments"] = {
        name: {"kind": str(row.kind), "load": list(row.load), "path": row.path}
        for name, row in site.environments.items()
    }
    return record


_PARTITION = ("max_time_min", "max_nodes", "gpus_per_node", "cpus_per_node", "mem_gb_per_node",
              "whole_nodes")  # fmt: skip


def _shown(name: str, value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return plain(value)
    return ", ".join(value) if isinstance(value, tuple) else OPTIONS[name].written(value)


def _page(site: Site) -> str:
    lines = [f"{site.name}: {site.description}", f"  file          {site.path}"]
    lines += [
        f"  {label:<13} {value}{_marks(site, key)}"
        for label, key, value in (*_facts(site), *_services(site))
        if value
    ]
    if site.sources:
        lines.append("  where it was read (what is marked with a number):")
    for number, row in enumerate(site.sources, start=1):
        lines.append(f"  [{number}] {row.url} ({row.when()})")
    return "\n".join(lines)


def _marks(site: Site, key: str) -> str:
    """Return the numbers of the sources of a value; nothing where the site does not say."""
    found = sources_of(key, site.sources)
    numbers = [str(number) for number, row in enumerate(site.sources, start=1) if row in found]
    return f" [{', '.join(numbers)}]" if numbers else ""


def _facts(site: Site) -> Iterator[tuple[str, str, object]]:
    """Yield what each line says: its label, the key of the site's file, the value."""
    yield "contact", "contact", site.contact
    yield "url", "url", site.url
    for key, pattern in site.identify.items():
        yield "known by", f"identify.{key}", f"{key} {pattern}"
    yield "modules", "modules", site.modules
    types = [f"{name} ({count} per node)" for name, count in site.gpu_types.items()]
    yield "GPU types", "gpus.types", ", ".join(types)
    yield "GPUs per node", "gpus.per_node", site.gpus_per_node
    yield "CPUs per GPU", "gpus.cpus_per_gpu", site.cpus_per_gpu
    yield "cores by GPU", "gpus.cpu_masks", ", ".join(site.cpu_masks)
    yield "GPU type", "gpus.default_type", site.gpu_type and f"{site.gpu_type}, if none is named"
    yield "GPU type", "gpus.type_required", site.gpu_type_required and "needed: --gpus TYPE:N"
    yield "asked for by", "gpus.request", f"--{site.gpu_request}"
    yield "account", "account_required", site.account_required and "needed: --account NAME"
    for name, value in site.defaults.items():
        yield OPTIONS[name].word, f"defaults.{OPTIONS[name].word}", _shown(name, value)
    if "time_min" not in site.defaults:
        yield "time", "defaults.time", format_minutes(site.time_min)
    yield "environment", "defaults.environment", site.environment
    yield "MPI", "launch.mpi", site.mpi and f"srun --mpi={site.mpi}"
    yield "srun", "launch.srun_args", " ".join(site.srun_args)
    mpirun = " ".join((site.mpirun, *site.mpirun_args))
    yield "mpirun", "launch.mpirun", mpirun if mpirun != "mpirun" else None
    yield "sbatch", "launch.sbatch_args", " ".join(site.sbatch_args)
    yield "runs", "runs", site.runs
    yield "ledger", "ledger", site.ledger
    for row in site.partitions.values():
        yield "partition", f"partitions.{row.name}", f"{row.name}: {_limits(row)}"
    for environment in site.environments.values():
        what = [*environment.use, *environment.load, *filter(None, [environment.path])]
        text = f"{environment.name} ({environment.kind}): {', '.join(what)}"
        yield "environment", f"environments.{environment.name}", text
    for name, text in site.env.items():
        yield "variable", f"env.{name}", f"{name}={text}"
    if site.pass_env is not None:  # without the key, all are
        names = ", ".join(site.pass_env) or "none"
        yield "passed on", "pass_env", f"{names} (variables of your shell)"
    for line in site.setup:
        yield "shell", "setup", line


def _services(site: Site) -> Iterator[tuple[str, str, object]]:
    """Yield, as `_facts`, what is not about how a job runs."""
    yield "login", "login", site.login
    yield "Grafana", "grafana", site.grafana
    yield "Prometheus", "prometheus", site.prometheus and site.prometheus.url
    yield "mail", "notify", site.notify and "tells users what becomes of their jobs"
    if rules := site.bad_nodes:
        days = [] if rules.days is None else [f"count for {rules.days:g} days"]
        always = [f"always: {', '.join(rules.hosts)}"] if rules.hosts else []
        yield "bad nodes", "bad_nodes", "; ".join([*days, *always])
    for rule, values in site.advice.items():
        said = ", ".join(f"{name} {plain(value)}" for name, value in (values or {}).items())
        yield "advice", f"advice.{rule}", f"{rule}: {said or 'off'}"
    costs = site.costs
    price = None if costs.gpu_hour is None else f"{costs.gpu_hour:g} {costs.currency}".strip()
    yield "costs", "costs.gpu_hour", price and f"{price} per GPU-hour"
    yield "costs", "costs.pue", costs.pue != 1 and f"PUE {costs.pue:g}"
    grams = costs.co2_g_per_kwh
    yield "costs", "costs.co2_g_per_kwh", None if grams is None else f"{grams:g} g CO2 per kWh"


def _limits(row: PartitionLimits) -> str:
    limits = {
        "time": row.max_time_min and format_minutes(row.max_time_min),
        "nodes": row.max_nodes,
        "GPUs per node": row.gpus_per_node,
        "CPUs per node": row.cpus_per_node,
        "GiB per node": row.mem_gb_per_node,
    }
    said = [f"{key} {value}" for key, value in limits.items() if value is not None]
    return ", ".join([*said, *(["whole nodes"] if row.whole_nodes else [])]) or "no limits given"
