"""Places that another user can lead elsewhere, or has filled: links, folders above, the cache."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.collections import contents, trust
from hpckit.collections.contents import remembered_hashes, walk
from hpckit.collections.pinned import refused_place
from hpckit.collections.search import _site_wide
from tests.conftest import Answer, write_files
from tests.unit.lab import make_lab, make_repository, version

Cli = Callable[..., Answer]
MALLORY, USERS = 61003, 61000
EVIL = version("evil")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


def give(path: Path, uid: int = MALLORY) -> Path:
    for each in (path, *path.rglob("*")):
        os.chown(each, uid, uid, follow_symlinks=False)
    return path


@pytest.fixture
def shared(here: Path) -> Path:
    """A folder as /tmp: everybody may add, nobody replace what is another's."""
    (here.parent / "shared").mkdir()
    (here.parent / "shared").chmod(0o1777)
    return here.parent / "shared"


@pytest.fixture
def lab(here: Path) -> Path:
    return make_lab(here.parent / "proj" / "lab")


def link(path: Path, target: Path, uid: int = MALLORY) -> Path:
    path.symlink_to(target)
    os.chown(path, uid, uid, follow_symlinks=False)
    return path


def refused(cli: Cli, why: str) -> None:
    """Nothing of the collection is used: neither by a listing nor by a job."""
    answer = cli("templates", "list")
    assert (answer.status, len(answer.err.splitlines())) in ((0, 1), (2, 1)), answer.err
    assert why in answer.err
    answer = cli("submit", "ddp", "--dry-run")
    assert (answer.status, answer.out) == (2, ""), answer.err


def test_a_strangers_link_to_a_good_collection_is_refused(here, cli, shared, lab) -> None:
    for place in (link(shared / "current", lab), link(shared / "proj", lab.parent) / "lab"):
        answer = cli("collections", "add", str(place))
        assert (answer.status, answer.out) == (2, "")
        assert "a link on the way, belongs to 61003" in answer.err or "denied" in answer.err


def test_ones_own_link_publishes_the_next_version(here, cli, shared, lab) -> None:
    place = link(shared / "current", lab, uid=0)
    assert cli("collections", "add", str(place)).status == 0
    assert "LAB=one" in cli("submit", "lab-hello", "--dry-run").out
    place.unlink()
    link(place, lab)  # its place, taken by another
    refused(cli, str(place))


def test_a_named_folder_behind_a_strangers_link_is_refused(
    here, cli, shared, lab, monkeypatch
) -> None:
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(link(shared / "current", lab)))
    refused(cli, str(shared / "current"))


def test_a_link_beside_the_users_work_is_no_template_of_theirs(here, cli, shared) -> None:
    """The victim works in /tmp, where a stranger has put `templates`."""
    evil = make_lab(here.parent / "evil")  # root's own: by its own owner it would be fine
    here.chmod(0o1777)
    link(here / "templates", evil / "templates")
    refused(cli, "templates belongs to 61003")


def test_members_of_a_scratchs_group_are_strangers_there(here, monkeypatch) -> None:
    monkeypatch.setattr(trust, "_is_member", lambda uid, gid: gid == USERS)
    os.chown(here, 0, USERS)
    make_lab(here)
    give(here / "templates")
    here.chmod(0o2775)
    assert refused_place(here, "project") is None  # a group's own folder
    here.chmod(0o3777)
    assert "belongs to 61003" in refused_place(here, "project").why


def test_what_may_not_be_read_hides_nothing_beside_it(here: Path) -> None:
    for folder in (*here.parents, here):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    here.chmod(0o1777)
    give(make_lab(here))
    os.chown(here, 0, 0)
    for name in ("templates", "workloads"):  # whichever is looked at first
        (here / name).chmod(0o700)
        assert "belongs to 61003" in as_user(61004, lambda: refused_place(here, "project").why)
        (here / name).chmod(0o755)


def test_what_is_for_all_users_and_closed_to_them_is_not_passed_over(here: Path) -> None:
    for folder in (*here.parents, here):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    make_lab(here / "etc")

    def told() -> str:
        return next(_site_wide(here / "etc", None)).label()

    for name in ("templates/sites", "templates", "workloads", "."):
        (here / "etc" / name).chmod(0o700)
        why = as_user(61004, lambda: next(_site_wide(here / "etc", None)).why)
        assert "cannot be read. Root can let all users read it: chmod -R a+rX" in why, name
        (here / "etc" / name).chmod(0o755)
    assert as_user(61004, told) == "lab (site-wide)"


def as_user(uid: int, ask: Callable[[], str]) -> str:
    """Ask as another user, who is stopped by modes as root is not."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        try:
            os.write(write, ask().encode())
        except BaseException as error:  # noqa: BLE001  # it is told, and fails the test
            os.write(write, f"TRACEBACK {error!r}".encode())
        os._exit(0)
    os.close(write)
    os.wait()
    with os.fdopen(read) as stream:
        return stream.read()


@pytest.mark.parametrize("mode", [0o755, 0o1755])
def test_a_folder_above_that_is_a_strangers_is_refused(here, cli, lab, mode: int) -> None:
    assert cli("collections", "add", str(lab)).status == 0
    os.chown(lab.parent, MALLORY, MALLORY)
    lab.parent.chmod(mode)
    refused(cli, f"{lab.parent}, above it, belongs to 61003")
    assert cli("collections", "add", str(lab)).status == 2
    assert cli("collections", "add", "--trust", str(lab)).status == 0


def test_a_planted_pycache_that_all_can_write_is_refused(here, cli, lab) -> None:
    cli("collections", "add", str(lab))
    folder = lab / "workloads" / "lab-hello" / "__pycache__"
    folder.mkdir()
    cli("collections", "verify")
    assert cli("submit", "lab-hello", "--dry-run").status == 0
    folder.chmod(0o777)
    refused(cli, f"everybody can write to {folder}")
    folder.chmod(0o755)
    (folder / "hello.cpython-311.pyc").touch()
    give(folder)
    refused(cli, "__pycache__ belongs to 61003")


def test_a_strangers_lock_file_is_neither_synced_nor_updated(here, cli) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    cli("collections", "add", f"git+file://{repo}", "--project")
    shutil.rmtree(here.parent / "home" / ".cache")
    here.chmod(0o1777)
    os.chown(here / "hpckit.lock", MALLORY, MALLORY)
    for word in ("sync", "update", "verify", "diff", "remove"):
        answer = cli("collections", word, *(["lab"] if word in ("diff", "remove") else []))
        assert (answer.status, len(answer.err.splitlines())) == (2, 1), (word, answer)
        assert "hpckit.lock belongs to 61003" in answer.err
    assert not (here.parent / "home" / ".cache").exists()


def test_a_file_without_end_is_refused_before_it_is_read(here, cli, lab) -> None:
    with (lab / "templates" / "big").open("wb") as stream:
        stream.truncate(1 << 43)
    answer = cli("collections", "add", str(lab))
    assert (answer.status, "or 1024 MiB, in templates/ and workloads/" in answer.err) == (2, True)


def test_a_workload_that_all_can_write_does_not_hide_behind_many_files(here, cli) -> None:
    make_lab(here)
    data = here / "workloads" / "lab-data"
    data.mkdir()
    for number in range(2100):
        (data / f"{number}").touch()
    (here / "workloads" / "lab-hello").rename(here / "workloads" / "zz")
    assert refused_place(here, "project") is None
    (here / "workloads" / "zz").chmod(0o777)
    assert "everybody can write" in refused_place(here, "project").why


@pytest.mark.parametrize("origin", ["project", "user"])
def test_what_nobody_looked_at_is_refused(here, monkeypatch, origin) -> None:
    make_lab(here)
    monkeypatch.setattr(contents, "_MOST", 5)
    row = refused_place(here, origin)
    assert "too many to check them all" in row.why
    assert row.provides is None


def test_folders_deeper_than_pythons_stack_end_no_command(here, cli) -> None:
    make_lab(here)
    deepest = here / "templates"
    for _ in range(1200):
        deepest /= "d"
        os.mkdir(deepest)
    said = cli("workloads", "list")
    assert said.status == 0
    assert "60 folders deep" in said.err
    assert cli("collections", "add", str(here)).status == 2
    subprocess.run(["rm", "-r", here / "templates"], check=True)  # pytest's own removal recurses


@pytest.mark.long
def test_a_script_without_end_is_neither_hashed_nor_parsed_whole(here, cli) -> None:
    make_lab(here)
    for name in ("hello.py", "more.sh"):
        with (here / "workloads" / "lab-hello" / name).open("wb") as stream:
            stream.truncate(1 << 43)
    assert cli("submit", "lab-hello", "--gpus=0", "--dry-run").status == 0
    answer = cli("templates", "lint")
    assert (answer.out + answer.err).count("8796093022208 bytes") == 2, answer


# The cache: what is in it is used, so it must be one's own.


def plant_cache(here: Path, folder: Path) -> Path:
    """Fill another cache with a checkout that was changed, and a memory that says it was not."""
    shutil.copytree(here.parent / "home" / ".cache", folder, symlinks=True)
    for path in folder.glob("hpckit/collections/*/*/templates/slurm/base.sh.j2"):
        path.write_text(next(iter(EVIL.values())))
    (checkout,) = (
        path for path in folder.glob("hpckit/collections/*/*") if (path / "hpckit.yaml").exists()
    )
    (folder / "hpckit" / "hashes").mkdir(exist_ok=True)
    cache = folder / "hpckit"
    honest = remembered_hashes(checkout, walk(checkout), cache)
    (memory,) = [
        path for path in (cache / "hashes").iterdir() if str(path.stat().st_ino) and
        json.loads(path.read_text()).get("templates/slurm/base.sh.j2", [0, 0])[1]
        == honest["templates/slurm/base.sh.j2"]
    ]  # fmt: skip
    lies = json.loads(memory.read_text())
    pinned = json.loads((here.parent / "home" / ".config/hpckit/hpckit.lock").read_text())
    for name, value in pinned["collections"][0]["files"].items():
        lies[name][1] = value
    memory.write_text(json.dumps(lies))
    return folder


def foreign(folder: Path) -> None:
    give(folder)


def open_to_all(folder: Path) -> None:
    (folder / "hpckit").chmod(0o777)


def under_a_strangers_link(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    link(folder, folder.with_name("real"))


def of_a_group(folder: Path) -> None:
    os.chown(folder / "hpckit" / "collections", 0, USERS)
    (folder / "hpckit" / "collections").chmod(0o775)


HOW = [foreign, open_to_all, under_a_strangers_link, of_a_group]


@pytest.mark.parametrize("how", HOW, ids=[row.__name__ for row in HOW])
def test_a_cache_that_others_can_fill_is_not_believed(
    here, cli, shared, monkeypatch, how: Callable[[Path], None]
) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    cli("collections", "add", f"git+file://{repo}")
    assert "LAB=one" in cli("submit", "lab-hello", "--dry-run").out
    cache = plant_cache(here, shared / "cache")
    how(cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    before = sorted(cache.rglob("*"))
    refused(cli, "Remove their write permission (chmod go-w), or set XDG_CACHE_HOME")
    for words in (("update",), ("sync",), ("add", f"git+file://{repo}@v1")):
        answer = cli("collections", *words)
        assert (answer.status, len(answer.err.splitlines())) == (2, 1), (words, answer)
    assert cli("collections", "verify").status == 1
    assert sorted(cache.rglob("*")) == before


def test_a_memory_of_hashes_that_others_can_write_is_not_believed(
    here, cli, shared, lab, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    cli("collections", "add", str(lab))
    cli("templates", "list")
    (memory,) = (shared / "cache" / "hpckit" / "hashes").iterdir()
    write_files(lab, EVIL)
    status = (lab / "templates/slurm/base.sh.j2").stat()
    lies = json.loads(memory.read_text())
    mark = f"{status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
    lies["templates/slurm/base.sh.j2"][0] = mark
    memory.write_text(json.dumps(lies))
    assert "has changed since" not in cli("submit", "lab-hello", "--dry-run").err  # one's own
    give(shared / "cache")
    assert "lab has changed since it was pinned" in cli("submit", "lab-hello", "--dry-run").err


def test_a_checkout_that_is_not_what_was_pinned_is_not_used(here, cli) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    cli("collections", "add", f"git+file://{repo}")
    (checkout,) = (here.parent / "home/.cache/hpckit/collections").glob("*/*/templates")
    write_files(checkout.parent, EVIL)
    refused(cli, "Remove the folder, then run: hpckit collections sync")
    shutil.rmtree(checkout.parent)
    assert cli("collections", "sync").status == 0
    assert "LAB=one" in cli("submit", "lab-hello", "--dry-run").out


def test_what_hpckit_makes_there_is_closed_whatever_the_umask(here, cli, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here.parent / "home" / "new" / "cache"))
    repo, before = make_repository(here.parent / "srv" / "lab"), os.umask(0)
    try:
        assert cli("collections", "add", f"git+file://{repo}").status == 0
    finally:
        os.umask(before)
    top = here.parent / "home" / "new"
    assert not (top / "cache").stat().st_mode & 0o022
    for folder in (top / "cache" / "hpckit").glob("*"):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (top / "cache" / "hpckit").stat().st_mode & 0o777 == 0o700


def test_a_configuration_that_is_a_strangers_is_not_the_users(here, cli, shared, monkeypatch, lab):
    lab.chmod(0o777)
    config = shared / "config" / "hpckit"
    make_lab(config)
    write_files(config, EVIL | {"trusted.json": json.dumps({"trusted": [str(lab)]})})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared / "config"))
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(lab))
    assert "LAB=evil" in cli("submit", "lab-hello", "--dry-run").out  # one's own
    give(shared / "config")
    answer = cli("templates", "list")
    assert f"{shared}/config belongs to user 61003" in answer.err
    assert f"everybody can write to {lab}" in answer.err  # whom a stranger trusts is not trusted
    answer = cli("submit", "ddp", "--dry-run")
    assert (answer.status, answer.out) == (2, "")
    assert cli("collections", "trust", str(lab)).status == 2
    assert cli("collections", "add", "--user", str(lab), "--trust").status != 0
