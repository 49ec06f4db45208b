"""A site's file: read, and checked with file and line."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.collections import Collection
from hpckit.collections.collection import ledger_folder
from hpckit.documents import Fields, Scalar, nearest, read_document
from hpckit.environments import (
    BARE,
    NO_MODULES,
    Environment,
    module_templates,
    read_environment,
)
from hpckit.errors import ConfigError, RequestError
from hpckit.job_spec.spec import OPTIONS, JobSpec, Option, option_values
from hpckit.sites.site import LINK_NAMES, AdviceOverride, Costs, PartitionLimits, Site
from hpckit.units import parse_minutes

if TYPE_CHECKING:
    from hpckit.sinks import Notify
    from hpckit.sites.node_rules import NodeRules
    from hpckit.sites.prometheus import Prometheus
    from hpckit.sites.site_sources import Source

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
# What a shell would fill in, as in PATH: /opt/bin:$PATH. As it stands it ends all programs.
_FILLED_IN = r"\$[A-Za-z_{(]"
# For up to 4096 cores.
_MASK = r"(?a)0x[0-9a-f]{1,1024}"
# `${name}` is Grafana's own.
_IN_LINK = r"(?<!\$)\{(\w+)\}"


def read_site(path: Path, collections: tuple[Collection, ...] | None = None) -> Site:
    """Read one site file; it may name the module systems of `collections` (None: the search path).

    Raises:
        ConfigError: unknown key or module system, wrong type, no description; with file and line.
    """
    fields = read_document(path, "a site")
    defaults = fields.mapping("defaults", "defaults")
    gpus = fields.mapping("gpus", "gpus")
    launch = fields.mapping("launch", "launch")
    types = gpus.mapping("types", "gpus.types")
    site = Site(
        name=path.stem,
        description=fields.required_text("description"),
        contact=fields.text("contact") or "",
        url=fields.text("url") or "",
        login=fields.text("login"),
        identify=fields.text_mapping("identify"),
        defaults=_defaults(defaults),
        account_required=fields.flag("account_required"),
        environment=defaults.text("environment") or BARE.name,
        gpu_request=gpus.choice("request", ("gpus-per-node", "gres"), "gpus-per-node"),
        gpu_types={name: types.integer(name, minimum=1) or 1 for name in types.values},
        gpu_type=gpus.text("default_type"),
        gpu_type_required=gpus.flag("type_required"),
        gpus_per_node=gpus.integer("per_node", minimum=1),
        cpus_per_gpu=gpus.integer("cpus_per_gpu", minimum=1),
        cpu_masks=_cpu_masks(gpus),
        partitions=_partitions(fields),
        modules=_modules(fields, collections),
        environments=_environments(fields),
        mpi=launch.text("mpi"),
        srun_args=launch.texts("srun_args"),
        mpirun=launch.text("mpirun") or "mpirun",
        mpirun_args=launch.texts("mpirun_args"),
        sbatch_args=launch.texts("sbatch_args"),
        env=_variables(fields),
        pass_env=fields.texts("pass_env") if fields.has("pass_env") else None,
        setup=fields.texts("setup"),
        runs=fields.text("runs"),
        ledger=ledger_folder(fields),
        grafana=_grafana(fields),
        prometheus=_prometheus(fields),
        notify=_notify(fields),
        bad_nodes=_bad_nodes(fields),
        advice=_advice(fields),
        costs=_costs(fields),
        sources=_sources(fields),
    )
    for part in (defaults, gpus, launch, types, fields):
        part.refuse_unknown()
    return _checked(site, fields)


def _defaults(fields: Fields) -> dict[str, Any]:
    """Read defaults for the options that let a site give one."""
    found = {name: _default(fields, row) for name, row in OPTIONS.items() if row.site}
    return {name: value for name, value in found.items() if value is not None}


def _default(fields: Fields, row: Option) -> Any:  # noqa: ANN401
    key = row.word
    if not fields.has(key):
        return None
    is_list = isinstance(fields.values[key][0], list)
    is_text = row.is_word or row.read is not None
    read = fields.texts if is_list else fields.text if is_text else fields.scalar
    if (given := read(key)) is None:
        return None
    try:
        values = option_values({key: given})
        if not row.is_word:  # the cluster's own names, as of partitions, are not checked
            JobSpec(target="serial", **values)
        return next(iter(values.values()))
    except RequestError as error:
        raise ConfigError(str(error), at=fields.at(key)) from error


def _checked(site: Site, fields: Fields) -> Site:
    """Refuse a default that the file itself does not list.

    Raises:
        ConfigError: there is one; with the line of the mapping that gives it.
    """
    partition = site.partition if site.partitions else None
    environments = [*site.environments, BARE.name]
    for key, what, name, heading, listed in (
        ("defaults", "default partition", partition, "partitions", [*site.partitions]),
        ("defaults", "default environment", site.environment, "environments", environments),
        ("gpus", "default_type", site.gpu_type, "types", [*site.gpu_types]),
    ):
        if name and name not in listed:
            raise ConfigError(
                f"{what} {name!r} is not under '{heading}:'. {nearest(name, listed)}",
                at=fields.at(key),
            )
    return site


def _partitions(fields: Fields) -> dict[str, PartitionLimits]:
    partitions = {}
    for name, entry in fields.mappings("partitions", "partition").items():
        whole = entry.flag("whole_nodes")
        partitions[name] = PartitionLimits(
            name=name,
            max_time_min=_minutes(entry, "max_time"),
            max_nodes=entry.integer("max_nodes", minimum=1),
            gpus_per_node=entry.integer("gpus_per_node"),
            cpus_per_node=entry.integer("cpus_per_node", minimum=1),
            mem_gb_per_node=entry.integer("mem_gb_per_node", minimum=1),
            whole_nodes=whole if entry.has("whole_nodes") else None,
        )
        entry.refuse_unknown()
    return partitions


def _cpu_masks(gpus: Fields) -> tuple[str, ...]:
    masks = gpus.texts("cpu_masks")
    per_node = gpus.integer("per_node", minimum=1)
    if wrong := [mask for mask in masks if not re.fullmatch(_MASK, mask)]:
        raise ConfigError(
            f"'cpu_masks' holds {wrong[0]!r}, must be hexadecimal numbers, as in '0xfe'.",
            at=gpus.at("cpu_masks"),
        )
    if masks and len(masks) != per_node:
        raise ConfigError(
            f"'cpu_masks' has {len(masks)} masks, must have one for each GPU of a node: "
            f"'per_node' is {per_node}.",
            at=gpus.at("cpu_masks"),
        )
    return masks


def _modules(fields: Fields, collections: tuple[Collection, ...] | None) -> str:
    name = fields.text("modules", NO_MODULES) or NO_MODULES
    if name != NO_MODULES and name not in (known := module_templates(collections)):
        raise ConfigError(
            f"'modules' is {name!r}, but no collection has a template "
            f"modules/{name}.sh.j2. {nearest(name, known)}",
            at=fields.at("modules"),
        )
    return name


def _variables(fields: Fields) -> dict[str, str]:
    variables = fields.text_mapping("env")
    for name, value in variables.items():
        at = fields.mapping("env", "env").at(name)
        if not re.fullmatch(_VARIABLE, name):
            raise ConfigError(f"{name!r} cannot be the name of an environment variable.", at=at)
        if re.search(_FILLED_IN, value):
            raise ConfigError(
                f"{name!r} is {value!r}, but 'env' exports values as they stand, with '$'. Write "
                f'it in setup: ["export {name}={value}"]',
                at=at,
            )
    return variables


def _advice(fields: Fields) -> dict[str, AdviceOverride]:
    """Read `advice:`; whether its rules and variables exist is for `hpckit.stats.advice` to say."""
    rows = fields.mapping("advice", "advice")
    return {rule: _advice_override(rows, rule) for rule in rows.values}


def _advice_override(rows: Fields, rule: str) -> AdviceOverride:
    if isinstance(rows.values[rule][0], dict):
        row = rows.mapping(rule, f"advice {rule!r}")
        return {name: _advice_value(row, name) for name in row.values}
    # YAML reads a bare `off` as false.
    value = rows.scalar(rule)
    if value is not False and value != "off":
        raise ConfigError(
            f"advice {rule!r} must be off, or a mapping of variables to values.", at=rows.at(rule)
        )
    return None


def _advice_value(row: Fields, name: str) -> Scalar | tuple[Scalar, ...]:
    is_list = isinstance(row.values[name][0], list)
    value = row.scalars(name) if is_list else row.scalar(name)
    if value is None or isinstance(value, str):
        raise ConfigError(
            f"{name!r} is {value!r}, must be a number, true, false or a list.", at=row.at(name)
        )
    return value


def _grafana(fields: Fields) -> str | None:
    """Read `grafana:`; a name in braces that hpckit does not know would stay in every link."""
    link = fields.text("grafana")
    for name in re.findall(_IN_LINK, link or ""):
        if name not in LINK_NAMES:
            raise ConfigError(
                f"'grafana' has '{{{name}}}', which hpckit does not fill in. "
                f"{nearest(name, LINK_NAMES)}",
                at=fields.at("grafana"),
            )
    return link


def _costs(fields: Fields) -> Costs:
    rows = fields.mapping("costs", "costs")
    pue = rows.number("pue", minimum=1.0)
    costs = Costs(
        gpu_hour=rows.number("gpu_hour"),
        currency=rows.text("currency") or "",
        pue=1.0 if pue is None else pue,
        co2_g_per_kwh=rows.number("co2_g_per_kwh"),
    )
    rows.refuse_unknown()
    return costs


def _sources(fields: Fields) -> "tuple[Source, ...]":
    if not fields.has("sources"):
        return ()
    from hpckit.sites.site_sources import read_sources  # noqa: PLC0415  # those of a user have none

    return read_sources(fields)


def _prometheus(fields: Fields) -> "Prometheus | None":
    if not fields.has("prometheus"):
        return None
    from hpckit.sites.prometheus import read_prometheus  # noqa: PLC0415  # few sites have one

    return read_prometheus(fields)


def _notify(fields: Fields) -> "Notify | None":
    if not fields.has("notify"):
        return None
    from hpckit.sinks import read_notify  # noqa: PLC0415  # few sites have one

    return read_notify(fields, trusted=False)


def _bad_nodes(fields: Fields) -> "NodeRules | None":
    if not fields.has("bad_nodes"):
        return None
    from hpckit.sites.node_rules import read_rules  # noqa: PLC0415  # few sites have some

    return read_rules(fields, of_site=True)


def _environments(fields: Fields) -> dict[str, Environment]:
    entries = fields.mappings("environments", "environment")
    return {name: read_environment(name, entry) for name, entry in entries.items()}


def _minutes(fields: Fields, key: str) -> int | None:
    text = fields.text(key)
    if text is None:
        return None
    try:
        return parse_minutes(text)
    except RequestError as error:
        why = f"{error} Without a limit, leave {key!r} out."
        raise ConfigError(why, at=fields.at(key)) from error
