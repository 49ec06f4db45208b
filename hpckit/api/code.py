"""The code that a run has: what differs from the project's files now, and writing it out."""

import contextlib
import os
import shutil
from dataclasses import field
from pathlib import Path

from hpckit.code.difference import Difference, compare, unified
from hpckit.code.files import Found, TooManyError, find_files
from hpckit.code.project import Project, project_at, read_rules
from hpckit.code.tree import Tree, is_intact, read_tree, verify
from hpckit.errors import HpckitError, OutsideError, RequestError
from hpckit.files import DamagedFileError
from hpckit.frozen import frozen
from hpckit.job_spec.arguments import PATH, checked
from hpckit.paths import is_folder, typed_path
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.submission.kept_code import tree_place
from hpckit.text import in_line


@frozen(kw_only=True)
class RunCode:
    """The copy of the code that a run has.

    Attributes:
        root: the project's folder that it is a copy of. path: the copy.
        files, bytes: how many files, and bytes in them.
        alone: the program's file, where nothing else of its folder was kept.
    """

    root: Path
    path: Path
    files: int
    bytes: int
    tree: Tree = field(repr=False)  # it has a line for each file
    project: str
    runs: Path
    alone: Path | None

    @property
    def changed(self) -> bool:
        """Whether the copy itself was changed since, as far as sizes and times tell."""
        return not is_intact(self.tree)

    def difference(self) -> Difference:
        """Return which files of the project are not as they were kept.

        Raises:
            OutsideError: the project is gone, or cannot be read.
        """
        try:
            return compare(self.tree, self.project, self._now())
        except OSError as error:
            raise OutsideError(f"{self.root} cannot be read: {error.strerror}.") from error

    def diff(self, difference: Difference | None = None) -> str:
        """Return a unified diff of the copy and the project's files now; "" if they are the same.

        `difference` is for who has asked for it just now.

        Raises:
            OutsideError: as of `difference`.
        """
        found = self.difference() if difference is None else difference
        return "".join(f"{row}\n" for row in unified(self.tree, self.project, self.root, found))

    @checked(folder=PATH)
    def restore(self, folder: Path | str) -> Path:
        """Write the copy out, with modes as of new files; return the folder.

        Raises:
            RequestError: the folder is not empty, or the copy was changed. OutsideError: it cannot
            be written.
        """
        target = typed_path(folder)
        if os.path.lexists(target) and (target.is_symlink() or not _is_empty(target)):
            raise RequestError(f"{str(target)!r} is not an empty folder: name a new one.")
        beside = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
        try:
            verify(self.tree)
            _write(self.tree, self.project, beside)
            if target.exists():
                target.rmdir()
            beside.rename(target)
        except DamagedFileError as error:
            raise RequestError(f"The kept code was changed: {error}.") from error
        except OSError as error:
            raise OutsideError(
                f"The code cannot be written to {str(target)!r}: {error.strerror}."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                shutil.rmtree(beside)
        return target

    def _now(self) -> Found:
        git = None if self.alone else project_at(self.root)
        project = git or Project(
            root=self.root, git=False, file=self.alone, alone=self.alone is not None
        )
        if project.root != self.root or not is_folder(self.root):
            raise OutsideError(
                f"{self.root}, of which the run has a copy, is not a project now, so there is "
                "nothing to compare. To see the copy: hpckit code JOBID --restore NEW_FOLDER"
            )
        try:
            return find_files(project, read_rules(self.root), self.runs)
        except TooManyError as error:
            raise OutsideError(f"{self.root} has {error} now, too many to compare.") from error


def code_of(run: RunFolder) -> RunCode:
    """Return the code that a run has.

    Raises:
        RequestError: it has none, or it was changed. OutsideError: it cannot be read.
    """
    path, code = tree_place(run), run.record["code"]
    try:
        tree = read_tree(path)
    except DamagedFileError as error:
        raise RequestError(f"The kept code of run {run.run_id} was changed: {error}.") from error
    except OSError as error:
        raise OutsideError(
            f"The kept code of run {run.run_id} cannot be read: {path}: {error.strerror}."
        ) from error
    root = Path(str(code["root"]))
    return RunCode(
        root=root,
        path=path / str(code["project"]),
        files=len(tree.manifest.files),
        bytes=tree.manifest.bytes,
        tree=tree,
        project=str(code["project"]),
        runs=run.dir.parent,
        alone=root / str(code["script"] or code.get("source")) if code.get("alone") else None,
    )


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)  # noqa: PTH208
    except OSError:
        return False


def _write(tree: Tree, project: str, target: Path) -> None:
    """Copy a project of a tree; what was left out of it is not written."""
    inside = f"{project}/"
    target.mkdir(parents=True)
    for folder in sorted(row.path for row in tree.manifest.folders):
        if folder.startswith(inside):
            (target / folder.removeprefix(inside)).mkdir()
    for row in tree.manifest.files:
        if row.path.startswith(inside):
            place = target / row.path.removeprefix(inside)
            shutil.copyfile(tree.path / row.path, place, follow_symlinks=False)
            if row.mode & 0o100:
                place.chmod(place.stat().st_mode | (place.stat().st_mode & 0o444) >> 2)
    for link in tree.manifest.links:
        if link.path.startswith(inside):
            (target / link.path.removeprefix(inside)).symlink_to(link.target)


def code_changed(run: RunFolder) -> list[str]:
    """Return lines that say which files changed since a run was submitted, where that is known."""
    if not (run.record.get("code") or {}).get("tree"):
        return []
    try:
        lines = [f"code {line}" for line in code_of(run).difference().lines()]
    except HpckitError as error:
        return [f"code: what has changed is unknown: {in_line(str(error))}"]
    return [*lines, "code: --same-code runs it as it was"] if lines else []
