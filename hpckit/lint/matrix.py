"""Plans that between them use every branch of the built-in templates."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hpckit.environments import Environment, EnvironmentKind
from hpckit.job.job import Job, Machine
from hpckit.job.resolve import resolve
from hpckit.job.spec import JobSpec
from hpckit.launchers import LAUNCHERS
from hpckit.sites import MODULE_SYSTEMS, Partition, Site

_ENVIRONMENTS = (
    Environment(name="none", kind=EnvironmentKind.NONE),
    Environment(name="mods", kind=EnvironmentKind.MODULES, load=("A/1", "B/2-x"), use=("/m o d",)),
    Environment(name="venv", kind=EnvironmentKind.VENV, path="/home/a b/venv", load=("Python/3",)),
    Environment(name="conda", kind=EnvironmentKind.CONDA, path="torch"),
    Environment(name="conda2", kind=EnvironmentKind.CONDA, path="/c", conda_init="/opt/conda.sh"),
    Environment(name="box", kind=EnvironmentKind.APPTAINER, path="/img/it's.sif", binds=("/proj",)),
)
_FULL = Site(
    name="lint",
    description="a site with everything",
    account="acct",
    partition="gpu",
    qos="normal",
    gpu_types={"A100": 4},
    gpu_type="A100",
    partitions={"gpu": Partition(name="gpu", max_time_min=600)},
    modules="lmod",
    environments={row.name: row for row in _ENVIRONMENTS},
    mpi="pmix",
    srun_args=("--cpu-bind=cores",),
    env={"OMP_NUM_THREADS": "4", "SPACED": "a b"},
    setup=("umask 027",),
)


def matrix(template: str) -> Iterator[tuple[str, Job]]:
    """Yield plans that between them use every branch of the built-in templates."""
    script = str(Path(__file__))
    base = JobSpec(target="ddp", script=script, template=template, nodes=2, gpus=4)
    sites = [replace(_FULL, modules=system) for system in MODULE_SYSTEMS if system != "none"]
    sites.append(Site(name="plain", description="a site with nothing"))
    for site in sites:
        for environment in site.environments or ("none",):
            yield f"{site.modules}, {environment}", _plan(replace(base, env=environment), site)
    variants = {
        "serial": replace(base, target="serial", nodes=1, gpus=0),
        "array": replace(base, array=("lr=0.1,a b",), parallel=1),
        "odd name": replace(base, name="it's $(odd) \"name\" `x`"),
        "everything": replace(
            base, mem_gb=8, cpus_per_task=2, constraint="a&b", reservation="r", exclude="n[1-2]",
            max_requeues=2, args=("--text", "two\nlines; $(no)"),
        ),
    }  # fmt: skip
    for case, spec in variants.items():
        yield case, _plan(spec, _FULL)
    for launcher in LAUNCHERS:
        target = "mpi" if launcher == "mpirun" else "ddp"
        yield launcher, _plan(replace(base, target=target, launcher=launcher), _FULL)
    yield "local", _plan(base, _FULL, Machine())


def _plan(spec: JobSpec, site: Site, machine: Machine | None = None) -> Job:
    return resolve(spec, site, None, python=sys.executable, machine=machine)
