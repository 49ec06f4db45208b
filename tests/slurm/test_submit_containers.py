"""Programs in a container that Pyxis starts; a plugin of the tests' own stands in for it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.conftest import Desk, add_site, eventually, rank_files
from tests.slurm.test_session_shell import Terminal
from tests.slurmbox.fixture import Slurm

pytestmark = pytest.mark.slurm
SOURCE = Path(__file__).parents[1] / "slurmbox" / "pyxis_stand_in.c"
LOOK = """\
import json, os, sys
from pathlib import Path
import hpckit, near
run, rank = Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["RANK"]
said = {name: os.environ.get(name) for name in (
    "IN_IMAGE", "PATH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID",
    "SLURM_STEP_ID", "SLURMD_NODENAME", "HPCKIT_CODE_DIR", "CUDA_VISIBLE_DEVICES",
)}
said |= {
    "root": sorted(os.listdir("/")), "cwd": os.getcwd(),
    "near": near.__file__, "args": sys.argv[1:],
    "file": __file__, "beside": Path(__file__).with_name("data.csv").read_text(),
    "hpckit": hpckit.__file__, "uid": os.getuid(),
}
(run / f"look-{rank}.json").write_text(json.dumps(said))
print("hello of", rank)
"""
MPI = """\
from mpi4py import MPI
print(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank), MPI.COMM_WORLD.size)
"""


@pytest.fixture(scope="module")
def pyxis(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let srun and the nodes know --container-image."""
    folder = tmp_path_factory.mktemp("plugin")
    folder.parent.chmod(0o755)
    plugin = folder / "stand_in.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", plugin, SOURCE], check=True)
    config = slurm.layout.conf.with_name("plugstack.conf")
    config.write_text(f"required {plugin}\n")
    yield
    config.unlink()


@pytest.fixture
def box(desk: Desk, pyxis: None) -> Path:
    """Return an image with a Python, that of the tests, for a site's environment `box`."""
    image = desk.home / "image.d"
    (image / "opt" / "image").mkdir(parents=True)
    (image / "only-in-the-image").touch()
    binds = f"[{sys.base_prefix}, {sys.prefix}]"
    add_site(
        desk,
        f"environments:\n  box: {{kind: pyxis, image: {image}, binds: {binds}, "
        f"options: [--container-mount-home], python: {sys.executable}}}\n",
    )
    return image


def test_ranks_of_two_nodes_run_in_the_image_and_are_watched_from_outside(
    desk: Desk, box: Path
) -> None:
    project = desk.home / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", project], check=True)
    (project / ".gitignore").write_text("*.csv\n")
    (project / "data.csv").write_text("1,2\n")
    (project / "near.py").write_text("")
    (project / "look.py").write_text(LOOK)
    words = ("ddp", project / "look.py", "--nodes", "2", "--gpus", "2")
    status = desk.done(*words, "--site", "box", "--env", "box", "--", "a b", "$HOME")
    found = rank_files(status["run_dir"], "look")
    assert [*found] == [0, 1, 2, 3]
    for rank, said in found.items():
        assert said["IN_IMAGE"] == "yes"
        assert said["PATH"] == "/opt/image/bin:/usr/bin:/bin"
        assert "only-in-the-image" in said["root"]
        assert "work" not in said["root"] or "/work" in sys.prefix
        assert (said["RANK"], said["SLURM_PROCID"]) == (str(rank), str(rank))
        assert (said["LOCAL_RANK"], said["WORLD_SIZE"]) == (str(rank % 2), "4")
        assert said["SLURMD_NODENAME"] == ("c1" if rank < 2 else "c2")
        assert said["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert said["cwd"] == str(desk.work)
        assert said["HPCKIT_CODE_DIR"] == f"{status['run_dir']}/code"
        assert said["file"] == f"{said['HPCKIT_CODE_DIR']}/look.py"
        assert "/.code/trees/" in said["near"]
        assert said["beside"] == "1,2\n"
        assert said["args"] == ["a b", "$HOME"]
    job_id = status["job_id"]
    assert desk.call("logs", job_id, "--rank", "3").out == "hello of 3\n"
    log = Path(status["run_dir"], "job.out").read_text()
    assert log == "", log
    ask = ("sacct", "-nPj", job_id, "-o", "state,exitcode")  # it hears of an end after squeue
    assert eventually(lambda: {*desk.slurm.run(*ask).stdout.split()} == {"COMPLETED|0:0"})


def test_mpi_ranks_meet_from_their_containers(desk: Desk, box: Path) -> None:
    (desk.work / "meet.py").write_text(MPI)
    words = ("mpi", "meet.py", "--nodes", "2", "--tasks-per-node", "2", "--sample-interval", "0")
    status = desk.done(*words, "--site", "box", "--env", "box", "--retry", "fail")
    for rank in range(4):
        log = Path(status["run_dir"], "logs", f"{rank}.out").read_text()
        assert log == "6 4\n"


@pytest.mark.parametrize(
    ("env", "program", "said"),
    [
        ("pyxis:nvcr.io#lab/torch:1", "x.py", "could not start a container of nvcr.io#lab/torch:1"),
        ("pyxis:{image}", "no-such-program", "was not found in the container of {image} on c1"),
    ],
)
def test_what_does_not_start_is_told(
    desk: Desk, box: Path, env: str, program: str, said: str
) -> None:
    (desk.work / "x.py").write_text("")
    words = ("serial", program, "--gpus", "0", "--sample-interval", "0")
    job = desk.submit(*words, "--env", env.format(image=box))
    status = desk.over(job["job_id"])
    assert status["state"] == "FAILED"
    errors = desk.call("logs", job["job_id"], "--errors").out
    assert said.format(image=box) in errors + json.dumps(status), errors


def test_a_shell_is_in_the_image_and_its_host_outside(desk: Desk, box: Path) -> None:
    one = Terminal(desk, "shell", "--time", "10", "--site", "box", "--env", "box")
    try:
        desk.submitted.append(one.until(rb"Submitted (\d+)")[1].decode())
        one.until(rb"Leave it running")
        one.type(b"echo in:$IN_IMAGE:$SLURM_JOB_ID; ls -d /only-in-*; stty size\r")
        one.until(rb"in:yes:%b\r\n/only-in-the-image\r\n40 160" % desk.submitted[-1].encode())
        one.type(b"exit\r")
        one.until(rb"\[hpckit: the shell has ended")
        assert one.end() == 0
    finally:
        one.end(signal.SIGKILL)
    assert desk.over(desk.submitted[-1])["state"] == "COMPLETED"
