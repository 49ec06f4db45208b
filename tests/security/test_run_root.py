"""Where runs live: others who may write there must not put their script in place of the user's."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hpckit.errors import OutsideError
from hpckit.owners import is_mine_alone, strangers
from hpckit.submission.folders import held_root, remove_run
from tests.conftest import FAKES, add_program

COLLEAGUE, GROUP = 61002, 61000
SUBMIT = ("submit", "ddp", "--executor=slurm", "--gpus=1")
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder below /tmp, which is root's and sticky."""
    folder = Path(tempfile.mkdtemp(prefix="hpckit-root-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def shared(folder: Path, *, mode: int, uid: int = 0, gid: int = GROUP) -> Path:
    folder.mkdir()
    os.chown(folder, uid, gid)
    folder.chmod(mode)
    return folder


@only_root
@pytest.mark.parametrize(
    ("mode", "uid", "gid", "says"),
    [
        (0o755, 0, GROUP, ""),
        (0o2775, 0, GROUP, "group 61000 may write"),
        (0o770, 0, GROUP, "group 61000 may write"),
        (0o777, 0, 0, "everybody may write"),
        (0o1777, 0, 0, ""),
        (0o3775, 0, GROUP, ""),
        (0o755, COLLEAGUE, GROUP, "belongs to user 61002"),
        (0o1777, COLLEAGUE, GROUP, "belongs to user 61002"),
        (0o775, 0, 0, ""),  # root's own group
    ],
)
@pytest.mark.parametrize("below", ["", "runs", "a/b/c"])
def test_a_root_or_parent_that_others_may_write_is_refused_before_anything_is_made(
    place, here, cli, fake_slurm, mode, uid, gid, says, below
) -> None:
    lab = shared(place / "lab", mode=mode, uid=uid, gid=gid)
    said = cli(*SUBMIT, "--runs", str(lab / below))
    if not says:
        assert said.status == 0, said.err
        return
    assert said.status == 3
    assert len(said.err.splitlines()) == 1
    assert says in said.err
    assert str(lab) in said.err
    for advice in ("--runs DIR", "chmod g-w,o-w", "chmod +t", "--skip-check shared-runs"):
        assert advice in said.err
    assert list(lab.iterdir()) == []
    assert not list(fake_slurm.glob("script-*"))
    taken = cli(*SUBMIT, "--runs", str(lab / below), "--skip-check", "shared-runs")
    assert taken.status == 0, taken.err


@only_root
def test_a_link_of_a_strangers_is_no_way_to_the_runs(place: Path) -> None:
    sticky = shared(place / "sticky", mode=0o1777)
    (place / "mine").mkdir()
    (sticky / "runs").symlink_to(place / "mine")
    assert strangers(sticky / "runs") == ""
    os.lchown(sticky / "runs", COLLEAGUE, GROUP)
    assert strangers(sticky / "runs") == f"{sticky / 'runs'} belongs to user 61002"
    far = shared(place / "far", mode=0o775)
    (place / "link").symlink_to("sticky/../far")
    assert strangers(place / "link" / "runs") == f"group 61000 may write {far}"
    (place / "loop").symlink_to("loop")
    assert strangers(place / "loop") == ""  # opening it says what is wrong
    with pytest.raises(OutsideError, match="Too many levels"), held_root(place / "loop"):
        pass


def test_an_access_list_is_writers_too(tmp_path: Path) -> None:
    import struct

    folder = tmp_path / "x"
    folder.mkdir(mode=0o755)
    rows = [(1, 7, -1), (2, 7, COLLEAGUE), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, perm, who & 0xFFFFFFFF) for tag, perm, who in rows
    )
    try:
        os.setxattr(folder, "system.posix_acl_access", acl)
    except OSError as error:
        assert error.errno == 95  # noqa: PT017  # this file system has none: nobody is on one
        return
    assert not is_mine_alone(folder, folder.stat())
    assert strangers(folder) == f"who is on its access list may write {folder}"


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o022, 0o077])
def test_what_is_made_is_never_writable_by_others(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with held_root(tmp_path / "a" / "runs") as root:
            root.make("r-1")
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a" / "runs", tmp_path / "a" / "runs" / "r-1"):
        assert path.stat().st_mode & 0o777 == 0o755 & ~umask


def test_only_what_was_made_is_removed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with held_root(tmp_path / "new" / "runs") as root:
        for name in ("r_0", "r_1", "r_2"):
            root.make(name)
        with root.opened("r_0") as folder:
            (folder / "deep" / "er").mkdir(parents=True)
            (folder / "link").symlink_to(tmp_path)
        root.path.joinpath("r_1").rename(tmp_path / "away")
        root.path.joinpath("r_1").mkdir()
        root.path.joinpath("r_1", "checkpoint").touch()
        root.path.joinpath("r_2").rename(tmp_path / "gone")
        root.path.joinpath("r_2").symlink_to(tmp_path)
        for name in ("r_1", "r_2"):
            with pytest.raises(OSError), root.opened(name):
                pass
        root.remove()
        assert sorted(path.name for path in root.path.iterdir()) == ["r_1", "r_2"]
    assert (tmp_path / "precious").exists()
    assert (tmp_path / "new" / "runs" / "r_1" / "checkpoint").exists()
    with held_root(tmp_path / "newer" / "runs") as root:
        root.let_git_ignore()
        root.make("r")
        root.remove()
    assert not (tmp_path / "newer").exists()
    (tmp_path / "own").mkdir()
    with held_root(tmp_path / "own") as root:
        root.make("r")
        root.remove()
    assert (tmp_path / "own").is_dir()  # it was there before


def test_git_ignores_a_folder_of_runs_that_hpckit_made(tmp_path: Path) -> None:
    git = partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True, text=True)
    git(["git", "init", "-q"])
    with held_root(tmp_path / "runs") as root:
        root.let_git_ignore()
        root.make("r_1")
        (root.path / "r_1" / "run.json").touch()
    assert not git(["git", "status", "--porcelain", "-uall"]).stdout
    with held_root(tmp_path / "runs") as root:
        root.let_git_ignore()
        root.make("r_2")
    (tmp_path / "runs" / ".gitignore").write_text("r_1\n")  # the user's own from now on
    for name in ("r_1", "r_2"):
        remove_run(tmp_path / "runs" / name)
    assert os.listdir(tmp_path / "runs") == [".gitignore"]
    (tmp_path / "own").mkdir()
    with held_root(tmp_path / "own") as root:
        root.let_git_ignore()
        root.make("r")
    assert os.listdir(tmp_path / "own") == ["r"]  # it was there before


def test_a_place_that_cannot_be_made_is_an_outside_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OutsideError, match=r"entered: Not a directory\. Choose another"),
        held_root(tmp_path / "file" / "runs"),
    ):
        pass


@only_root
def test_a_trials_folder_is_removed_if_it_is_ones_own(place: Path) -> None:
    for name, uid in (("mine", 0), ("theirs", COLLEAGUE)):
        (place / "runs" / name).mkdir(parents=True)
        (place / "runs" / name / "x").touch()
        os.chown(place / "runs" / name, uid, GROUP)
        remove_run(place / "runs" / name)
    assert [path.name for path in (place / "runs").iterdir()] == ["theirs"]
    shutil.rmtree(place / "runs" / "theirs")
    (place / "runs" / "last").mkdir()
    remove_run(place / "runs" / "last")
    assert not (place / "runs").exists()


SWAP = """#!/bin/bash
if [ "${{1-}}" = --version ]; then echo "slurm-wlm 22.05.8"; exit 0; fi
cd {runs}
for run in ddp-*; do
    mv "$run" "away-$run"
    mkdir "$run"
    cp -r "away-$run/submitit" "$run"
    echo '#!/bin/bash' >"$run/job.sh"
    echo 'echo evil' >>"$run/job.sh"
    echo 'weeks of work' >"$run/checkpoint"
done
{then} {fakes}/sbatch "$@"
"""


@pytest.mark.parametrize("then", ["exec", "exit 1"])
def test_a_folder_put_in_a_runs_place_gives_no_script_and_loses_nothing(
    here: Path, cli, fake_slurm: Path, then: str
) -> None:
    """What was done in 10 of 10 tries, here at the worst moment: between job.sh and sbatch."""
    (here / "runs").mkdir()
    program = SWAP.format(runs=here / "runs", then=then, fakes=FAKES)
    add_program(here.parent / "bin" / "sbatch", program)
    said = cli(*SUBMIT)
    assert said.status == 3, said.err
    for script in fake_slurm.glob("script-*"):
        assert "evil" not in script.read_text()
        assert "hpckit.submission.in_job" in script.read_text()
    (checkpoint,) = (here / "runs").glob("ddp-*/checkpoint")
    assert checkpoint.read_text() == "weeks of work\n"
    if then == "exec":  # Slurm had taken the job: it is taken back
        assert '["scancel", "1001"]' in (fake_slurm / "calls.jsonl").read_text()
