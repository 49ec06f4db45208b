"""The code that travels with a job, kept when the job is submitted: `code_plan` says which."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.code.project import MAX_MB, Project, part_of, read_rules
from hpckit.collections.collection import CodeRules
from hpckit.environ import own_python
from hpckit.errors import OutsideError, RequestError, disk_advice
from hpckit.files import DamagedFileError
from hpckit.frozen import frozen
from hpckit.job.program import ProgramKind
from hpckit.payload.task import Task
from hpckit.run_folders.runs import Run
from hpckit.submission.code_notes import notes_on, program_in
from hpckit.submission.code_plan import LINK, copy_in_run
from hpckit.text import in_line, plural

if TYPE_CHECKING:  # only a submission looks through the files
    from hpckit.code.files import Found
    from hpckit.code.store import Store
    from hpckit.code.tree import Tree
    from hpckit.submission.model import Submission

_MODULE = ProgramKind.MODULE
_MB = 10**6
_SHOWN = 5


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
                f"{error.strerror or error}. {disk_advice(error)} Or choose another place with "
                "--runs DIR, or submit without a copy of the code (--no-code)."
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
    script = None if source else program_in(job, found)
    left = {key: getattr(found, key) for key in ("secrets", "outward", "odd")}
    notes = [*([note] if note else ()), *notes_on(job, found, submission.place.cwd)]
    if job.program.file and not (script or source) and job.program.kind is not _MODULE:
        why = "git ignores it, or hpckit.yaml leaves it out"
        notes.append(f"{job.program.word} is not kept itself: {why}. The job runs it as it is then")
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
        package = part_of(project, project.package)
        found, too_much = _found_all(package, rules, runs, most)
        if not too_much:
            return found, f"{note}its folder {project.package.name} alone is kept"
    file = part_of(project, project.file.parent, alone=True)
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
    top = str(kept.record["project"]).partition("/")[0]
    (base / LINK).symlink_to(f"../{kept.record['store']}/trees/{kept.tree.name}/{top}")


def with_code(tasks: list[Task], submission: "Submission", kept: KeptCode | None) -> list[Task]:
    """Return tasks that run the kept code."""
    if kept is None:
        return tasks
    script, job, place = kept.record["script"], submission.job, submission.place
    # What is kept may be less than was planned, a folder in it; the job script has the planned one.
    inside = place.dir / copy_in_run(str(kept.record["project"]))
    code = place.dir / (place.copy or inside)
    # The word that names it is the last but the arguments.
    start = len(job.program.command(job.environment, own_python()[0])) - 1
    program = (start, str(inside / script)) if script and job.program.kind is not _MODULE else None
    copies = tuple(kept.tree.places())
    return [replace(row, code_dir=str(code), code_map=copies, program=program) for row in tasks]
