"""What is known of a cluster, and what is not: unknown is None, and has its reason."""

from collections.abc import Mapping
from dataclasses import dataclass

from hpckit.slurm.accounts import Association
from hpckit.slurm.cluster import Partition


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a program said; `text` is None where it did not answer, `why` says why."""

    asked: str
    text: str | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """Something that could not be found out."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleSystem:
    """A module system as sites spell it, and what shows that it is here.

    `active`: this shell has it; else only its files are there.
    """

    name: str
    evidence: str
    active: bool


@dataclass(frozen=True, kw_only=True, slots=True)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Mpi:
    """How srun starts MPI ranks: its kinds, its own default, and the one hpckit would take."""

    kinds: tuple[str, ...] | None
    default: str | None
    chosen: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """This machine, as far as a site depends on it; `module_names` are all that have a template."""

    hostname: str
    slurm_conf: str | None
    modules: tuple[ModuleSystem, ...]
    folders: tuple[Folder, ...]
    module_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
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
