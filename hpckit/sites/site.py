"""A site: one cluster, as a value."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.collections import Collection, Found
from hpckit.documents import Scalar, nearest
from hpckit.environments import BARE, Environment, ad_hoc_environment, why_none
from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.paths import whole_path

if TYPE_CHECKING:
    from hpckit.sinks import Notify
    from hpckit.sites.node_rules import NodeRules
    from hpckit.sites.prometheus import Prometheus
    from hpckit.sites.site_sources import Source

# What a site changes in one rule of `templates/advice/`: variable -> value. None: the rule is off.
AdviceOverride = Mapping[str, Scalar | tuple[Scalar, ...]] | None


# What a site's link to Grafana may name in braces.
LINK_NAMES = ("jobid", "start_ms", "end_ms")


@frozen(kw_only=True)
class PartitionLimits:
    """Limits of one partition; None means the site does not say.

    Attributes:
        whole_nodes: whether a job always gets whole nodes, and is charged for them.
    """

    name: str
    max_time_min: int | None = None
    max_nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    mem_gb_per_node: int | None = None
    whole_nodes: bool | None = None


@frozen(kw_only=True)
class Costs:
    """What `hpckit report` turns GPU-hours and energy into; None: the site does not say.

    Attributes:
        gpu_hour: the price of one GPU-hour, in `currency`.
        pue: power of the whole machine room / power of the computers.
        co2_g_per_kwh: of the electricity.
    """

    gpu_hour: float | None = None
    currency: str = ""
    pue: float = 1.0
    co2_g_per_kwh: float | None = None


@frozen(kw_only=True)
class Site:
    """One cluster: its limits, how it starts ranks, where a python comes from, where runs live.

    Attributes:
        login: the name by which its login nodes are reached from outside.
        cpu_masks: for each GPU of a node, in their order, the cores next to it: a hexadecimal mask,
            as `srun --cpu-bind=mask_cpu:` takes it.
    """

    name: str
    description: str = ""
    contact: str = ""
    url: str = ""
    login: str | None = None
    identify: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    account_required: bool = False
    gpu_request: str = "gpus-per-node"
    gpu_types: Mapping[str, int] = field(default_factory=dict)
    gpu_type: str | None = None
    gpu_type_required: bool = False
    gpus_per_node: int | None = None
    cpus_per_gpu: int | None = None
    cpu_masks: tuple[str, ...] = ()
    partitions: Mapping[str, PartitionLimits] = field(default_factory=dict)
    modules: str = "none"
    environment: str = "none"
    environments: Mapping[str, Environment] = field(default_factory=dict)
    mpi: str | None = None
    srun_args: tuple[str, ...] = ()
    mpirun: str = "mpirun"
    mpirun_args: tuple[str, ...] = ()
    sbatch_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] | None = None
    setup: tuple[str, ...] = ()
    runs: str | None = None
    ledger: str | None = None
    grafana: str | None = None
    prometheus: "Prometheus | None" = None
    notify: "Notify | None" = None
    bad_nodes: "NodeRules | None" = None
    advice: Mapping[str, AdviceOverride] = field(default_factory=dict)
    costs: Costs = Costs()
    sources: "tuple[Source, ...]" = ()
    found: Found | None = None

    @property
    def path(self) -> Path:
        """Its file; the working directory for one that was made of values."""
        return self.found.path if self.found else Path()

    @property
    def partition(self) -> str | None:
        """The partition of a job that names none; None: Slurm's own default."""
        return self.defaults.get("partition")

    @property
    def time_min(self) -> int:
        """The time limit of a job that names none."""
        return self.defaults.get("time_min") or 60

    def ledgers(self, collections: Iterable[Collection]) -> tuple[str, ...]:
        """Return the folders of its ledger and of those of collections, each once.

        Raises:
            UnsetVariableError: the path of one has a variable that is not set.
        """
        named = [self.ledger, *(row.ledger for row in collections)]
        return tuple(dict.fromkeys(whole_path(word, "ledger") for word in named if word))

    def find_environment(self, word: str | None) -> Environment:
        """Return the environment a request names, or the site's default.

        Raises:
            RequestError: the word names none of the site's environments and is no venv, conda,
                uv, spack, module, apptainer, pyxis or python path; or one of its paths has a
                variable that is not set.
        """
        name = word or self.environment
        if found := self.environments.get(name):
            if found.unset:
                raise RequestError(
                    f"Environment {name!r} of site {self.name!r}: {found.unset}. "
                    "Set it, or choose another environment with --env."
                )
            return found
        if name == BARE.name:
            return BARE
        if found := ad_hoc_environment(name):
            return found
        like = "" if "/" in name else name  # no name is near to a path
        raise RequestError(
            f"Environment {name!r} is not one of site {self.name!r} and {why_none(name)}. "
            f"{nearest(like, [*self.environments, BARE.name])} "
            "Or write venv:PATH, uv:PROJECT, conda:NAME, spack:NAME, module:NAME, apptainer:IMAGE, "
            "pyxis:IMAGE."
        )
