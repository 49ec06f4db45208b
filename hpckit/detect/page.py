"""A site's YAML from what was found out: each value with its source, the rest commented out. Pure.

Whatever Slurm names is other people's text: it stands in double quotes, and is one printable line.
"""

import glob
import re
from collections.abc import Callable, Iterator

from hpckit.detect.answers import Detected, Surroundings, version_text
from hpckit.detect.site_file import marked
from hpckit.job_spec.arguments import Kind, checked
from hpckit.slurm.cluster import Partition
from hpckit.text import in_line
from hpckit.units import format_minutes

_HEAD = """\
# `hpckit init` found these facts about this cluster. The source of each value is in the comment
# behind it. Values that are not known, or that you must choose, are commented out. Edit the file
# as you like: init never overwrites your changes. All keys: docs/sites.md.
# yaml-language-server: $schema=../../.hpckit/site.schema.json
"""
# Where init was started, and what this shell says, are no properties of the cluster.
OF_THE_MOMENT = ("./", "$HPCKIT_RUNS")
_MIB_PER_GIB = 1024  # Slurm's --mem=1G is 1024M
_HOUR_MIN = 60  # a site's time, where it names none

# YAML 1.1 reads these as something else than a text.
# What `site_page` and `init` take.
DETECTED = Kind("what detect_cluster returned", lambda given: isinstance(given, Detected))
_NO_TEXT = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


@checked(found=DETECTED)
def site_page(found: Detected) -> str:
    """Write the YAML; the first line holds a hash of the rest, which tells edits from our words."""
    return marked("\n".join(_lines(found)) + "\n")


def _lines(found: Detected) -> Iterator[str]:
    yield from _HEAD.splitlines()
    version = version_text(found.version) if found.version else "of unknown version"
    yield f"# Slurm {version} (sinfo --version)"
    for row in found.unknown:
        yield f"# NOT KNOWN: {spelt_briefly(row.what)}"
    for name in found.left_out:
        yield f"# LEFT OUT: {spelt_briefly(name)}: it is not one printable word"
    name = f"Slurm cluster {found.name}" if found.name else "A Slurm cluster"
    why = "ClusterName: scontrol show config" if found.name else "its name is not known"
    yield line("description", quoted(name), why)
    yield line("contact", None, "who helps users of this cluster")
    yield line("url", None, "its documentation")
    yield from identify_lines(found.here)
    yield from _defaults(found)
    yield from _gpus(found)
    yield from _partitions(found)
    yield from _modules(found)
    yield from _launch(found)
    yield from _places(found)
    yield from _accounting(found)


def _defaults(found: Detected) -> Iterator[str]:
    lines = [_account_line(found), *_partition_lines(found), _qos_line(found)]
    lines.append(line("constraint", None, "a feature of nodes: sinfo -o '%n %f'"))
    lines.append(line("environment", None, "one of environments: below"))
    yield from section("defaults", lines)


def _account_line(found: Detected) -> str:
    accounts = found.accounts
    if found.associations is None:
        return line("account", None, "not known: sacctmgr; your project's, if jobs need one")
    yours = f"yours, by sacctmgr show assoc: {', '.join(accounts) or 'none'}"
    if len(accounts) == 1:
        return line("account", quoted(accounts[0]), "your only account: sacctmgr show assoc")
    if found.default_account:
        why = f"Slurm uses {found.default_account} if none is given; {yours}"
        return line("account", quoted(found.default_account), why, active=False)
    return line("account", None, yours)


def _partition_lines(found: Detected) -> Iterator[str]:
    default = found.default_partition
    if found.partitions is None:
        yield line("partition", None, "not known: scontrol show partition")
    elif default is None:
        yield line(
            "partition", None, "this cluster has no default partition: choose one of partitions:"
        )
    else:
        why = f"Default=YES, State={default.state}: scontrol show partition"
        yield line("partition", quoted(default.name), why, active=_is_usable(default))
    limit = default.max_time_min if default else None
    if default and limit is not None and limit < _HOUR_MIN:
        yield line("time", quoted(format_minutes(limit)), f"MaxTime of partition {default.name}")
    else:
        yield line("time", None, "the time limit of jobs that do not give one; 1h if not set")


def _qos_line(found: Detected) -> str:
    if found.associations is None:
        return line("qos", None, "not known: sacctmgr")
    return line("qos", None, f"yours, by sacctmgr show assoc: {', '.join(found.qos) or 'none'}")


def _gpus(found: Detected) -> Iterator[str]:
    counts = sorted({group.gpus for row in found.partitions or () for group in row.node_groups})
    counts = [count for count in counts if count]
    if found.nodes_known and not counts:
        yield "# gpus:  # no node has GPUs: sinfo, column %G"
        return
    lines = [_request_line(found)]
    if not found.nodes_known:
        lines.append(line("per_node", None, "not known: sinfo"))
    elif len(counts) == 1:
        lines.append(line("per_node", counts[0], "all GPU nodes: sinfo, column %G"))
    else:
        lines.append(line("per_node", None, f"nodes differ: {', '.join(map(str, counts))} (sinfo)"))
    if found.gpu_types:
        types = ", ".join(f"{quoted(name)}: {count}" for name, count in found.gpu_types.items())
        lines.append(line("types", f"{{{types}}}", "the most of any node: sinfo, column %G"))
    else:
        why = "sinfo shows no types" if found.nodes_known else "not known: sinfo"
        lines.append(line("types", None, f"{why}; example: {{A100: 4}}"))
    lines.append(line("default_type", None, "the type for jobs that do not name one"))
    lines.append(line("type_required", "true", "if jobs must name a type", active=False))
    cores = _cores_per_gpu(found)
    text = f"cores/GPUs of nodes: {', '.join(map(str, cores)) or 'not known'} (sinfo, %c and %G)"
    lines.append(line("cpus_per_gpu", cores[0] if cores else None, text, active=False))
    yield from section("gpus", lines)


def _request_line(found: Detected) -> str:
    if found.gpu_request is None:
        return line("request", None, "not known: scontrol show config; gpus-per-node or gres")
    return line("request", found.gpu_request, "SelectType: scontrol show config")


def _cores_per_gpu(found: Detected) -> list[int]:
    groups = [group for row in found.partitions or () for group in row.node_groups]
    return sorted({g.cpus // g.gpus for g in groups if g.cpus and g.gpus and g.cpus >= g.gpus})


def _partitions(found: Detected) -> Iterator[str]:
    if found.partitions is None:
        yield "# partitions:  # not known: scontrol show partition"
        return
    shown = [row for row in found.partitions if not (row.hidden or row.root_only)]
    yield "partitions:  # scontrol show partition; nodes: sinfo" if shown else "# partitions:"
    for row in shown:
        yield from (f"  {row}" for row in _partition(row, found))
    for row in found.partitions:
        if row not in shown:
            word = "RootOnly=YES" if row.root_only else "Hidden=YES"
            yield f"  # {spelt_briefly(row.name)}:  # {word}"
    for name in found.hidden:
        yield f"  # {spelt_briefly(name)}:  # hidden, or not for your groups: sinfo --all"


def _is_usable(row: Partition) -> bool:
    return row.state == "UP" and not (row.root_only or row.hidden)


def _partition(row: Partition, found: Detected) -> Iterator[str]:
    notes = [f"State={row.state}"]
    if row.accounts is not None:
        notes.append(f"AllowAccounts={','.join(row.accounts)}")
    yield f"{quoted(row.name)}:  # {spelt_briefly(', '.join(notes))}"
    limit = row.max_time_min
    time = quoted(format_minutes(limit)) if limit else None
    lines = [line("max_time", time, "MaxTime" if limit else "MaxTime=UNLIMITED")]
    nodes = f"MaxNodes=UNLIMITED; the partition has {len(row.nodes)}"
    lines.append(line("max_nodes", row.max_nodes or None, "MaxNodes" if row.max_nodes else nodes))
    lines += _node_lines(row, found)
    if all(row.startswith("#") for row in lines):
        yield "  {}"
    yield from (f"  {row}" for row in lines)


def _node_lines(row: Partition, found: Detected) -> Iterator[str]:
    if not row.node_groups:
        why = "the partition has no nodes" if found.nodes_known else "not known: sinfo"
        yield f"# gpus_per_node, cpus_per_node, mem_gb_per_node:  # {why}"
        return
    columns: list[tuple[str, str, Callable[[int], int], list[int | None]]] = [
        ("gpus_per_node", "%G", lambda n: n, [group.gpus for group in row.node_groups]),
        ("cpus_per_node", "%c", lambda n: n, [group.cpus for group in row.node_groups]),
        (
            "mem_gb_per_node",
            "%m",
            lambda n: n // _MIB_PER_GIB,
            [g.memory_mb for g in row.node_groups],
        ),
    ]
    for key, column, unit, values in columns:
        known = [unit(value) for value in values if value is not None]
        differ = ", the most of any node" if len(set(known)) > 1 else ""
        least = 0 if key == "gpus_per_node" else 1
        most = max(known, default=None)
        value = most if most is not None and most >= least else None
        yield line(key, value, f"sinfo, column {column}{differ}")


def _modules(found: Detected) -> Iterator[str]:
    systems = found.here.modules
    if not systems:
        names = " or ".join(", ".join(found.here.module_names).rsplit(", ", 1))
        yield line("modules", None, f"{names}: none was found in this shell or the usual places")
    else:
        others = [f"also here: {row.name} ({row.evidence})" for row in systems[1:]]
        yield line("modules", _system(systems[0].name), "; ".join([systems[0].evidence, *others]))
    yield "# environments:"
    yield "#   torch: {kind: modules, load: [NAME/VERSION]}  # where python comes from"


def _system(name: str) -> str:
    """Write a module system's name so that YAML reads a text; it is letters, digits, . _ -."""
    plain = name[0].isalpha() and name.lower() not in _NO_TEXT
    return name if plain else quoted(name)


def _launch(found: Detected) -> Iterator[str]:
    mpi = found.mpi
    kinds = ", ".join(mpi.kinds or ())
    if mpi.kinds is None:
        mpi_line = line("mpi", None, "not known: srun --mpi=list; see hpckit doctor mpi")
    elif mpi.default:
        why = f"srun's own default, MpiDefault; srun --mpi=list: {kinds}"
        mpi_line = line("mpi", quoted(mpi.default), why, active=False)
    elif mpi.chosen:
        mpi_line = line(
            "mpi", quoted(mpi.chosen), f"of {kinds} (srun --mpi=list); not tested: doctor mpi"
        )
    else:
        mpi_line = line("mpi", None, f"srun --mpi=list: {kinds}: hpckit knows none of them")
    yield from section("launch", [mpi_line])


def _places(found: Detected) -> Iterator[str]:
    for row in found.here.folders:
        if row.label in OF_THE_MOMENT:
            continue
        yield f"# runs: {spelt_briefly(row.label)}/runs  # {spelt_briefly(row.path)}: {row.kind}"
    yield "# runs must be on a file system that all nodes see; without this key: ./runs"
    yield line("grafana", None, "https://...?var-jobid={jobid}&from={start_ms}&to={end_ms}")


def _accounting(found: Detected) -> Iterator[str]:
    answers = "answers" if found.accounting else "does not answer: fewer figures in stats"
    yield f"# accounting (sacct) {answers}"


def identify_lines(here: Surroundings) -> Iterator[str]:
    """Yield the lines of `identify:`."""
    pattern, conf = host_pattern(here.hostname), here.slurm_conf
    if pattern:
        why = "this machine's full name, without its number"
        lines = [line("hostname", quoted(pattern), why)]
    elif conf and conf.isprintable():
        lines = [line("SLURM_CONF", quoted(glob.escape(conf)), "this shell's environment")]
    else:
        lines = [
            line(
                "hostname",
                None,
                "this machine's name does not identify it: set HPCKIT_SITE or --site",
            )
        ]
    yield from section("identify", lines)


def host_pattern(hostname: str) -> str | None:
    """Return a pattern for all login nodes: of `login2.site.org` it is `login[0-9]*.site.org`."""
    name, dot, domain = hostname.partition(".")
    if name in ("", "localhost") or not re.fullmatch(r"[\w.-]+", hostname, re.ASCII):
        return None
    stem = name.rstrip("0123456789")
    open_number = stem not in ("", name) and bool(stem.strip("-"))
    return (f"{stem}[0-9]*" if open_number else name) + dot + domain


def quoted(text: str) -> str:
    """Return a text as YAML in double quotes.

    Raises:
        ValueError: it is not printable; such names are left out before.
    """
    if not text.isprintable():
        raise ValueError(f"{text!r} is not printable")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def spelt_briefly(text: str) -> str:
    """Return a text for a comment: one printable line, not too long."""
    one = in_line(text)
    return one if len(one) <= 300 else f"{one[:300]}..."


def line(key: str, value: str | int | None, why: str, *, active: bool = True) -> str:
    """Return `key: value  # why`; a comment where there is no value, or it is not for us to set."""
    shown = "" if value is None else f" {value}"
    return f"{'' if active and value is not None else '# '}{key}:{shown}  # {spelt_briefly(why)}"


def section(name: str, lines: list[str]) -> Iterator[str]:
    """Yield a mapping; one of nothing but comments is a comment itself."""
    if all(row.startswith("#") for row in lines):
        yield f"# {name}:"
        yield from (f"#   {row.removeprefix('# ')}" for row in lines)
    else:
        yield f"{name}:"
        yield from (f"  {row}" for row in lines)
