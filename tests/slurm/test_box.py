"""Proves that the box is what the other tests take it for: a Slurm with two nodes of four GPUs."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import LONG_S
from tests.slurmbox import box, daemons, files
from tests.slurmbox.fixture import MODULES, Slurm
from tests.slurmbox.layout import BoxError, Layout, node_address, ports_of

pytestmark = pytest.mark.slurm

LMOD = Path("/usr/share/lmod/lmod/init/bash")
RANKS = """\
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
hosts = world.allgather(socket.gethostname())
if world.rank == 0:
    print(world.size, *sorted(hosts))
"""


@pytest.fixture
def other_box(slurm: Slurm) -> Iterator[Slurm]:
    """Give a second box that a test may take down; its folder's name must be short."""
    layout = Layout(dir=Path(f"/tmp/hpckit-box-{os.getpid()}"))
    try:
        box.up(layout)
        yield Slurm(layout=layout)
    finally:
        box.down(layout)


def batch(slurm: Slurm, folder: Path, command: str, *options: str) -> str:
    """Run a command as a batch job to its end and give what it printed."""
    script, output = folder / "job.sh", folder / "job.out"
    script.write_text(f"#!/bin/bash\n{command}\n")
    job = submit(slurm, f"--output={output}", *options, str(script))
    # Not `sbatch --wait`, which looks every two seconds.
    assert eventually(lambda: state(slurm, job) == "COMPLETED")
    return output.read_text()


def eventually(check: Callable[[], bool], within_s: float = LONG_S) -> bool:
    """Wait until something is true, for accounting lags behind the jobs."""
    deadline = time.monotonic() + within_s
    while not check() and time.monotonic() < deadline:
        time.sleep(0.1)
    return check()


def states(slurm: Slurm, job: str) -> list[str]:
    """Give what accounting says of a job, one state for each array task or attempt."""
    rows = slurm.run("sacct", "-j", job, "--duplicates", "-X", "-n", "-P", "-o", "State").stdout
    return rows.split()


def submit(slurm: Slurm, *options: str) -> str:
    """Submit a job without output and give its id."""
    return slurm.run("sbatch", "--parsable", "--output=/dev/null", *options).stdout.strip()


def state(slurm: Slurm, job: str) -> str:
    """Give the state of one job as squeue says it."""
    return slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip()


def test_two_nodes_have_four_gpus_each(slurm: Slurm) -> None:
    rows = slurm.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %G %c %T").stdout.splitlines()
    assert [row.split()[:3] for row in rows] == [
        ["c1", "gpu:h200:4", "8"],
        ["c2", "gpu:h200:4", "8"],
    ]
    assert not any("down" in row or "*" in row for row in rows)


def test_each_node_runs_a_rank_for_each_gpu(slurm: Slurm) -> None:
    done = slurm.run("srun", "-N2", "--ntasks-per-node=4", "--gpus-per-node=4", "hostname")
    assert Counter(done.stdout.split()) == {"c1": 4, "c2": 4}


def test_a_job_sees_the_gpus_it_asked_for(slurm: Slurm, tmp_path: Path) -> None:
    printed = batch(slurm, tmp_path, 'echo "$CUDA_VISIBLE_DEVICES"', "--gpus-per-node=4")
    assert printed == "0,1,2,3\n"


def test_accounting_knows_finished_jobs(slurm: Slurm) -> None:
    good, bad = submit(slurm, "--wrap=true"), submit(slurm, "--account=other", "--wrap=exit 3")
    assert eventually(lambda: states(slurm, good) == ["COMPLETED"])
    assert eventually(lambda: states(slurm, bad) == ["FAILED"])


def test_an_array_has_a_state_for_each_task(slurm: Slurm) -> None:
    job = submit(slurm, "--array=0-2", "--wrap=exit $((SLURM_ARRAY_TASK_ID / 2))")
    assert eventually(lambda: sorted(states(slurm, job)) == ["COMPLETED", "COMPLETED", "FAILED"])


@pytest.mark.parametrize(
    ("option", "word"), [("-Anone", "account"), ("-pnone", "partition"), ("-xnone", "node name")]
)
def test_a_wrong_name_is_refused(slurm: Slurm, option: str, word: str) -> None:
    done = slurm.run("sbatch", option, "--wrap=true", check=False)
    assert done.returncode == 1
    assert f"Invalid {word}" in done.stderr


@pytest.mark.skipif(not LMOD.exists(), reason="lmod is not installed")
def test_a_job_loads_modules_and_their_order_matters(slurm: Slurm, tmp_path: Path) -> None:
    start = f". {LMOD}\nmodule use {MODULES}\n"
    show = 'echo "$HPCKIT_DEMO_MODULE $HPCKIT_NEEDS_DEMO_MODULE"'
    load = "module load hpckit-demo/1.0 needs-demo/1.0"
    assert batch(slurm, tmp_path, f"{start}{load}\n{show}") == "1.0 1.0\n"
    wrong = f"{start}module load needs-demo/1.0 || echo refused\n{show}"
    assert batch(slurm, tmp_path, wrong).splitlines()[-2:] == ["refused", " "]


def test_mpi_reaches_both_nodes(slurm: Slurm, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    ranks = ("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", sys.executable, program)
    done = slurm.run(*ranks, check=False)
    # Open MPI 4 may die in MPI_Init: see `slurmbox.config.MPI_CONF`.
    if done.returncode == 128 + signal.SIGSEGV:
        done = slurm.run(*ranks, check=False)
    assert done.stdout == "4 c1 c1 c2 c2\n", done.stderr


def test_a_more_urgent_job_preempts_and_requeues(slurm: Slurm) -> None:
    everything = ("-N2", "--gpus-per-node=4")
    victim = submit(slurm, *everything, "--requeue", "--wrap=sleep 300")
    try:
        assert eventually(lambda: state(slurm, victim) == "RUNNING")
        urgent = submit(slurm, *everything, "--partition=urgent", "--wrap=true")
        assert eventually(lambda: states(slurm, urgent) == ["COMPLETED"])
        assert eventually(lambda: "PREEMPTED" in states(slurm, victim))
        assert eventually(lambda: state(slurm, victim) == "RUNNING")
    finally:
        slurm.run("scancel", victim)


def test_a_second_box_can_break_in_each_way_and_mend(other_box: Slurm) -> None:
    other_box.kill_dbd()
    assert other_box.run("sacct", check=False).returncode != 0
    other_box.start_dbd()
    job = submit(other_box, "--nodelist=c2", "--no-requeue", "--wrap=sleep 300")
    assert eventually(lambda: state(other_box, job) == "RUNNING")
    other_box.kill_controller()
    impatient = f"SLURM_CONF={other_box.impatient['SLURM_CONF']}"
    assert other_box.run("env", impatient, "squeue", check=False).returncode != 0
    other_box.start_controller()
    assert state(other_box, job) == "RUNNING"
    other_box.kill_node("c2", noticed=True)
    assert eventually(lambda: states(other_box, job) == ["NODE_FAIL"])
    other_box.start_node("c2")
    assert other_box.run("srun", "-N2", "hostname").stdout.split() in (["c1", "c2"], ["c2", "c1"])


def test_down_leaves_no_process_and_no_folder(other_box: Slurm) -> None:
    # The one that leaves its session and its environment is the one that hides best.
    mine = 10**6 + os.getpid()  # seconds, so that no other test's `sleep` is taken for it
    hides = f"setsid --fork env --ignore-environment /bin/sleep {mine}1"
    submit(other_box, f"--wrap={hides}; sleep {mine}2")
    assert eventually(lambda: f"sleep\0{mine}1" in command_lines())
    assert box.down(other_box.layout)
    assert daemons.processes(other_box.layout) == []
    assert f"sleep\0{mine}" not in command_lines()
    assert str(other_box.dir) not in command_lines()
    assert not other_box.dir.exists()


def command_lines() -> str:
    """Give the command lines of all processes of this machine."""
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


def test_up_again_changes_nothing(slurm: Slurm) -> None:
    assert box.up(slurm.layout) is False


def test_the_printed_exports_can_be_evaluated(slurm: Slurm) -> None:
    command = f'eval "$({sys.executable} -m tests.slurmbox env --dir {slurm.dir})"; sinfo -h'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "gpu*" in done.stdout


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("change", [box.up, box.down])
def test_a_folder_that_is_not_a_box_is_left_alone(change: Callable[[Layout], bool]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        thesis = Path(folder, "thesis.tex")
        thesis.touch()
        with pytest.raises(BoxError, match="is not a Slurm box"):
            change(Layout(dir=Path(folder)))
        assert thesis.exists()


@pytest.mark.usefixtures("slurm")
def test_a_folder_closed_to_munge_is_refused() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    with pytest.raises(BoxError, match="closed to others"):
        box.up(Layout(dir=folder))
    folder.rmdir()


def test_ports_that_others_hold_are_passed_over() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    layout = Layout(dir=folder)
    first, *more = layout.numbers
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else holds it
            held.bind((node_address("c1"), ports_of(first)[-1]))
            held.listen()
        files.write(layout)
    assert layout.node_port("c1") // 10 * 10 == layout.controller_port
    assert layout.controller_port in [ports_of(number)[0] for number in more]
    assert f"SlurmctldPort={layout.controller_port}\n" in layout.conf.read_text()
    files.remove(layout)


def test_a_folder_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(BoxError, match="at most 80"):
        Layout(dir=Path("/tmp", "x" * 80))


def test_no_two_boxes_give_a_job_the_same_number(tmp_path: Path) -> None:
    """Tests find a slurmstepd by its job's; a whole suite has less than 10,000 jobs."""
    layout, firsts = Layout(dir=tmp_path), []
    for number in layout.numbers:
        layout.stamp.write_text(str(number))
        firsts.append(layout.first_job_id)
    firsts.sort()
    gaps = {later - first for first, later in itertools.pairwise(firsts)}
    assert (len(firsts), gaps) == (999, {10_000})
