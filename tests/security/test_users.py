"""Two users in one group's folder: they read each other's runs, and never write to them."""

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpckit.cli import main
from hpckit.run_folders.find import find_runs
from hpckit.run_folders.runs import list_runs, read_run
from tests.conftest import HPCKIT, Answer
from tests.unit.lab import make_repository
from tests.unit.made import make_run

COLLEAGUE, GROUP = 61002, 61000
TRAIN = """\
import os, time
os.umask(2)
open("made", "w")
print("hello")
samples = os.environ["HPCKIT_RUN_DIR"] + "/samples"
while not (os.path.exists(samples) and os.listdir(samples)):
    time.sleep(0.1)
"""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")


@pytest.fixture
def lab() -> Iterator[Path]:
    """A group's folder: setgid and sticky, its members may add what is then theirs alone."""
    folder = Path(
        tempfile.mkdtemp(prefix="hpckit-lab-", dir="/tmp")
    )  # others cannot enter pytest's
    (folder / "runs").mkdir()
    (folder / "home").mkdir()
    os.chown(folder / "home", COLLEAGUE, GROUP)
    os.chown(folder / "runs", 0, GROUP)
    folder.chmod(0o755)
    (folder / "runs").chmod(0o3775)
    yield folder
    shutil.rmtree(folder)


def submit(lab: Path, *arguments: str) -> Path:
    """Run a script as root with the umask of a group."""
    (lab / "train.py").write_text(TRAIN)
    argv = [*HPCKIT, "submit", "ddp", "train.py", "--gpus=0", "--tasks-per-node=2", *arguments,
            "--executor=local", "--sample-interval=0.5", "--wait", "--json"]  # fmt: skip
    env = {**os.environ, "HPCKIT_RUNS": str(lab / "runs"), "HOME": str(lab)}
    done = subprocess.run(argv, cwd=lab, env=env, umask=0o002, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return Path(document.get("jobs", [document])[0]["run_dir"])


def as_colleague(lab: Path, *argv: str) -> Answer:
    """Run hpckit in a child that becomes another user: Python itself may be open to root alone."""
    for name in ("cli", "api", "report", "submission"):
        package = importlib.import_module(f"hpckit.{name}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    for name in (
        "hpckit.job_ends.failures",
        "hpckit.job_ends.hints",
        "html",
        "submitit",
        "jinja2.sandbox",
        "encodings.idna",
        "yaml",
        "pwd",
        "difflib",
    ):
        importlib.import_module(name)
    out, err = lab / "out", lab / "err"
    child = os.fork()
    if child == 0:
        with out.open("w") as sys.stdout, err.open("w") as sys.stderr:
            os._exit(_become_and_call(lab, argv))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Answer(status=status, out=out.read_text(), err=err.read_text())


def _become_and_call(lab: Path, argv: tuple[str, ...]) -> int:
    os.setgroups([GROUP])
    os.setgid(GROUP)
    os.setuid(COLLEAGUE)
    os.umask(0o002)
    home = str(lab / "home")
    os.environ |= {"HOME": home, "LOGNAME": "colleague", "HPCKIT_RUNS": str(lab / "runs"),
                   "XDG_STATE_HOME": f"{home}/state"}  # fmt: skip
    os.chdir(home)
    try:
        main(list(argv))
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        return int(ended.code or 0)
    except BaseException as error:  # noqa: BLE001  # a traceback is what is looked for
        sys.stderr.write(f"TRACEBACK {error!r}")
        sys.stderr.flush()
    return 99


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


def test_a_collection_that_is_closed_is_one_error(lab: Path) -> None:
    closed = lab / "closed"
    ours = make_repository(closed / "lab")
    assert as_colleague(lab, "collections", "add", str(ours)).status == 0
    closed.chmod(0o700)
    add = ["collections", "add"]
    for words in (
        [*add, str(ours)],
        [*add, f"git+file://{ours}"],
        ["collections", "trust", str(ours)],
        ["collections", "new", str(closed / "new")],
        ["collections", "update"],
        ["collections", "sync"],
    ):
        answer = as_colleague(lab, *words)
        assert answer.status in (1, 2, 3), answer
        assert "Permission denied" in answer.err
        assert len(answer.err.splitlines()) == 1
    assert "broken" in as_colleague(lab, "collections", "list").out
    closed.chmod(0o755)
    (ours / ".git" / "objects").chmod(0o700)
    answer = as_colleague(lab, *add, f"git+file://{ours}")
    assert (answer.status, "objects: cannot be read: Permission" in answer.err) == (2, True)


@pytest.mark.long
def test_a_colleague_reads_a_run_and_leaves_it_as_it_was(lab: Path) -> None:
    run = submit(lab)
    places = [path for path in [run, *run.rglob("*")] if path.name != "made"]
    assert {"run.json", "job.sh", "job.out", "local.json", "0.out", "1.err", "0.json", "ranks",
            "logs", "samples", "summary.json"} <= {path.name for path in places}  # fmt: skip
    for path in places:
        assert path.stat().st_gid == GROUP, path
        if path.parent.name != "submitit":  # which is closed, whatever is in it
            assert not path.stat().st_mode & 0o022, path
            assert path.stat().st_mode & 0o040 or path.name == "submitit", path
    assert (run / "submitit").stat().st_mode & 0o777 == 0o700
    before = contents(run)
    assert "COMPLETED" in as_colleague(lab, "status", run.name).out
    assert as_colleague(lab, "logs", run.name).out == "hello\n"
    stats = as_colleague(lab, "stats", run.name, "--json")
    assert json.loads(stats.out)["state"] == "COMPLETED"
    assert as_colleague(lab, "wait", run.name).status == 0
    assert run.name in as_colleague(lab, "jobs").out
    again = as_colleague(lab, "resubmit", run.name, "--dry-run")
    assert again.status == 0, again.err
    assert f"note: run {run.name} is of root, and so are its script and its settings" in again.err
    assert "its templates are those your search path gives in " in again.err
    assert ", of built-in\n" in again.err
    cancelled = as_colleague(lab, "cancel", run.name)
    assert cancelled.status == 2
    assert f"Run {run.name} belongs to root. Only its owner can cancel it" in cancelled.err
    assert contents(run) == before


@pytest.mark.long
def test_a_folder_that_is_closed_to_a_colleague_is_not_said_to_be_empty(lab: Path) -> None:
    run = submit(lab)
    for name in ("logs", "samples"):
        (run / name).chmod(0o700)
    why = f"hpckit: error: Some logs of {run.name} cannot be read: 0.out: Permission denied"
    for options in ((), ("--all",), ("--rank", "0")):
        shown = as_colleague(lab, "logs", run.name, *options)
        assert (shown.status, shown.out) == (2, "")
        assert why in shown.err
    stats = as_colleague(lab, "stats", run.name, "--json")
    told = [row["text"] for row in json.loads(stats.out)["notes"]]
    assert f"{run}/samples cannot be read: Permission denied." in told


def test_the_newest_run_of_a_group_is_nobody_elses_latest(lab: Path, here: Path) -> None:
    mine = make_run(lab / "runs", "mine-1", submitted_at=100.0)
    theirs = make_run(lab / "runs", "theirs-1", submitted_at=200.0)
    os.chown(theirs.dir, COLLEAGUE, GROUP)
    assert find_runs("latest", lab / "runs")[0].dir == mine.dir
    assert find_runs(mine.job_id, lab / "runs")[0].dir == mine.dir  # both claim it
    assert find_runs("theirs-1", lab / "runs")[0].dir == theirs.dir


DAMAGE = {
    "an option for scancel": {"job_id": "--user=root"},
    "several ids": {"job_id": "1,2"},
    "a way out": {"run_id": "../../x"},
    "an array with an option": {"array": {"job_id": "-u root", "index": 0}},
    "no text": {"name": ["x"]},
    "no folder": {"cwd": {}},
    "a far moment": {"submitted_at": 1e300},
    "no moment": {"submitted_at": float("nan")},
    "no number": {"plan": {"ranks": "x"}},
    "an endless number": {"submitted_at": int("9" * 400)},
    "no mapping": {"plan": []},
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_planted_record_spoils_no_list_and_gives_no_option(lab, here, cli, how) -> None:
    make_run(lab / "runs", "good-1", job_id="local-1", executor="local")
    bad = make_run(lab / "runs", "bad-1", job_id="local-2", executor="local")
    change = {key: {**bad.record[key], **value} if key == "plan" and isinstance(value, dict)
              else value for key, value in DAMAGE[how].items()}  # fmt: skip
    (bad.dir / "run.json").write_text(json.dumps({**bad.record, **change}))
    assert [run.run_id for run in list_runs(lab / "runs")] == ["good-1"]
    for command in ("status", "cancel", "resubmit"):
        said = cli(command, "bad-1", f"--runs={lab / 'runs'}")
        assert said.status == 2
        assert "run.json is damaged" in said.err
        assert len(said.err.splitlines()) == 1


def test_deep_records_and_pipes_spoil_no_list_either(lab: Path) -> None:
    make_run(lab / "runs", "good-1")
    deep = make_run(lab / "runs", "deep-1")
    (deep.dir / "run.json").write_text("[" * 100_000)
    pipe = make_run(lab / "runs", "pipe-1")
    (pipe.dir / "run.json").unlink()
    os.mkfifo(pipe.dir / "run.json")
    assert [run.run_id for run in list_runs(lab / "runs")] == ["good-1"]


@pytest.mark.parametrize(
    "change",
    [{"name": 5}, {"script": ["x"]}, {"args": "x"}, {"args": [1]}, {"nodes": "2"}, {"env": {}},
     {"unknown": 1}, {"time_min": [1]}, {"after": {"a": 1}}, {"partition": "x; id"}],
)  # fmt: skip
def test_a_planted_request_is_refused_in_one_line(lab, here, cli, change) -> None:
    run = make_run(lab / "runs", "r-1", request={"target": "ddp", **change})
    said = cli("resubmit", "r-1", f"--runs={lab / 'runs'}", "--dry-run")
    assert said.status == 2, said.err
    assert len(said.err.splitlines()) == 1
    assert read_run(run.dir).mine


def test_a_link_in_place_of_a_log_is_not_followed(lab: Path) -> None:
    """Nobody else can put one there; should it come about all the same, nothing is written."""
    from hpckit.run_folders.run_files import open_to_write, write_text

    (lab / "precious").write_text("mine")
    (lab / "0.out").symlink_to(lab / "precious")
    for write in (lambda path: open_to_write(path, "ab"), lambda path: write_text(path, "x")):
        with pytest.raises(OSError, match="symbolic links"):
            write(lab / "0.out")
    assert (lab / "precious").read_text() == "mine"
