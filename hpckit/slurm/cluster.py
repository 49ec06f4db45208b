"""What the cluster has, and lets a user charge: partitions, nodes, GPUs, versions, accounts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hpckit.errors import CommandError
from hpckit.frozen import frozen
from hpckit.slurm.client import ask
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.units import parse_limit_min, whole_number

_SINFO_COLUMNS = "%R|%a|%T|%c|%m|%G|%N"
SINFO = ("sinfo", "--noheader", "--exact", "--all", f"--format={_SINFO_COLUMNS}")
# `no_consume` (slurm.conf(5), Gres): there as well, but not given to one job alone.
_GRES = (
    r"(?ai)(?P<name>[^:]+)(?::(?!no_consume(?::|$)|\d+[kmgtp]?$)(?P<type>[^:]+))?(?::no_consume)?"
    r"(?::(?P<count>\d{1,18})(?P<unit>[kmgtp]?))?"
)
_GRES_UNITS = ["", "k", "m", "g", "t", "p"]
_VERSION = r"\b(\d\d)\.(\d{1,2})\.(\d+)"
_ASSOCIATION_COLUMNS = ("Cluster", "Account", "Partition", "QOS")


@frozen(kw_only=True)
class Gres:
    """Countable things on one node: `gpu`, of type `h200`, four of them."""

    name: str
    type: str | None
    count: int


@frozen(kw_only=True)
class NodeGroup:
    """Nodes of one partition that are alike; `cpus`, `memory_mb` and `gres` are of each node."""

    partition: str
    nodes: tuple[str, ...]
    cpus: int | None
    memory_mb: int | None
    gres: tuple[Gres, ...]

    @property
    def gpus(self) -> int:
        """The GPUs of one node, of any type; MIG slices and shards are not among them."""
        return sum(gres.count for gres in self.gres if gres.name == "gpu")


@frozen(kw_only=True)
class Partition:
    """One partition; None is no limit, or not known. Only sinfo tells `node_groups`.

    Only `accounts` may use it; None is all, or all but `denied_accounts`. The same holds for the
    system's `groups`. `exclusive`: jobs get whole nodes.
    """

    name: str
    default: bool
    state: str
    max_time_min: int | None
    max_nodes: int | None
    nodes: tuple[str, ...]
    hidden: bool = False
    root_only: bool = False
    accounts: tuple[str, ...] | None = None
    denied_accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    exclusive: bool = False
    node_groups: tuple[NodeGroup, ...] = ()

    @property
    def gpus_per_node(self) -> int | None:
        """The GPUs of its best equipped node; None before sinfo was asked."""
        return max((group.gpus for group in self.node_groups), default=None)


def partitions() -> tuple[Partition, ...]:
    """Ask Slurm for its partitions and what their nodes have.

    Raises:
        CommandError: The controller does not answer, or there is no scontrol or sinfo.
    """
    found = parse_scontrol_partitions(ask(["scontrol", "show", "partition"]).stdout)
    return with_nodes(found, parse_sinfo(ask(SINFO).stdout))


def with_nodes(found: Iterable[Partition], groups: Iterable[NodeGroup]) -> tuple[Partition, ...]:
    """Give partitions their nodes."""
    known = tuple(groups)
    return tuple(
        replace(one, node_groups=tuple(group for group in known if group.partition == one.name))
        for one in found
    )


def meant(found: Iterable[Partition], names: str | None) -> list[Partition]:
    """Return the partitions that a job may start in: a name, several with commas, or none."""
    asked = names.split(",") if names else ()
    return [row for row in found if (row.name in asked if asked else row.default)]


def longest_min(rows: Sequence[Partition]) -> int | None:
    """Return the longest time limit of some partitions; None: one has none, or there are none."""
    limits = [row.max_time_min for row in rows if row.max_time_min]
    return max(limits, default=None) if len(limits) == len(rows) else None


def config() -> dict[str, str]:
    """Ask Slurm for its configuration, in slurm.conf's words.

    Raises:
        CommandError: The controller does not answer, or there is no scontrol.
    """
    return parse_scontrol_config(ask(["scontrol", "show", "config"]).stdout)


def told_config() -> dict[str, str]:
    """Ask Slurm for its configuration; nothing where nobody answers."""
    try:
        return config()
    except CommandError:
        return {}


def cluster_name() -> str | None:
    """Ask for the cluster's name, by which jobs of another one with the same ids are told apart.

    None: nobody says it.
    """
    return told_config().get("ClusterName") or None


def counts_gpus(told: Mapping[str, str]) -> bool:
    """Say whether accounting would list a job's GPUs; where nothing is told, suppose so.

    Where AccountingStorageTRES has no gres/gpu, each job's list goes without.
    """
    tracked = told.get("AccountingStorageTRES", "")
    return "gres/gpu" in tracked or "gpu" not in told.get("GresTypes", "").split(",")


def keeps_accounting(told: Mapping[str, str]) -> bool:
    """Say whether there is a database that sacct could ask; where nothing is told, suppose so."""
    # "(null)" since Slurm 23.11, see slurm.conf(5).
    return told.get("AccountingStorageType") not in ("accounting_storage/none", "(null)")


def mpi_types() -> tuple[str, ...]:
    """Ask srun which kinds of MPI it can start.

    Raises:
        CommandError: There is no srun, or it finds no cluster.
    """
    result = ask(["srun", "--mpi=list"])
    return srun_mpi_types(result.stdout + "\n" + result.stderr)


def parse_scontrol_partitions(text: str) -> tuple[Partition, ...]:
    """Read the output of `scontrol show partition`, one line or several for each."""
    blocks = re.split(r"(?m)^(?=PartitionName=)", text)
    return tuple(_partition(dict(pairs(block))) for block in blocks if "PartitionName=" in block)


def parse_scontrol_config(text: str) -> dict[str, str]:
    """Read the `Name = value` lines of `scontrol show config`; None of them is interpreted."""
    rows = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, sign, value in rows if sign and name.strip()}


def parse_sinfo(text: str) -> tuple[NodeGroup, ...]:
    """Read what sinfo printed in our format; a row that cannot be read is left out."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(_node_group(row) for row in rows if len(row) == _SINFO_COLUMNS.count("|") + 1)


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read `gpu:h200:4(S:0-1),shard:8`, without the sockets and slots in brackets."""
    found = []
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        match = re.fullmatch(_GRES, item.strip())
        if match is None:
            continue
        count = int(match["count"] or 1) << 10 * _GRES_UNITS.index((match["unit"] or "").lower())
        found.append(Gres(name=match["name"], type=match["type"], count=count))
    return tuple(found)


def srun_mpi_types(text: str) -> tuple[str, ...]:
    """Read the output of `srun --mpi=list`, on whichever stream this version prints it.

    22.05 puts one type on each indented line; older ones begin each line with `srun: `; some
    versions add `specific pmix plugin versions available: pmix_v4`.
    """
    types: list[str] = []
    for line in text.splitlines():
        words = line.removeprefix("srun:").strip()
        _, listed, versions = words.partition("versions available:")
        types += [word.strip() for word in versions.split(",")] if listed else [words]
    return tuple(dict.fromkeys(word for word in types if re.fullmatch(r"[\w/-]+", word)))


def slurm_version(text: str) -> tuple[int, int, int] | None:
    """Read `slurm 22.05.8` or Debian's `slurm-wlm 22.05.8`."""
    match = re.search(_VERSION, text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def pairs(block: str) -> Iterator[tuple[str, str]]:
    """Yield the `Name=value` words of what scontrol shows."""
    for word in block.split():
        name, sign, value = word.partition("=")
        if sign:
            yield name, value


def _partition(fields: dict[str, str]) -> Partition:
    return Partition(
        name=fields["PartitionName"],
        default=fields.get("Default") == "YES",
        state=fields.get("State", "UNKNOWN"),
        max_time_min=parse_limit_min(fields.get("MaxTime", "")),
        max_nodes=_count(fields.get("MaxNodes", "")),
        nodes=nodes_or_none(fields.get("Nodes", "")) or (),
        hidden=fields.get("Hidden") == "YES",
        root_only=fields.get("RootOnly") == "YES",
        accounts=_names(fields.get("AllowAccounts", "ALL")),
        denied_accounts=_names(fields.get("DenyAccounts", "")) or (),
        groups=_names(fields.get("AllowGroups", "ALL")),
        exclusive=fields.get("OverSubscribe", fields.get("Shared")) == "EXCLUSIVE",
    )


def _names(text: str) -> tuple[str, ...] | None:
    return None if text in ("ALL", "") else tuple(text.split(","))


def _node_group(row: Iterable[str]) -> NodeGroup:
    partition, _, _, cpus, memory_mb, gres, nodes = (cell.strip() for cell in row)
    return NodeGroup(
        partition=partition,
        nodes=nodes_or_none(nodes) or (),
        cpus=_count(cpus),
        memory_mb=_count(memory_mb),
        gres=() if gres == "(null)" else parse_gres(gres),
    )


def _count(text: str) -> int | None:
    """Read a count; `8+` is the least of nodes that differ."""
    return whole_number(text.rstrip("+"))


@frozen(kw_only=True)
class Association:
    """One account a user may charge on one cluster; `partition` None is any."""

    cluster: str
    account: str
    partition: str | None
    qos: tuple[str, ...]


def associations_argv(user: str) -> tuple[str, ...]:
    """Return what asks for a user's associations."""
    columns = f"format={','.join(_ASSOCIATION_COLUMNS)}"
    return ("sacctmgr", "-nP", "show", "assoc", f"user={user}", columns)


def default_account_argv(user: str) -> tuple[str, ...]:
    """Return what asks which account Slurm takes when a job names none."""
    return ("sacctmgr", "-nP", "show", "user", user, "format=DefaultAccount")


def parse_associations(text: str) -> tuple[Association, ...]:
    """Read `cluster|account|partition|qos,qos`; other lines are left out."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(
        Association(
            cluster=row[0],
            account=row[1],
            partition=row[2] or None,
            qos=tuple(word for word in row[3].split(",") if word),
        )
        for row in rows
        if len(row) == len(_ASSOCIATION_COLUMNS) and row[1]
    )
