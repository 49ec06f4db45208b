"""A full disk, a quota, a broken disk at submit: one clear error, and nothing half-done."""

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpckit.submission import folders
from tests.integration.test_local import hpckit

pytestmark = pytest.mark.long

SUBMIT = ("submit", "ddp", "--executor=slurm", "--gpus=1")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; `mount` needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "hpckit-test", str(folder)]
    subprocess.run(argv, check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_with_any_room_left_there_is_a_whole_run_or_none(here, cli, fake_slurm, disk) -> None:
    outcomes = set()
    for left_kb in range(0, 48, 4):
        filler = disk / "filler"
        filler.write_bytes(b"x" * (256 - left_kb) * 1024)
        said = cli(*SUBMIT, "--runs", str(disk / "runs"))
        outcomes.add(said.status)
        filler.unlink()
        found = [*disk.glob("runs/[!.]*")]
        assert (disk / "runs").exists() == bool(found)
        if said.status:
            assert (said.status, said.out, found) == (3, "", [])
            assert len(said.err.splitlines()) == 1
            assert "hpckit cannot create or" in said.err
            assert "No space left on device" in said.err
            assert "--runs DIR" in said.err
        else:
            (run,) = found
            assert json.loads((run / "run.json").read_text())["job_id"].startswith("10")
            subprocess.run(["rm", "-r", str(disk / "runs")], check=True)
    assert outcomes == {0, 3}


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE])
@pytest.mark.parametrize("name", [".gitignore", "job.sh", "handover.json", "run.json", "0.pkl"])
def test_any_error_of_the_disk_is_one_line_and_no_job_stays(
    here: Path, cli, fake_slurm: Path, monkeypatch, number: int, name: str
) -> None:
    real = os.open

    def failing(path, flags, *words, **options):
        if name in str(path) and flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *words, **options)

    monkeypatch.setattr(os, "open", failing)
    if name == "0.pkl":  # which submitit writes
        monkeypatch.setattr("submitit.core.utils.DelayedSubmission.dump", failing_dump(number))
    said = cli(*SUBMIT)
    assert (said.status, said.out) == (3, "")
    assert len(said.err.splitlines()) == 1
    assert os.strerror(number) in said.err
    assert not (here / "runs").exists()
    calls = (fake_slurm / "calls.jsonl").read_text() if name == "run.json" else ""
    assert ('["scancel", "1001"]' in calls) == (name == "run.json")  # Slurm had taken it


@pytest.mark.parametrize("broken", [False, True])
def test_a_record_is_on_the_disk_before_what_could_replace_it_goes(
    here: Path, cli, fake_slurm: Path, monkeypatch, broken: bool
) -> None:
    flushed: list[tuple[str, bool, bool]] = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        run = path if path.parent.name == "runs" else path.parent
        taken = (fake_slurm / "calls.jsonl").exists()
        flushed.append((path.name, taken, (run / "handover.json").exists()))
        if broken and path.name == "run.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if path.is_dir():  # some file systems cannot, and keep folders safe in ways of their own
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fsync)
    said = cli(*SUBMIT)
    if broken:
        assert (said.status, said.out, len(said.err.splitlines())) == (3, "", 1)
        assert "Input/output error" in said.err
        assert '["scancel", "1001"]' in (fake_slurm / "calls.jsonl").read_text()
        return
    (run,) = here.glob("runs/[!.]*")
    assert flushed == [
        ("handover.json", False, True), (run.name, False, True), ("runs", False, False),
        ("run.json", True, True), (run.name, True, True),
    ]  # fmt: skip


def failing_dump(number: int):
    def dump(self, path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return dump


def test_what_cannot_be_removed_hides_no_error(here, cli, fake_slurm, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(folders, "_remove", broken)
    (fake_slurm / "sbatch.rc").write_text("1")
    (fake_slurm / "sbatch.err").write_text("sbatch: error: Invalid qos specification\n")
    said = cli(*SUBMIT)
    assert (said.status, len(said.err.splitlines())) == (3, 1)
    assert "Invalid qos" in said.err


FILLS = """\
import os, sys
try:
    with open(os.environ["HPCKIT_RUN_DIR"] + "/data", "wb") as data:
        while True:
            data.write(bytes(4096))
            data.flush()
finally:
    if sys.argv[1:]:
        os._exit(0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("args", [[], ["--", "says-nothing"]])
def test_a_local_run_that_fills_its_disk_has_failed_and_says_so(here, disk, args) -> None:
    Path("fills.py").write_text(FILLS)
    words = ["--executor=local", f"--runs={disk}/runs", "--sample-interval=0", "--wait"]
    hpckit("submit", "serial", "fills.py", *words, *args, status=1)
    (run,) = (disk / "runs").glob("[!.]*")
    full = f"there is no room left in {run}"
    found = json.loads(hpckit("status", run, "--json").stdout)
    assert (found["state"], found["reason_text"]) == ("FAILED", full)
    assert full in hpckit("wait", run, status=1).stdout
    said = hpckit("logs", run, "--errors").stdout
    assert full in said
    (run / "data").unlink()  # once there is room again, it is still known
    assert full in hpckit("status", run).stdout
