"""What is known of a cluster, from what Slurm's programs said. Pure.

Unknown is None, and has its reason; what is not understood says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpckit.frozen import frozen
from hpckit.slurm.cluster import (
    Association,
    NodeGroup,
    Partition,
    parse_associations,
    parse_scontrol_config,
    parse_scontrol_partitions,
    parse_sinfo,
    slurm_version,
    srun_mpi_types,
    with_nodes,
)

OLDEST = (20, 11)
# The newest whose sources the readers were compared with.
NEWEST = (26, 5)


@frozen(kw_only=True)
class Reply:
    """What a program said; `text` is None where it did not answer, `why` says why."""

    asked: str
    text: str | None = None
    why: str = ""


@frozen(kw_only=True)
class Unknown:
    """Something that could not be found out."""

    what: str
    why: str


@frozen(kw_only=True)
class ModuleSystem:
    """A module system as sites spell it, and what shows that it is here.

    `active`: this shell has it; else only its files are there.
    """

    name: str
    evidence: str
    active: bool


@frozen(kw_only=True)
class Folder:
    """A folder where runs could live. `shared` is None where its file system does not tell."""

    label: str
    path: str
    file_system: str | None
    shared: bool | None

    @property
    def kind(self) -> str:
        """`known shared`, `local` or `unknown`, with the file system's type."""
        word = {True: "known shared", False: "local", None: "unknown"}[self.shared]
        return f"{word} ({self.file_system})" if self.file_system else word


@frozen(kw_only=True)
class Mpi:
    """How srun starts MPI ranks: its kinds, its own default, and the one hpckit would take."""

    kinds: tuple[str, ...] | None
    default: str | None
    chosen: str | None


@frozen(kw_only=True)
class Surroundings:
    """This machine, as far as a site depends on it; `module_names` are all that have a template."""

    hostname: str
    slurm_conf: str | None
    modules: tuple[ModuleSystem, ...]
    folders: tuple[Folder, ...]
    module_names: tuple[str, ...] = ()


@frozen(kw_only=True)
class Detected:
    """A cluster as its programs describe it; None is not known.

    Attributes:
        partitions: None where scontrol does not say; `node_groups` are empty where sinfo does not.
        hidden: partitions that sinfo --all names and scontrol does not: hidden, or not for this
            user's groups.
        nodes_known: whether sinfo answered, so that no GPU means that there is none.
        gpu_types: GPUs of one node by type, the most of any node.
        gpu_request: how jobs can ask for GPUs: gpus-per-node or gres.
        accounting: whether sacct answers.
        left_out: names no YAML should hold.
    """

    name: str | None
    version: tuple[int, int, int] | None
    partitions: tuple[Partition, ...] | None
    hidden: tuple[str, ...]
    nodes_known: bool
    gpu_types: Mapping[str, int]
    gpu_request: str | None
    associations: tuple[Association, ...] | None
    default_account: str | None
    accounting: bool
    mpi: Mpi
    here: Surroundings
    unknown: tuple[Unknown, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def accounts(self) -> tuple[str, ...]:
        """The user's accounts, the default first."""
        names = [row.account for row in self.associations or ()]
        first = [self.default_account] if self.default_account in names else []
        return tuple(dict.fromkeys(name for name in [*first, *names] if name))

    @property
    def qos(self) -> tuple[str, ...]:
        """The QOS that the user may name."""
        return tuple(dict.fromkeys(q for row in self.associations or () for q in row.qos))

    @property
    def default_partition(self) -> Partition | None:
        """The partition that Slurm itself takes."""
        return next((row for row in self.partitions or () if row.default), None)

    def document(self) -> dict[str, Any]:
        """Return what `hpckit sites detect --json` prints."""
        return {
            "name": self.name,
            "slurm_version": version_text(self.version) if self.version else None,
            "partitions": None
            if self.partitions is None
            else [
                {
                    "name": row.name, "default": row.default, "state": row.state,
                    "hidden": row.hidden, "root_only": row.root_only,
                    "max_time_min": row.max_time_min, "max_nodes": row.max_nodes,
                    "nodes": len(row.nodes), "accounts": row.accounts,
                    "gpus_per_node": row.gpus_per_node,
                }
                for row in self.partitions
            ],
            "hidden_partitions": list(self.hidden),
            "gpu_types": dict(self.gpu_types) if self.nodes_known else None,
            "gpu_request": self.gpu_request,
            "accounts": None if self.associations is None else list(self.accounts),
            "default_account": self.default_account,
            "qos": None if self.associations is None else list(self.qos),
            "accounting": self.accounting,
            "mpi": {
                "kinds": self.mpi.kinds and list(self.mpi.kinds),
                "default": self.mpi.default,
                "chosen": self.mpi.chosen,
            },
            "hostname": self.here.hostname,
            "modules": [
                {"name": row.name, "evidence": row.evidence, "active": row.active}
                for row in self.here.modules
            ],
            "places": [
                {"label": row.label, "path": row.path, "file_system": row.file_system,
                 "shared": row.shared}
                for row in self.here.folders
            ],
            "unknown": [{"what": row.what, "why": row.why} for row in self.unknown],
            "left_out": list(self.left_out),
        }  # fmt: skip


def read_answers(answers: Mapping[str, Reply], here: Surroundings) -> Detected:
    """Put together what is known of the cluster."""
    unknown = [Unknown(what=row.asked, why=row.why) for row in answers.values() if row.text is None]
    left_out: list[str] = []
    config = parse_scontrol_config(answers["config"].text or "")
    version = slurm_version(answers["version"].text or "")
    groups = parse_sinfo(answers["nodes"].text or "")
    found = _partitions(answers["partitions"], groups, left_out)
    unknown += _not_understood(answers, version, config, groups, found)
    name = config.get("ClusterName")
    return Detected(
        name=name if name and is_plain(name) else None,
        version=version,
        partitions=found,
        hidden=_hidden(groups, found, left_out),
        nodes_known=bool(groups),
        gpu_types=_gpu_types(groups),
        gpu_request=_gpu_request(config),
        associations=_associations(answers["associations"], name, left_out),
        default_account=_default_account(answers["default_account"]),
        accounting=answers["accounting"].text is not None,
        mpi=_mpi(answers["mpi"], config),
        here=here,
        unknown=tuple(unknown),
        left_out=tuple(dict.fromkeys(left_out)),
    )


def is_plain(text: str) -> bool:
    """Say whether a name is one printable word, as Slurm's own names are."""
    return bool(text) and text.isprintable() and not any(letter.isspace() for letter in text)


def _not_understood(
    answers: Mapping[str, Reply],
    version: tuple[int, int, int] | None,
    config: Mapping[str, str],
    groups: tuple[NodeGroup, ...],
    found: tuple[Partition, ...] | None,
) -> Iterable[Unknown]:
    """Yield answers that came and could not be read, and versions nobody has compared with."""
    understood = {
        "version": version,
        "config": "ClusterName" in config,
        "partitions": found,
        "nodes": groups,
        "mpi": srun_mpi_types(answers["mpi"].text or ""),
    }
    for key, value in understood.items():
        if answers[key].text is not None and not value:
            why = "it answered in a format that hpckit does not understand"
            yield Unknown(what=answers[key].asked, why=why)
    if version and not OLDEST <= version[:2] <= NEWEST:
        word = "older" if version[:2] < OLDEST else "newer"
        yield Unknown(
            what=f"Slurm {version_text(version)}",
            why=f"{word} than the versions that hpckit was compared with "
            f"({version_text(OLDEST)} to {version_text(NEWEST)}): check each value",
        )


def version_text(version: tuple[int, ...]) -> str:
    """Write (22, 5, 8) as Slurm does, 22.05.8."""
    year, month, *rest = version
    return ".".join([str(year), f"{month:02d}", *map(str, rest)])


def _partitions(
    answer: Reply, groups: tuple[NodeGroup, ...], left_out: list[str]
) -> tuple[Partition, ...] | None:
    if answer.text is None:
        return None
    found = with_nodes(parse_scontrol_partitions(answer.text), groups)
    return tuple(row for row in found if _kept(f"partition {row.name!r}", row.name, left_out))


def _hidden(
    groups: tuple[NodeGroup, ...], found: tuple[Partition, ...] | None, left_out: list[str]
) -> tuple[str, ...]:
    if found is None:
        return ()
    shown = {row.name for row in found}
    names = dict.fromkeys(row.partition for row in groups if row.partition not in shown)
    return tuple(name for name in names if _kept(f"partition {name!r}", name, left_out))


def _kept(what: str, name: str, left_out: list[str]) -> bool:
    if is_plain(name):
        return True
    left_out.append(what)
    return False


def _gpu_types(groups: tuple[NodeGroup, ...]) -> dict[str, int]:
    """Return the GPUs of one node by type, the most of any node."""
    found: dict[str, int] = {}
    for group in groups:
        for gres in group.gres:
            if gres.name == "gpu" and gres.type and is_plain(gres.type) and gres.count:
                found[gres.type] = max(gres.count, found.get(gres.type, 0))
    return dict(sorted(found.items()))


def _gpu_request(config: Mapping[str, str]) -> str | None:
    """Return how jobs can ask for GPUs: sbatch(1), --gpus-per-node needs select/cons_tres."""
    select = config.get("SelectType")
    if select is None:
        return None
    return "gpus-per-node" if select == "select/cons_tres" else "gres"


def _associations(
    answer: Reply, cluster: str | None, left_out: list[str]
) -> tuple[Association, ...] | None:
    if answer.text is None:
        return None
    rows = parse_associations(answer.text)
    return tuple(
        row
        for row in rows
        if row.cluster == (cluster or row.cluster)
        and _kept(f"account {row.account!r}", row.account, left_out)
    )


def _default_account(answer: Reply) -> str | None:
    lines = [line.strip() for line in (answer.text or "").splitlines() if line.strip()]
    return lines[0] if lines and is_plain(lines[0]) else None


def _mpi(answer: Reply, config: Mapping[str, str]) -> Mpi:
    kinds = srun_mpi_types(answer.text) if answer.text is not None else None
    return Mpi(
        kinds=kinds or None,
        default=own_default(config.get("MpiDefault", "")),
        chosen=choose_mpi(kinds or (), config),
    )


# Best known first. Any Slurm may list `cray_shasta`, as Debian's do, but only HPE Cray EX has what
# it needs.
KINDS, CRAY, CRAY_SWITCH = ("pmix", "pmi2"), "cray_shasta", "switch/hpe_slingshot"
_NONE = ("", "none", "(null)")


def own_default(text: str) -> str | None:
    """Return what srun does by itself, from MpiDefault of `scontrol show config`."""
    return None if text in _NONE else text


def choose_mpi(kinds: Sequence[str], config: Mapping[str, str]) -> str | None:
    """Return the kind hpckit takes of those that `srun --mpi=list` names; None: it knows none.

    Without `--mpi` many a Slurm starts each rank as a world of its own. `config` is what
    `scontrol show config` says.
    """
    known = (CRAY, *KINDS) if config.get("SwitchType") == CRAY_SWITCH else KINDS
    return next((kind for kind in known if kind in kinds), None)
