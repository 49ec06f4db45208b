"""What commands about the installation print, as values in Python."""

import json
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import typer

import hpckit
from hpckit.cli import COMMANDS, make_app
from tests.conftest import Answer, write_files
from tests.unit.checkouts import git
from tests.unit.detected import Cluster
from tests.unit.recorded import slurm_said

Cli = Callable[..., Answer]


def test_lists_are_those_of_the_command_line(here: Path, cli: Cli) -> None:
    for word, rows in (
        ("sites", hpckit.sites()),
        ("workloads", hpckit.workloads()),
        ("templates", hpckit.templates()),
    ):
        printed = json.loads(cli(word, "list", "--json").out)
        assert printed
        assert [row["name"] for row in printed] == [row.name for row in rows]
    assert hpckit.template_variables() == json.loads(cli("templates", "vars", "--json").out)


def test_one_of_each_says_where_it_comes_from(here: Path) -> None:
    write_files(here, {"templates/sites/alvis.yaml": "description: mine\n"})
    site, workload = hpckit.site("alvis"), hpckit.workload("from-scratch")
    assert site.path == here / "templates/sites/alvis.yaml"
    assert site.found is not None
    assert [row.name for row in site.found.shadows] == ["built-in"]
    assert workload.found is not None
    assert workload.found.collection.origin == "built-in"
    assert hpckit.site().name == "generic"
    with pytest.raises(hpckit.RequestError, match="Unknown site 'alvsi'"):
        hpckit.site("alvsi")


def test_a_template_is_compared_with_the_one_it_shadows(here: Path) -> None:
    theirs = hpckit.template("base")
    with pytest.raises(hpckit.RequestError, match="does not shadow"):
        theirs.diff()
    write_files(here, {"templates/slurm/base.sh.j2": theirs.text() + "echo more\n"})
    mine = hpckit.template("base")
    assert [line for line in mine.diff().splitlines()[2:] if line[0] in "+-"] == ["+echo more"]
    assert mine.hash() != theirs.hash()
    assert mine.text() == theirs.text() + "echo more\n"


@pytest.mark.long
def test_lint_yields_findings_with_their_places(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(here, {"templates/slurm/bad.sh.j2": "#!/bin/bash\nif\n", "hpckit.yaml": "nam: x\n"})
    [row] = hpckit.lint("bad")
    assert row.subject == "slurm/bad.sh.j2 (project)"
    assert row.findings
    assert all(str(here / "templates/slurm/bad.sh.j2") in line for line in row.findings)
    # Of our own scripts, which are 70, `make lint` asks it.
    monkeypatch.setattr(import_module("hpckit.lint"), "shellcheck", lambda _: [])
    found = {row.subject: row.findings for row in hpckit.lint()}
    assert any("'nam'" in line for line in found["collections"])
    assert found["advice"] == ()


def test_what_is_left_out_goes_to_the_logger(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(here, {"hpckit.lock": "nonsense"})
    with caplog.at_level(logging.INFO, "hpckit"):
        hpckit.workloads()
    assert "collection 'hpckit.lock' is left out" in caplog.text


def test_the_script_of_a_job_is_the_one_of_a_dry_run(here: Path, cli: Cli) -> None:
    words = ("submit", "ddp", "--nodes", "2", "--dry-run", "--executor", "slurm")
    script = hpckit.script("ddp", nodes=2, executor="slurm")

    def settled(text: str) -> list[str]:
        return [line for line in text.splitlines() if "ddp-" not in line]  # the run's own id

    assert settled(script) == settled(cli(*words).out)
    assert "#SBATCH --nodes=2" in script
    assert not (here / "runs").exists()
    with pytest.raises(hpckit.OutsideError, match="--check asks Slurm"):
        hpckit.check("ddp")
    assert cli("submit", "ddp", "--check").status == 3
    assert cli("submit", "ddp", "--check", "--executor", "local").status == 2


def test_what_slurm_says_of_a_job_before_it_is_submitted(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    words = ("submit", "ddp", "--nodes", "2", "--check")
    for said in (hpckit.check("ddp", nodes=2), cli(*words).out):
        assert said.startswith("Slurm would accept this job: ")
    answer = json.loads(cli(*words, "--json").out)
    assert answer["accepted"] is True
    assert answer["answer"].startswith("Slurm would accept this job: ")


def test_a_check_refuses_code_that_a_submission_would_not_take(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    git(here, "init", "-q")
    write_files(here, {"train.py": "print(1)\n", "hpckit.yaml": "code: {max_mb: 1}\n"})
    git(here, "add", "train.py")
    words = ("submit", "serial", "train.py", "--gpus", "0", "--check")
    assert cli(*words).status == 0
    large = here / "large.bin"
    large.write_bytes(bytes(2_000_000))
    assert "is not kept: it is 2 MB of files, and at most 1 MB" in cli(*words).err
    assert cli(*words, "--no-code").status == 0
    large.unlink()
    (here / ".git" / "index").write_bytes(b"garbage")
    said = cli(*words)
    assert (said.status, "it is cut off; `git status` says more" in said.err) == (3, True)
    assert not [*here.glob("runs/*")]


def test_a_time_limit_over_that_of_each_partition_named_is_refused(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    (fake_slurm / "scontrol.out").write_text(slurm_said("scontrol-partition-22.05.8.txt"))
    words = ("submit", "ddp", "--check", "--time", "2h", "--partition")
    for named, why in (
        ("short", "limit 00:30:00 of partition 'short'"),
        ("urgent,short", "limit 01:00:00 of partitions 'short', 'urgent'"),
    ):
        said = cli(*words, named)
        assert said.status == 3
        assert f"it would never start: --time 02:00:00 is over the {why}" in said.err
    assert cli(*words, "short,gpu").out.startswith("Slurm would accept this job: ")


@pytest.mark.long
def test_the_preview_of_a_resubmission_is_the_one_of_a_dry_run(here: Path, cli: Cli) -> None:
    (here / "train.py").touch()
    submitted = json.loads(
        cli("submit", "serial", "train.py", "--gpus=0", "--executor=local", "--wait", "--json").out
    )
    words = {"time": "20m", "executor": "slurm"}
    again = hpckit.find(submitted["job_id"]).preview(**words)
    printed = cli("resubmit", submitted["job_id"], "--dry-run", "--time=20m", "--executor=slurm")
    [limit] = [line for line in again.script.splitlines() if line.startswith("#SBATCH --time=")]
    assert limit in printed.out.splitlines()
    assert again.differences
    assert "Submission(" not in repr(again)
    assert {f"  {line}" for line in again.differences} <= {*printed.err.splitlines()}
    assert len(hpckit.runs()) == 1


@pytest.fixture
def cluster(here: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("hpckit.owners.user_name", lambda: "root")
    return Cluster(here.parent / "bin", "25.05")


def test_a_cluster_is_detected_and_its_site_file_written(cluster: Cluster, cli: Cli) -> None:
    found = hpckit.detect_cluster()
    assert found.document() == json.loads(cli("sites", "detect", "--json").out)
    assert hpckit.site_page(found) == cli("init", "--dry-run").out
    first, again = hpckit.init(), hpckit.init(found=found)
    assert (first.outcome, again.outcome) == ("written", "nothing to change")
    assert hpckit.site("newest").path == first.path
    first.path.write_text("description: mine\n")
    kept = hpckit.init(found=found)
    assert (kept.outcome, first.path.read_text()) == ("kept", "description: mine\n")
    assert "-description: mine" in kept.diff
    assert hpckit.init(found=found, force=True).outcome == "updated"
    with pytest.raises(hpckit.RequestError, match="not a valid site name"):
        hpckit.init("generic", found=found)


def test_without_slurm_there_is_no_cluster_to_detect(here: Path) -> None:
    with pytest.raises(hpckit.OutsideError, match="No program of Slurm answers here"):
        hpckit.detect_cluster()


def test_doctor_returns_what_the_command_prints(cluster: Cluster, cli: Cli) -> None:
    found = hpckit.doctor()
    printed = cli("doctor", "--json")
    said = json.loads(printed.out)
    assert len(said["checks"]) == len(found) > 5
    assert said["good"] is found.good is (printed.status == 0)
    assert {row["level"] for row in said["checks"]} <= {"ok", "bad", "unknown"}
    assert [row["level"] for row in said["checks"]] == [
        row["level"] for row in found.document()["checks"]
    ]
    assert all(str(row) in str(found) for row in found)
    with pytest.raises(hpckit.RequestError, match="at least one GPU"):
        hpckit.doctor_gpu(gpus=0)
    with pytest.raises(hpckit.RequestError, match="at least one GPU"):
        hpckit.doctor_gpu(gpus=None)  # type: ignore[arg-type]


def test_the_status_of_a_sampled_command_is_its_own(here: Path) -> None:
    assert hpckit.sample(["sh", "-c", "exit 3"], interval=0) == 3
    assert hpckit.sample(["sh", "-c", "kill -9 $$"], interval=0) == 137
    with pytest.raises(hpckit.CommandError, match="no-such-program"):
        hpckit.sample(["no-such-program"], interval=0)
    with pytest.raises(hpckit.RequestError, match="There is no command to run"):
        hpckit.sample([])
    with pytest.raises(hpckit.RequestError, match="command='true' must be a list"):
        hpckit.sample("true")
    assert not (here / "hpckit-samples").exists()


def test_a_collection_is_made_added_checked_and_removed(here: Path, cli: Cli) -> None:
    assert here / "lab/hpckit.yaml" in [path.absolute() for path in hpckit.new_collection("lab")]
    added = hpckit.add_collection("lab", project=True)
    assert (added.name, added.lock) == ("lab", here / "hpckit.lock")
    assert added.collection == hpckit.collections()[0]
    assert [(name, row.name) for name, row in added.shadows()] == [
        ("templates/slurm/base.sh.j2", "built-in")
    ]
    assert "+ hpckit.yaml" in added.files
    [again] = hpckit.added_collections()
    assert (again.name, again.revision, again.verify()) == ("lab", added.revision, [])
    with (here / "lab/hpckit.yaml").open("a") as manifest:
        manifest.write("# more\n")
    assert again.verify() == again.update(dry_run=True).files == ["~ hpckit.yaml"]
    assert hpckit.added_collections("lab")[0].verify() == ["~ hpckit.yaml"]
    assert again.update().diff() == ""
    assert hpckit.added_collections("lab")[0].verify() == []
    with pytest.raises(hpckit.RequestError, match="folder used in place"):
        again.diff()
    again.remove()
    assert hpckit.added_collections() == []
    assert json.loads(cli("collections", "list", "--json").out)[0]["name"] == "built-in"


def test_a_folder_is_trusted_and_no_longer(here: Path) -> None:
    assert hpckit.trust_folder(here) == hpckit.trust_folder(str(here), trusted=False) == str(here)
    with pytest.raises(hpckit.RequestError, match="not a folder"):
        hpckit.trust_folder("nowhere")


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for jobs that the fake Slurm never ends."""
    monkeypatch.setattr("hpckit.submission.waiting._SETTLING_S", 0)


@pytest.mark.usefixtures("fake_slurm", "unsettled")
def test_runs_and_ids_are_cancelled(here: Path) -> None:
    (here / "train.py").touch()
    for ids in ([], [hpckit.submit("serial", "train.py", gpus=0)]):
        run = hpckit.submit("serial", "train.py", gpus=0)
        assert hpckit.cancel([*ids, run.job_id]) == [*ids, run]
        assert hpckit.cancel(run) == [run]
    with pytest.raises(hpckit.NotFoundError):
        hpckit.cancel("no-such-run")
    assert hpckit.cancel([]) == []


@pytest.mark.usefixtures("fake_slurm", "unsettled")
def test_a_job_is_cancelled_whose_folder_cannot_be_written(here: Path) -> None:
    (here / "train.py").touch()
    run = hpckit.submit("serial", "train.py", gpus=0)
    (run.dir / ".cancel").symlink_to("nowhere")  # no link is followed: as on a full disk
    assert hpckit.cancel(run.job_id) == [run]


@pytest.mark.parametrize("word", [None, b"x", "a\0b"])
def test_what_is_no_word_of_a_command_line_is_refused(here: Path, word: object) -> None:
    write_files(here, {"train.py": "print(1)\n"})
    with pytest.raises(hpckit.RequestError, match=r"cannot be a word of a command line"):
        hpckit.script("ddp", "train.py", args=["--name", word])


# A command line for each option that takes a number which need not be whole.
NUMBERS = {
    "stats --fail-under": "stats latest --fail-under {}",
    "top --interval": "top --once --interval {}",
    "wait --timeout": "wait latest --timeout {}",
    "init --timeout": "init --timeout {}",
    "scale --efficiency": "scale ddp --efficiency {}",
    "sample --interval": "sample --interval {} -- true",
    "submit --sample-interval": "submit ddp --sample-interval {}",
    "scale --sample-interval": "scale ddp --sample-interval {}",
    "shell --sample-interval": "shell --sample-interval {}",
    "jupyter --sample-interval": "jupyter --sample-interval {}",
    "doctor --timeout": "doctor --timeout {}",
    "doctor stats --timeout": "doctor stats --timeout {}",
    "sites detect --timeout": "sites detect --timeout {}",
}


def options_of_numbers() -> set[str]:
    """Return every option of every command that takes such a number."""
    groups = (typer.main.get_command(make_app([name])) for name in COMMANDS)
    found, waiting = set(), [row for group in groups for row in group.commands.items()]  # type: ignore[attr-defined]
    for name, command in waiting:
        below = getattr(command, "commands", {})
        waiting += [(f"{name} {word}", one) for word, one in below.items()]
        rows = (row for row in command.params if row.type.name.startswith("float"))
        found |= {f"{name} {row.opts[0]}" for row in rows}
    return found


def test_each_option_of_a_number_is_tried_below() -> None:
    of_a_run = {"resubmit --sample-interval"}  # read as those of submit, once the run is found
    assert options_of_numbers() == {*NUMBERS} | of_a_run


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("typed", NUMBERS.values(), ids=NUMBERS)
def test_no_number_of_the_command_line_is_nan(here: Path, cli: Cli, typed: str, value: str) -> None:
    """`nan` passes every limit: a gate would never close."""
    answer = cli(*typed.format(value).split())
    assert (answer.status, answer.out) == (2, "")
    assert value in answer.err
    assert "There is no run" not in answer.err
