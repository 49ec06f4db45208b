"""What each rank is told, by each launcher, and that they meet where they are told to."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from hpckit.payload.rendezvous import candidate_ports, ephemeral_range
from tests.slurm.conftest import SCRIPTS, Desk, Record, add_site, rank_files

pytestmark = pytest.mark.slurm

SEEN, MEET = SCRIPTS / "seen.py", SCRIPTS / "meet.py"
TWO_BY_FOUR = ("--nodes", "2", "--gpus", "4")
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")


def check_places(files: dict[int, Record], launcher: str) -> None:
    """Check that 8 ranks on two nodes know who and where they are."""
    assert list(files) == list(range(8)), launcher
    for rank, seen in files.items():
        node = rank // 4
        told = [int(seen["env"][name]) for name in PLACES]
        assert told == [rank, 8, rank % 4, 4, node]
        assert seen["host"] == f"c{node + 1}"
        assert seen["env"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def port_of(files: dict[int, Record]) -> int:
    """Give the port, after checking that all ranks have it and that it may be used."""
    (port,) = {int(seen["env"]["MASTER_PORT"]) for seen in files.values()}
    low, high = ephemeral_range()
    assert not low <= port <= high
    assert port >= 1024
    return port


def test_each_rank_gets_its_environment(desk: Desk) -> None:
    status = desk.done("ddp", SEEN, *TWO_BY_FOUR, "--", "--lr", "0.1", "two words")
    files = rank_files(status["run_dir"])
    check_places(files, "srun")
    port_of(files)
    for seen in files.values():
        env = seen["env"]
        assert env["MASTER_ADDR"] == "c1"
        assert env["HPCKIT_RUN_DIR"] == status["run_dir"]
        assert env["HPCKIT_RUN_ID"] == status["run_id"]
        assert (env["HPCKIT_RESTART"], env["HPCKIT_DEVICE"]) == ("0", "cpu")
        assert "HPCKIT_TASK" not in env
        assert seen["argv"] == ["--lr", "0.1", "two words"]
        assert seen["cwd"] == str(desk.work)
    assert len({seen["pid"] for seen in files.values()}) == 8


def test_the_users_own_variables_and_locale_reach_the_ranks(desk: Desk) -> None:
    mine = {"LC_ALL": "C.UTF-8", "MY_OWN": "a 'b' \"c\" $d", "SLURM_CONF": desk.env["SLURM_CONF"]}
    status = desk.done("serial", SEEN, "--gpus", "0", env=mine)
    (seen,) = rank_files(status["run_dir"]).values()
    assert {name: seen["env"].get(name) for name in mine} == mine


def test_torchrun_tells_ranks_the_same_and_its_own(desk: Desk) -> None:
    status = desk.done("ddp", SEEN, *TWO_BY_FOUR, "--launcher", "torchrun", "--", "--lr", "0.1")
    files = rank_files(status["run_dir"])
    check_places(files, "torchrun")
    port_of(files)
    for rank, seen in files.items():
        env = seen["env"]
        assert env["MASTER_ADDR"] == "c1"
        assert env["GROUP_RANK"] == str(rank // 4)
        assert {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "ROLE_RANK"} <= env.keys()
        assert seen["argv"] == ["--lr", "0.1"]
    assert len({seen["env"]["TORCHELASTIC_RUN_ID"] for seen in files.values()}) == 1
    assert [row["host"] for row in status["ranks"]] == ["c1"] * 4 + ["c2"] * 4


def test_jobs_and_array_tasks_have_ports_of_their_own(desk: Desk) -> None:
    jobs = [desk.submit("serial", SEEN, "--gpus", "0") for _ in range(2)]
    array = desk.submit("serial", SEEN, "--gpus", "0", "--array", "lr=1,2")["jobs"]
    for job in (*jobs, *array):
        assert desk.over(job["job_id"])["state"] == "COMPLETED"
    ports = [port_of(rank_files(job["run_dir"])) for job in (*jobs, *array)]
    assert len(set(ports)) == 4, ports


@contextmanager
def occupied(ports: set[int]) -> Iterator[set[int]]:
    """Listen on ports, as other people's jobs on the node would; return those that were free."""
    held = set()
    with ExitStack() as stack:
        for port in ports:
            with suppress(OSError):  # somebody else's job does already, and may end any moment
                stack.enter_context(socket.create_server(("", port)))
                held.add(port)
        yield held


def next_job_ids(desk: Desk, count: int) -> list[int]:
    text = desk.slurm.run("scontrol", "show", "config").stdout
    found = re.search(r"NEXT_JOB_ID\s*=\s*(\d+)", text)
    assert found
    return list(range(int(found[1]), int(found[1]) + count))


def test_an_occupied_port_is_passed_over(desk: Desk) -> None:
    # Some ids ahead, should somebody else use the box too.
    first = {job: next(iter(candidate_ports(f"{job}.0"))) for job in next_job_ids(desk, 6)}
    with occupied(set(first.values())) as held:
        status = desk.done("ddp", MEET, "--nodes", "2", "--tasks-per-node", "2")
    log = Path(status["run_dir"], "logs", "0.out").read_text()
    met = re.fullmatch(r"met \[1, 2, 3\] on c1 port (\d+)\n", log)
    assert met, log
    assert len(held) > 3
    assert int(met[1]) not in held
    assert int(met[1]) in list(candidate_ports(f"{status['job_id']}.0"))


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_mpi_ranks_on_two_nodes_add_up(desk: Desk, launcher: str) -> None:
    pytest.importorskip("mpi4py")
    add_site(desk, "launch: {mpi: pmix}\n")
    status = desk.done(
        "mpi", SCRIPTS / "mpi_sum.py", "--nodes", "2", "--tasks-per-node", "2",
        "--site", "box", "--launcher", launcher,
    )  # fmt: skip
    files = rank_files(status["run_dir"])
    assert list(files) == [0, 1, 2, 3]
    for rank, seen in files.items():
        assert (seen["sum"], seen["size"]) == (10, 4)
        assert seen["hosts"] == ["c1", "c1", "c2", "c2"]
        assert seen["rank"] == [rank, rank]
        assert seen["local_rank"] == rank % 2
    assert [row["host"] for row in status["ranks"]] == ["c1", "c1", "c2", "c2"]
