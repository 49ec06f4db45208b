"""`hpckit sites list|show|detect`."""

from typing import Annotated, Any

import typer

from hpckit.api import sites as api
from hpckit.api.options import OPTIONS
from hpckit.api.sites import Site, detect_cluster, site_page
from hpckit.cli.arguments import JsonOption, say_note
from hpckit.cli.init import TimeoutOption, say_unknown
from hpckit.cli.output import print_json, say, table
from hpckit.text import format_minutes

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
    """Show a site: limits, GPU types, environments."""
    site = api.site(name, tell=say_note)
    if json:
        print_json(_record(site))
    else:
        say(_page(site))


@commands.command()
def detect(timeout_s: TimeoutOption = 10.0, json: JsonOption = False) -> None:
    """Show what can be found out about the cluster here; writes and submits nothing."""
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


_PARTITION = ("max_time_min", "max_nodes", "gpus_per_node", "cpus_per_node", "mem_gb_per_node")


def _shown(name: str, value: Any) -> str:  # noqa: ANN401
    return ", ".join(value) if isinstance(value, tuple) else OPTIONS[name].written(value)


def _page(site: Site) -> str:
    lines = [f"{site.name}: {site.description}", f"  file          {site.path}"]
    facts = {
        "contact": site.contact,
        "url": site.url,
        "modules": site.modules,
        "GPU types": ", ".join(
            f"{name} ({count} per node)" for name, count in site.gpu_types.items()
        ),
        "GPUs per node": site.gpus_per_node,
        "account": "needed: --account NAME" if site.account_required else None,
        **{OPTIONS[name].word: _shown(name, value) for name, value in site.defaults.items()},
        "time": format_minutes(site.time_min),
        "environment": site.environment,
        "MPI": site.mpi and f"srun --mpi={site.mpi}",
        "runs": site.runs,
        "ledger": site.ledger,
    }
    lines += [f"  {key:<13} {value}" for key, value in facts.items() if value]
    for row in site.partitions.values():
        limits = {
            "time": row.max_time_min and format_minutes(row.max_time_min),
            "nodes": row.max_nodes,
            "GPUs per node": row.gpus_per_node,
            "CPUs per node": row.cpus_per_node,
            "GB per node": row.mem_gb_per_node,
        }
        text = ", ".join(f"{key} {value}" for key, value in limits.items() if value is not None)
        lines.append(f"  partition     {row.name}: {text or 'no limits given'}")
    for environment in site.environments.values():
        what = ", ".join([*environment.load, *([environment.path] if environment.path else [])])
        lines.append(f"  environment   {environment.name} ({environment.kind}): {what}")
    return "\n".join(lines)
