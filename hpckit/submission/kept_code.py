"""The code that travels with a job, kept when the job is submitted: `code_plan` says which."""

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.code.project import MAX_MB, Project, read_rules
from hpckit.collections.collection import CodeRules
from hpckit.environ import own_python
from hpckit.errors import OutsideError, RequestError
from hpckit.files import DamagedFileError, open_regular
from hpckit.frozen import frozen
from hpckit.job import Job
from hpckit.job.program import ProgramKind
from hpckit.paths import is_there
from hpckit.payload.task import Task
from hpckit.runs import Run
from hpckit.submission.handover import ARRAY_RECORD
from hpckit.text import in_line, listed, plural

if TYPE_CHECKING:  # only a submission looks through the files
    from hpckit.code.files import Found
    from hpckit.code.store import Store
    from hpckit.code.tree import Tree
    from hpckit.submission.model import Submission

# In a run's folder, a link to its project in the kept tree.
LINK = "code"
_MODULE = ProgramKind.MODULE
_MB = 10**6
_SHOWN = 5
_SHELLS = (".sh", ".bash")
_MOST_SHELL = 1 << 16
# Names with a folder or an ending; words without are seldom files.
_NAME = r"(?<![\w/$.{-])[\w.][\w-]*(?:[./][\w.-]+)+"


@frozen(kw_only=True)
class KeptCode:
    """What was kept: a tree, what the record says of it, and what people are told."""

    tree: "Tree"
    record: dict[str, Any]
    notes: tuple[str, ...] = ()


@contextmanager
def keeping(submission: "Submission", runs: Path) -> Iterator[KeptCode | None]:
    """Keep a job's code in a folder of runs, and keep it there until the run needs it itself.

    Raises:
        OutsideError: the code cannot be read, or there is no room. RequestError: it is too large.
    """
    plan = submission.code
    if not plan.keeps:
        yield None
        return
    from hpckit.code.store import Store  # noqa: PLC0415  # a dry run keeps nothing

    store, kept = Store(runs), None
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(store.shared())
            if plan.same_as:
                kept = _same(plan.same_as, store)
            elif plan.project:
                kept = _new(submission, plan.project, store, runs)
        except OSError as error:
            raise OutsideError(
                f"The code cannot be kept in {store.path}: "
                f"{error.strerror or error}. Free some space, choose another place with --runs "
                "DIR, or submit without a copy of the code: --no-code."
            ) from error
        yield kept


def check_code(submission: "Submission") -> None:
    """Look at the code as `keeping` does, and keep nothing.

    Raises:
        OutsideError: it cannot be read. RequestError: it is too large, or a copy of it was changed.
    """
    plan, runs = submission.code, submission.place.dir.parent
    if plan.same_as:
        from hpckit.code.tree import verify  # noqa: PLC0415  # as below

        with _kept_tree(plan.same_as) as tree:
            verify(tree)
    elif plan.project:
        _looked(plan.project, runs)


def _new(submission: "Submission", project: Project, store: "Store", runs: Path) -> KeptCode:
    job = submission.job
    found, note = _looked(project, runs)
    tree = store.keep(found)
    name, root = tree.manifest.roots[0]
    source = submission.code.source
    script = None if source else _script(job, found)
    left = {key: getattr(found, key) for key in ("secrets", "outward", "odd")}
    notes = [*([note] if note else ()), *_notes(found)]
    notes += read_later(job, found, submission.place.cwd)
    notes += _edited_elsewhere(job, found)
    if job.program.file and not (script or source) and job.program.kind is not _MODULE:
        notes.append(f"{job.program.word} is ignored by git, so that it is not kept itself")
    if tree.copied:
        notes.append(f"the file system of {runs} knows no hard links: each version is a copy")
    record = {
        "tree": tree.name,
        "store": store.path.name,
        "root": root,
        "project": name,
        "script": script,
        "source": os.path.relpath(source, root) if source else None,
        "files": len(tree.manifest.files),
        "bytes": tree.manifest.bytes,
        "left_out": {key: rows for key, rows in left.items() if rows},
        "alone": found.project.alone,
    }
    return KeptCode(tree=tree, record=record, notes=tuple(notes))


def _looked(project: Project, runs: Path) -> "tuple[Found, str]":
    """Look a project through; of a folder outside git that is too large take less.

    That is a module's package, if this is not too large itself; else the program's file alone.
    """
    from hpckit.code.files import find_files  # noqa: PLC0415  # as above

    rules = read_rules(project.root)
    most = (rules.max_mb or MAX_MB) * _MB
    found, much = _found_all(project, rules, runs, most)
    if not much:
        return found, ""
    if project.git or project.file is None:
        raise _too_large(found, much, most)
    note = f"{project.root} has {much} and is not a git work tree: "
    if project.package:
        package = replace(project, root=project.package, package=None)
        found, too_much = _found_all(package, rules, runs, most)
        if not too_much:
            return found, f"{note}its folder {project.package.name} alone is kept"
    file = replace(project, root=project.file.parent, package=None, alone=True)
    return find_files(file, rules, runs), f"{note}the program's file alone is kept"


def _found_all(project: Project, rules: CodeRules, runs: Path, most: int) -> "tuple[Found, str]":
    """Return what a project has, and how much that is if it is more than `most` bytes or files."""
    from hpckit.code.files import TooManyError, find_files  # noqa: PLC0415  # as above

    try:
        found = find_files(project, rules, runs)
    except TooManyError as error:
        return error.found, f"over {error.found.met:,} files"
    much = found.bytes > most and not project.alone
    return found, f"{found.bytes / _MB:.0f} MB of files" if much else ""


def _too_large(found: "Found", what: str, most: int) -> RequestError:
    from collections import Counter  # noqa: PLC0415  # an error alone needs it

    from hpckit.gitfiles.index import MAX_FILES  # noqa: PLC0415  # likewise

    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for row in found.files:
        top = row.path.partition("/")[0] + ("/" if "/" in row.path else "")
        sizes[top] += row.size
        counts[top] += 1
    largest = ", ".join(
        f"{in_line(name)} ({size / _MB:.1f} MB, {counts[name]:,} {plural('file', counts[name])})"
        for name, size in sizes.most_common(_SHOWN)
    )
    return RequestError(
        f"The code of {found.project.root} is not kept: it is {what}, and at most {most // _MB} MB "
        f"and {MAX_FILES:,} files are. The largest are {largest}. Name what is not code in "
        ".gitignore, or in hpckit.yaml there: `code: {exclude: [...]}` (or a larger `max_mb`); or "
        "submit without a copy of the code: --no-code."
    )


def _script(job: Job, found: "Found") -> str | None:
    """Return where the program lies in its project; None where it is not kept."""
    file = job.program.file
    if file is None:
        return None
    try:
        path = str(Path(os.path.realpath(file)).relative_to(found.project.root))
    except ValueError:
        return None
    return path if any(row.path == path for row in found.files) else None


def _notes(found: "Found") -> list[str]:
    """Say in short what is not kept although one may think so."""
    rows = (
        ("looks like a secret", found.secrets),
        ("leads out of the project", found.outward),
        ("is neither a file nor a folder", found.odd),
    )
    said = [f"{_first(paths)} ({why})" for why, paths in rows if paths]
    return [f"not kept with the code: {'; '.join(said)}"] if said else []


def read_later(job: Job, found: "Found", cwd: str) -> list[str]:
    """Say which files of the code the job takes from the project, not from the copy.

    These are files that an argument or a shell script names: they are found by the working
    directory `cwd`, which stays the folder of submission.
    """
    words = [*job.command[len(job.command) - job.own_args :], *_shell_words(job)]
    here, kept = os.path.realpath(cwd), {row.path for row in found.files} - {_script(job, found)}
    places = (os.path.join(here, word.rpartition("=")[2]) for word in words)  # noqa: PTH118
    inside = (os.path.relpath(place, found.project.root) for place in places)
    named = {path: None for path in inside if path in kept}
    if not named:
        return []
    return [
        f"{_first([*named])} will be read as it is when the job runs, not as it is now. "
        "The copy is below $HPCKIT_CODE_DIR."
    ]


def _edited_elsewhere(job: Job, found: "Found") -> list[str]:
    """Say which packages the job imports from folders outside the project that may be edited."""
    from hpckit.submission.editable import editable_imports  # noqa: PLC0415  # as above

    places = editable_imports(found, job.environment, own_python()[0])
    if not places:
        return []
    named = _first([f"{name} ({place})" for name, place in places.items()])
    return [
        f"imported as it is when the job runs, not as it is now: {named}. An editable install "
        "outside the project is not kept with the code."
    ]


def _shell_words(job: Job) -> list[str]:
    """Return what may be names of files in a shell script that does not know its copy."""
    file = job.program.file
    if file is None or Path(file).suffix not in _SHELLS:
        return []
    try:
        with open_regular(Path(file)) as stream:
            text = stream.read(_MOST_SHELL).decode(errors="replace")
    except (OSError, DamagedFileError):  # the node will say so
        return []
    if "HPCKIT_CODE_DIR" in text:
        return []
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [word for line in lines for word in re.findall(_NAME, line)]


def _first(paths: list[str]) -> str:
    return in_line(listed(paths, _SHOWN))


def _same(run: Run, store: "Store") -> KeptCode:
    """Take the code that a run has.

    Raises:
        RequestError: it has none, or it was changed since.
    """
    with _kept_tree(run) as kept:
        tree = store.adopt(kept)
    code = run.record["code"]
    names = ("root", "project", "script", "files", "bytes", "left_out", "alone")
    record = {"tree": tree.name, "store": store.path.name, **{key: code[key] for key in names}}
    record["source"] = code.get("source")
    return KeptCode(tree=tree, record=record)


@contextmanager
def _kept_tree(run: Run) -> Iterator["Tree"]:
    """Give the tree of a run's code; its errors, and those of looking at it, name the run."""
    from hpckit.code.tree import read_tree  # noqa: PLC0415  # as above

    try:
        yield read_tree(tree_place(run))
    except DamagedFileError as error:
        raise RequestError(f"The kept code of run {run.run_id} was changed: {error}.") from error
    except FileNotFoundError as error:
        raise RequestError(f"The kept code of run {run.run_id} is gone: {error}.") from error


def tree_place(run: Run) -> Path:
    """Return where the kept tree of a run is.

    Raises:
        RequestError: it has none.
    """
    code = run.record.get("code") or {}
    if not code.get("tree"):
        why = code.get("not_kept") or "it was submitted by an hpckit that kept none"
        raise RequestError(f"Run {run.run_id} has no copy of its code: {why}.")
    return run.dir.parent / str(code["store"]) / "trees" / str(code["tree"])


def link_code(base: Path, kept: KeptCode) -> None:
    """Let a run's folder lead to its code.

    Raises:
        OSError: it cannot be written.
    """
    inside = f"../{kept.record['store']}/trees/{kept.tree.name}/{kept.record['project']}"
    (base / LINK).symlink_to(inside)


def with_code(tasks: list[Task], submission: "Submission", kept: KeptCode | None) -> list[Task]:
    """Return tasks that run the kept code."""
    if kept is None:
        return tasks
    code, script, job = submission.place.dir / LINK, kept.record["script"], submission.job
    # The word that names it is the last but the arguments.
    start = len(job.program.command(job.environment, own_python()[0])) - 1
    copies = tuple((root, str(kept.tree.path / name)) for name, root in kept.tree.manifest.roots)
    program = (start, str(code / script)) if script and job.program.kind is not _MODULE else None
    return [replace(row, code_dir=str(code), code_map=copies, program=program) for row in tasks]


def needed_trees(runs: Path, going: Collection[str] = ()) -> set[str]:
    """Return the names of the trees that runs in a folder lead to, but for those that are `going`.

    Raises:
        OSError: it cannot be read.
    """
    names = [entry for entry in os.listdir(runs) if not entry.startswith(".")]  # noqa: PTH208
    left = {*names} - {*going}
    found = set()
    for name in names:
        with contextlib.suppress(OSError):  # no run, or one without a copy of its code
            tree = Path(os.readlink(runs / name / LINK)).parent.name  # noqa: PTH115
            # The link of an array is in the folder of the whole.
            if name in left and (_is_alone(runs / name) or _has_task(name, left)):
                found.add(tree)
    return found


def _is_alone(folder: Path) -> bool:
    return not is_there(folder / ARRAY_RECORD)


def _has_task(name: str, names: Collection[str]) -> bool:
    return any(other.startswith(f"{name}_") for other in names)


def code_folder(runs: Path) -> Path:
    """Return where the code of runs in a folder is kept."""
    from hpckit.code.store import Store  # noqa: PLC0415  # as above

    return Store(runs).path


def unneeded(runs: Path, going: Collection[str] = ()) -> int | None:
    """Return the bytes of kept code that no run needs; None: there is none, or it cannot be told.

    `going` are the names of runs that are about to be removed.
    """
    from hpckit.code.store import Store  # noqa: PLC0415  # as above

    store = Store(runs)
    with contextlib.suppress(OSError):
        if store.path.is_dir():
            found = store.unneeded(lambda: needed_trees(runs, going))
            return found.size if found and (found.trees or found.rest) else None
    return None


def drop_unneeded(runs: Path) -> int | None:
    """Remove kept code that no run needs, and return its bytes; None: somebody submits now.

    Raises:
        OSError: something cannot be removed.
    """
    from hpckit.code.store import Store  # noqa: PLC0415  # as above

    store = Store(runs)
    if not store.path.is_dir():
        return 0
    return store.remove(lambda: needed_trees(runs))
