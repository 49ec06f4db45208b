"""Which code travels with a job, decided when the job is worked out; nothing is looked through."""

from collections.abc import Sequence
from pathlib import Path

from hpckit.code.project import Project, Source, project_at, project_of, read_rules
from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.job import Job
from hpckit.job.program import KeptFiles, ProgramKind
from hpckit.job_spec.spec import JobSpec
from hpckit.paths import is_file, is_folder
from hpckit.run_folders.runs import Run

# In a run's folder, a link into the kept tree: to the project, or the topmost folder over it.
LINK = "code"


def copy_in_run(project: str) -> str:
    """Return where a run's folder has a project, by the project's path in the kept tree."""
    return f"{LINK}/{project.partition('/')[2]}".rstrip("/")


@frozen(kw_only=True)
class CodePlan:
    """What of the code is to be kept: a project, or why there is none.

    `same_as` is a run whose kept code is taken, in place of what lies in the project now.
    `source` is a file whose project it is where the program's own does not count.
    """

    project: Project | None = None
    why_not: str = ""
    same_as: Run | None = None
    source: Path | None = None

    @property
    def keeps(self) -> bool:
        """Whether the run gets a copy of any code."""
        return self.project is not None or self.same_as is not None

    @property
    def copy(self) -> str | None:
        """Where the run's folder has the copy; None: nothing is kept."""
        if self.same_as is not None:
            return copy_in_run(str(self.same_as.record["code"]["project"]))
        return copy_in_run(self.project.name) if self.project else None

    @property
    def root(self) -> Path | None:
        """The folder of the code's project today; None: nothing is kept."""
        if self.same_as is not None:
            return Path(str(self.same_as.record["code"]["root"]))
        return self.project.root if self.project else None


def same_code(run: Run) -> CodePlan | None:
    """Return the plan that takes the code which a run has; None: it has no copy of any."""
    code = run.record.get("code") or {}
    return CodePlan(same_as=run) if code.get("tree") else None


def kept_files(plan: CodePlan | None) -> KeptFiles | None:
    """Return the copy that a job runs in place of today's files; None: it runs these.

    Raises:
        RequestError: the program's copy is gone.
    """
    run = plan.same_as if plan else None
    if run is None:
        return None
    from hpckit.submission.kept_code import tree_place  # noqa: PLC0415  # few runs take another's

    code = run.record["code"]
    copy = tree_place(run) / str(code["project"])
    script = copy / str(code["script"]) if code.get("script") else None
    if script and not is_file(script):
        raise RequestError(
            f"The kept code of run {run.run_id} is gone: {script} does not exist. "
            f"To run the code as it is now: hpckit resubmit {run.job_id}, without --same-code."
        )
    return KeptFiles(root=Path(str(code["root"])), copy=copy, script=script)


def plan_code(spec: JobSpec, job: Job, here: Path, sources: Sequence[Source] = ()) -> CodePlan:
    """Return what of a job's code is to be kept.

    `sources`: where the program is hpckit's own and runs a function, the files that this may be of;
    the first that is in a project says which is kept.

    Raises:
        ConfigError: the project's hpckit.yaml, or the user's, is wrong.
    """
    if spec.no_code:
        return CodePlan(why_not="--no-code was given")
    project, why_not = _of_sources(sources, here) if sources else _project(job, here)
    if project is None:
        return CodePlan(why_not=why_not)
    keep = read_rules(project.root).keep
    if keep is False:
        return CodePlan(why_not="hpckit.yaml says `code: {keep: false}`")
    if keep is None and job.site.defaults.get("no_code"):
        return CodePlan(why_not=f"site {job.site.name} says `defaults: {{no_code: true}}`")
    return CodePlan(project=project, source=(project.file or project.root) if sources else None)


def _of_sources(sources: Sequence[Source], here: Path) -> tuple[Project | None, str]:
    """Return the first project of these files, or why there is none."""
    for path, top in sources:
        if project := project_at(path) if is_folder(path) else project_of(path, here, top):
            return project, ""
    return None, "the function is not in a project"


def _project(job: Job, here: Path) -> tuple[Project | None, str]:
    """Return the project of a job's program, or why it has none."""
    found, program = job.workload.found if job.workload else None, job.program
    if found and found.collection.origin != "project":
        return None, f"workload {found.name} is of collection {found.collection.label()}"
    if program.kind is ProgramKind.WORD:
        return None, f"{program.word!r} is a program of the node"
    if program.kind is ProgramKind.MODULE:
        file, top = program.file, program.top
        project = project_of(file, here, top) if file else project_at(here)
        return project, f"module {program.word} is not in a project"
    return project_of(Path(program.word), here), f"{program.word} is installed, not in a project"
