"""Two users of one cluster: alice publishes, bob uses, pins, updates, and is not fooled."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.users import GROUP, Person, people
from tests.slurmbox.fixture import Slurm
from tests.unit.lab import make_lab, version

pytestmark = pytest.mark.slurm
HELLO = "import os\nprint('WORD', 'from lab', os.environ['LAB'])\n"


@pytest.fixture(scope="module")
def alice_and_bob(slurm: Slurm) -> Iterator[tuple[Person, Person]]:
    with people(slurm, "hpckit-alice", "hpckit-bob") as (alice, bob):
        yield alice, bob


@pytest.fixture
def bob(alice_and_bob: tuple[Person, Person]) -> Iterator[Person]:
    """Bob, who has added nothing yet."""
    yield alice_and_bob[1]
    for name in (".config", ".cache"):
        shutil.rmtree(alice_and_bob[1].home / name, ignore_errors=True)


@pytest.fixture
def alice(alice_and_bob: tuple[Person, Person], tmp_path: Path) -> Iterator[Person]:
    """Alice, with a collection in a folder she shares with the group."""
    alice = alice_and_bob[0]
    shared = alice.home / "shared"
    make_lab(shared / "lab", **{"workloads/lab-hello/hello.py": HELLO.replace("WORD", "hello")})
    for path in (shared, *shared.rglob("*")):
        shutil.chown(path, alice.name, GROUP)
    yield alice
    shutil.rmtree(shared)


def publish(alice: Person) -> Path:
    """Push the shared folder to a bare repository that the group can read."""
    work, bare = alice.home / "shared" / "lab", alice.home / "shared" / "lab.git"
    alice.run("git", "init", "--quiet", "--bare", "--initial-branch=main", bare)
    alice.run("git", "init", "--quiet", "--initial-branch=main", work)
    for key in ("user.name", "user.email"):
        alice.run("git", "-C", work, "config", key, "alice@lab")
    alice.run("git", "-C", work, "remote", "add", "origin", bare)
    push(alice)
    return bare


def push(alice: Person) -> str:
    work = alice.home / "shared" / "lab"
    alice.run("git", "-C", work, "add", "--all")
    alice.run("git", "-C", work, "commit", "--quiet", "--message=changed")
    alice.run("git", "-C", work, "push", "--quiet", "origin", "main")
    return alice.run("git", "-C", work, "rev-parse", "HEAD").strip()


def write(alice: Person, files: dict[str, str]) -> None:
    for name, text in files.items():
        (alice.home / "shared" / "lab" / name).write_text(text)


def ran(bob: Person) -> tuple[str, str, dict]:
    """Submit the lab's workload as bob; give its log, its script and its record."""
    job = bob.submit("lab-hello", "--gpus", "2", "--time", "5")
    status = bob.over(job["job_id"])
    log = bob.call("logs", job["job_id"], "--all", expect=None).out
    assert status["state"] == "COMPLETED", log
    folder = Path(job["run_dir"])
    assert folder.owner() == bob.name
    record = json.loads((folder / "run.json").read_text())
    assert record["user"] == bob.name
    return log, (folder / "job.sh").read_text(), record


def test_a_pin_on_a_bare_repository_holds_until_bob_updates(alice: Person, bob: Person) -> None:
    bare = publish(alice)
    first = alice.run("git", "-C", bare, "rev-parse", "main").strip()
    bob.call("collections", "add", f"git+file://{bare}@main")
    log, script, record = ran(bob)
    assert "hello from lab one" in log
    assert f"# template slurm/base.sh.j2 of lab at {first} (main), sha256:" in script
    assert f"# workload lab-hello of lab at {first} (main), sha256:" in script
    assert record["workload"]["revision"] == first
    assert record["templates"][0]["revision"] == first

    hello = HELLO.replace("WORD", "servus")
    write(alice, version("two") | {"workloads/lab-hello/hello.py": hello})
    second = push(alice)
    log, _, record = ran(bob)
    assert "hello from lab one" in log
    assert record["workload"]["revision"] == first

    look = bob.call("collections", "update", "--dry-run").out
    assert "-export LAB=one" in look
    assert "+export LAB=two" in look
    moved = bob.call("collections", "update").out.splitlines()
    assert moved[0] == f"lab: {first[:23]} -> {second[:23]} (main)"
    assert moved[1:] == ["  ~ templates/slurm/base.sh.j2", "  ~ workloads/lab-hello/hello.py"]
    assert "+export LAB=two" in bob.call("collections", "diff", "lab").out
    assert "+export LAB=two" in bob.call("templates", "diff", "base").out
    again = bob.call("resubmit", "latest", "--dry-run").err
    assert f"collection lab: {first} -> {second}" in again
    log, script, record = ran(bob)
    assert "servus from lab two" in log
    assert record["workload"]["revision"] == second


def test_a_shared_folder_is_used_in_place_and_says_that_it_changed(
    alice: Person, bob: Person
) -> None:
    lab = alice.home / "shared" / "lab"
    answer = bob.call("collections", "add", lab)
    assert f"owner     {alice.name}" in answer.out
    log, script, record = ran(bob)
    assert "hello from lab one" in log
    revision = record["workload"]["revision"]
    assert f"of lab at {revision}, sha256:" in script
    write(alice, version("two"))
    answer = bob.call("submit", "lab-hello", "--dry-run")
    assert "export LAB=two" in answer.out
    assert "lab has changed since it was pinned" in answer.err
    assert bob.call("collections", "verify", expect=1).out.splitlines()[1:] == [
        "  ~ templates/slurm/base.sh.j2"
    ]
    # A colleague of the group may help alice; that is no fault.
    lab.chmod(0o2775)
    bob.call("submit", "lab-hello", "--dry-run")


def test_what_a_stranger_could_have_changed_is_refused_and_not_run(
    alice: Person, bob: Person
) -> None:
    lab = alice.home / "shared" / "lab"
    bob.call("collections", "add", lab)
    before = sorted(bob.runs.glob("*"))
    hello = lab / "workloads" / "lab-hello" / "hello.py"
    hello.chmod(0o666)
    answer = bob.call("submit", "lab-hello", expect=2)
    assert f"everybody can write to {hello}" in answer.err
    hello.chmod(0o644)
    secret = alice.home / "script.sh.j2"
    (lab / "templates" / "slurm" / "base.sh.j2").unlink()
    (lab / "templates" / "slurm" / "base.sh.j2").symlink_to(secret)
    secret.write_text("#!/bin/bash\ntouch ran\n")  # what it named yesterday was harmless
    answer = bob.call("submit", "lab-hello", expect=2)
    assert f"is a link to {secret}, outside the collection" in answer.err
    shutil.rmtree(lab)
    shutil.copytree(Path(__file__).parents[2] / "examples" / "lab-templates", lab)
    for path in (lab, *lab.rglob("*")):
        shutil.chown(path, "nobody")  # somebody else has put another one in its place
    answer = bob.call("submit", "hello", "--skip-check", "collections", expect=2)
    assert "Unknown workload 'hello'" in answer.err
    assert f"belongs to nobody, but it belonged to {alice.name} when it was added" in answer.err
    assert sorted(bob.runs.glob("*")) == before
    # What the collection has nothing to do with goes on.
    assert "slurm/base.sh.j2" in bob.call("templates", "list").out
    bob.call("submit", "ddp", "--dry-run", "--skip-check", "collections")
