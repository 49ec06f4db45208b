"""A third user, in nobody's group, tries to have bob run what she wrote."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.users import GROUP, Person, people
from tests.slurmbox.fixture import Slurm
from tests.unit.lab import make_lab, version

pytestmark = pytest.mark.slurm
EVIL = version("evil")


@pytest.fixture(scope="module")
def three(slurm: Slurm) -> Iterator[list[Person]]:
    with people(slurm, "hpckit-alice", "hpckit-bob", "hpckit-mallory") as made:
        subprocess.run(["gpasswd", "-d", "hpckit-mallory", GROUP], capture_output=True, check=True)
        yield made


@pytest.fixture
def scratch(three: list[Person]) -> Iterator[Path]:
    """A folder as /scratch: sticky, and of a group that everybody is in."""
    folder = three[0].home.parents[1] / "scratch"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)
    for name in (".config", ".cache"):
        shutil.rmtree(three[1].home / name, ignore_errors=True)


def owned(person: Person, folder: Path) -> Path:
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, person.name, person.name)
    return folder


def test_links_and_folders_of_hers_lead_bob_nowhere(three: list[Person], scratch: Path) -> None:
    alice, bob, mallory = three
    lab = owned(alice, make_lab(alice.home / "shared" / "lab"))
    evil = owned(mallory, make_lab(mallory.home / "evil", **EVIL))
    mallory.run("ln", "-s", lab, scratch / "current")
    said = bob.call("collections", "add", scratch / "current", expect=2).err
    assert f"belongs to {mallory.name}" in said or "denied" in said
    # Alice's own collection, in a folder that is mallory's.
    mallory.run("mkdir", "-m", "0755", scratch / "proj")
    shutil.copytree(lab, scratch / "proj" / "lab")
    owned(alice, scratch / "proj" / "lab")
    said = bob.call("collections", "add", scratch / "proj" / "lab", expect=2).err
    assert f"above it, belongs to {mallory.name}" in said
    # Bob works in the scratch folder itself: her templates, a link to them, or one to alice's.
    for target in (evil / "templates", lab / "templates"):
        mallory.run("ln", "-sfn", target, scratch / "templates")
        said = bob.call("submit", "ddp", "--dry-run", cwd=scratch, expect=2).err
        assert f"templates belongs to {mallory.name}" in said
    mallory.run("rm", scratch / "templates")
    mallory.run("cp", "-r", evil / "templates", scratch)
    mallory.run("mkdir", "-m", "0700", scratch / "workloads")  # which he may not read
    bob.call("submit", "ddp", "--dry-run", cwd=scratch, expect=2)


def test_what_she_put_where_bob_writes_stays_and_hurts_nobody(
    three: list[Person], scratch: Path
) -> None:
    alice, bob, mallory = three
    shutil.rmtree(alice.home / "shared", ignore_errors=True)
    lab = owned(alice, make_lab(alice.home / "shared" / "lab"))
    precious = bob.home / ".bashrc"
    precious.write_text("mine\n")
    owned(bob, precious)
    mallory.run("ln", "-s", precious, scratch / "hpckit.lock")
    said = bob.call("collections", "add", lab, "--project", cwd=scratch, expect=3).err
    assert "hpckit.lock" in said
    mallory.run("rm", scratch / "hpckit.lock")
    # A cache and a configuration of hers, open to all, which bob's variables name.
    mallory.run("mkdir", "-m", "0777", scratch / "cache", scratch / "config")
    environ = {"XDG_CACHE_HOME": str(scratch / "cache"), "XDG_CONFIG_HOME": str(scratch / "config")}
    said = bob.call("collections", "add", lab, "--trust", env=environ, expect=2).err
    assert f"belongs to {mallory.name}" in said
    alice.run("git", "init", "--quiet", lab)
    repo = f"git+file://{lab}"
    said = bob.call("collections", "add", repo, env=environ, expect=2).err
    assert "set XDG_CACHE_HOME to a folder of your own" in said
    # Bytecode, and the folder it lies in, in a collection that bob uses.
    bob.call("collections", "add", lab)
    (lab / "workloads" / "lab-hello" / "__pycache__").mkdir(mode=0o777)
    (lab / "workloads" / "lab-hello" / "__pycache__").chmod(0o777)
    mallory.run("touch", lab / "workloads" / "lab-hello" / "__pycache__" / "x.pyc")
    said = bob.call("submit", "lab-hello", "--dry-run", expect=2).err
    assert "everybody can write" in said
    assert precious.read_text() == "mine\n"
    assert list((scratch / "cache").iterdir()) == []
