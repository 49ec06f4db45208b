"""Cgroups v1 and v2 and /proc as trees of files; which GPUs are mine, as a table."""

import math
import os
from pathlib import Path

import pytest

from hpckit.stats.sampler import procfs
from hpckit.stats.sampler.cgroup import find_cgroup
from hpckit.stats.sampler.job_gpus import Unit, find_mine
from hpckit.stats.sampler.node import NodeReader, job_cores, usage_of
from hpckit.stats.sampler.procfs import ProcessTree, all_pids, own_cost
from hpckit.stats.sampler.schedule import Utilization, add_buffer
from hpckit.stats.samples.records import GpuInfo, Usage
from tests.conftest import write_files

V2_STAT = "anon 1000\nfile 900\nshmem 200\nkernel 5\n"


def tree(tmp: Path, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    write_files(tmp / "proc" / "self", {"cgroup": cgroup})
    write_files(tmp / "cg", dict(files))
    return tmp / "proc", tmp / "cg"


@pytest.mark.parametrize("job", ["job_42", "s0123456789ABC", "job_s0123456789ABC"])
@pytest.mark.parametrize(
    "scope", ["system.slice/slurmstepd.scope", "system.slice/n1_slurmstepd.scope"]
)
def test_cgroup_v2(tmp_path: Path, job: str, scope: str) -> None:
    folder = f"{scope}/{job}"
    proc, root = tree(
        tmp_path,
        f"0::/{folder}/step_0/user/task_0\n",
        {
            f"{folder}/cpu.stat": "usage_usec 123456\nuser_usec 1\n",
            f"{folder}/memory.stat": V2_STAT,
            f"{folder}/memory.peak": "5000\n",
            f"{folder}/memory.max": "1073741824\n",
            f"{folder}/memory.swap.current": "7\n",
            f"{folder}/memory.events": "low 0\noom 3\noom_kill 2\n",
            f"{folder}/io.stat": "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=5 wbytes=1\n",
            f"{folder}/cgroup.procs": "",
            f"{folder}/step_0/user/task_0/cgroup.procs": "11\n12\n",
            f"{folder}/step_batch/user/task_0/cgroup.procs": "9\n",
        },
    )
    found = find_cgroup(proc, root)
    assert found is not None
    assert found.version == "v2"
    assert usage_of(found) == Usage(
        cpu_us=123456,
        memory_bytes=1200,
        memory_peak_bytes=5000,
        cache_bytes=700,
        swap_bytes=7,
        io_read_bytes=15,
        io_write_bytes=21,
        oom_kills=2,
    )
    assert found.memory_limit_bytes() == 1 << 30
    assert found.pids() == {9, 11, 12}


def test_cgroup_v2_of_an_old_kernel_without_controllers(tmp_path: Path) -> None:
    folder = "system.slice/slurmstepd.scope/job_1"
    proc, root = tree(
        tmp_path,
        f"0::/{folder}/step_0\n",
        {f"{folder}/cpu.stat": "usage_usec 5\n", f"{folder}/memory.max": "max\n"},
    )
    found = find_cgroup(proc, root)
    assert found is not None
    assert usage_of(found) == Usage(cpu_us=5)
    assert found.memory_limit_bytes() is None


@pytest.mark.parametrize("top", ["slurm", "slurm_node1"])
def test_cgroup_v1(tmp_path: Path, top: str) -> None:
    job = f"{top}/uid_1000/job_7"
    names = "12:memory", "4:cpu,cpuacct", "6:blkio", "9:devices"
    lines = "".join(f"{name}:/{job}/step_0/task_0\n" for name in names) + "0::/\n"
    memory, cpu, disk = f"memory/{job}", f"cpu,cpuacct/{job}", f"blkio/{job}"
    stat = "cache 1\nrss 2\ntotal_cache 500\ntotal_rss 3000\ntotal_shmem 100\ntotal_swap 4\n"
    traffic = "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\nTotal 31\n"
    proc, root = tree(
        tmp_path,
        lines,
        {
            f"{memory}/memory.stat": stat,
            f"{memory}/memory.max_usage_in_bytes": "9000\n",
            f"{memory}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{memory}/memory.oom_control": "oom_kill_disable 0\noom_kill 0\n",
            f"{memory}/step_0/memory.oom_control": "oom_kill 0\n",
            f"{memory}/step_0/task_0/memory.oom_control": "oom_kill 1\n",
            f"{memory}/step_0/task_0/cgroup.procs": "5\n",
            f"{cpu}/cpuacct.usage": "7000999\n",
            f"{disk}/blkio.throttle.io_service_bytes_recursive": traffic,
        },
    )
    found = find_cgroup(proc, root)
    assert found is not None
    assert found.version == "v1"
    assert usage_of(found) == Usage(
        cpu_us=7000,
        memory_bytes=3100,
        memory_peak_bytes=9000,
        cache_bytes=400,
        swap_bytes=4,
        io_read_bytes=11,
        io_write_bytes=20,
        oom_kills=1,
    )
    assert found.memory_limit_bytes() is None
    assert found.pids() == {5}


@pytest.mark.parametrize(
    "text", ["", "0::/\n", "0::/user.slice/user-0.slice\n", "0::/system.slice/x/job_1/step_0\n"]
)
def test_no_cgroup_of_a_job(tmp_path: Path, text: str) -> None:
    assert find_cgroup(*tree(tmp_path, text, {})) is None


def process(pid: int, ppid: int, ticks: int, anon: int, shmem: int = 0, name: str = "a) b") -> dict:
    words = ["S", str(ppid), *["0"] * 9, str(ticks), "0", "0", "0", *["0"] * 4, str(pid * 7), "0"]
    return {
        f"{pid}/stat": f"{pid} ({name}) {' '.join(words)}\n",
        f"{pid}/status": f"Name:\tx\nRssAnon:\t{anon} kB\nRssShmem:\t{shmem} kB\nVmSwap:\t1 kB\n",
        f"{pid}/io": f"rchar: 5\nread_bytes: {pid}\nwrite_bytes: 1\ncancelled_write_bytes: 0\n",
    }


def test_process_tree(tmp_path: Path) -> None:
    files: dict = {}
    for row in ((10, 1, 100, 50), (11, 10, 200, 60, 9), (12, 11, 300, 70, 20), (99, 1, 9999, 9)):
        files |= process(*row)
    write_files(tmp_path, files)
    ticks = os.sysconf("SC_CLK_TCK")
    found = ProcessTree(10, tmp_path, leave_out=12).read()
    assert found.cpu_us == 300 * 1_000_000 // ticks
    found = (whole := ProcessTree(10, tmp_path)).read()
    assert found == Usage(
        cpu_us=600 * 1_000_000 // ticks,
        memory_bytes=(180 + 20) * 1024,
        swap_bytes=3 * 1024,
        io_read_bytes=33,
        io_write_bytes=3,
    )
    assert whole.pids() == {10, 11, 12}
    # Handed to init, and still ours; the root has ended, its time is not forgotten.
    write_files(tmp_path, process(11, 1, 250, 60, 9))
    (tmp_path / "10" / "stat").unlink()
    whole._list_again = whole._look_again = 0
    assert whole.pids() == {11, 12}
    again = whole.read()
    assert again.cpu_us == 600 * 1_000_000 // ticks
    assert again.memory_bytes == (130 + 20) * 1024


def test_new_processes_are_found_at_once_and_no_others_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "_LIST_SHARE", math.inf)  # as if to list them took no time
    monkeypatch.setattr(procfs, "_LOOK_SHARE", 1e-9)
    read, real = [], procfs._stat
    monkeypatch.setattr(procfs, "_stat", lambda folder: read.append(folder) or real(folder))
    write_files(tmp_path, process(10, 1, 100, 50) | process(99, 1, 9999, 9))
    tree = ProcessTree(10, tmp_path)
    tree._began -= 3600
    assert tree.pids() == {10}
    write_files(tmp_path, process(20, 10, 5, 1) | process(21, 20, 5, 1) | process(98, 1, 5, 1))
    read.clear()
    assert tree.pids() == {10, 20, 21}
    assert {Path(folder).name for folder in read} == {"20", "21", "98"}
    read.clear()
    assert tree.pids() == {10, 20, 21}
    assert read == []


def test_no_process_left_is_unknown(tmp_path: Path) -> None:
    tmp_path.joinpath("5").mkdir()
    assert ProcessTree(77, tmp_path).read() == Usage()


def test_the_real_proc() -> None:
    found = ProcessTree(os.getpid()).read()
    assert found.cpu_us
    assert found.memory_bytes
    assert os.getpid() in all_pids()
    cpu_us, memory = own_cost()
    assert cpu_us > 0
    assert memory is not None
    assert memory > 1 << 20


def test_half_a_cgroup_is_completed(tmp_path: Path) -> None:
    folder = "system.slice/slurmstepd.scope/job_1"
    proc, root = tree(
        tmp_path,
        f"0::/{folder}/step_0\n",
        {f"{folder}/cpu.stat": "usage_usec 5\n", f"{folder}/step_0/cgroup.procs": "10\n"},
    )
    write_files(proc, process(10, 1, 100, 50))
    told: list[str] = []
    reader = NodeReader(
        10, lambda code, text, _: told.append(f"{code} {text}"), proc=proc, cgroups=root
    )
    assert reader.read() == Usage(cpu_us=5, memory_bytes=50 * 1024, swap_bytes=1024)
    assert reader.kind == "v2"
    assert len(told) == 1
    assert "memory summed" in told[0]
    assert reader.memory_limit_bytes({"SLURM_MEM_PER_NODE": "1024"}) == 1 << 30
    assert reader.memory_limit_bytes({}) is None
    assert reader.summed is None  # CPU time is of the cgroup


JOB = {"SLURM_JOB_NODELIST": "c[1-2,7]", "SLURMD_NODENAME": "c7"}


@pytest.mark.parametrize(
    ("said", "cores"),
    [
        ({"SLURM_JOB_CPUS_PER_NODE": "16"}, 16),
        ({"SLURM_JOB_CPUS_PER_NODE": "16(x3)"}, 16),
        ({"SLURM_JOB_CPUS_PER_NODE": "16(x2),4"} | JOB, 4),
        ({"SLURM_JOB_CPUS_PER_NODE": "16,4(x2)"} | JOB | {"SLURMD_NODENAME": "c1"}, 16),
        # Not known, rather than another node's.
        ({"SLURM_JOB_CPUS_PER_NODE": "16(x2),4"}, None),
        ({"SLURM_JOB_CPUS_PER_NODE": "16,4"} | JOB, None),
        ({"SLURM_JOB_CPUS_PER_NODE": "16(x2),4"} | JOB | {"SLURMD_NODENAME": "d1"}, None),
        ({"SLURM_JOB_CPUS_PER_NODE": "many"} | JOB, None),
        ({}, None),
    ],
)
def test_the_jobs_cores_here(said: dict[str, str], cores: int | None) -> None:
    """A step may have fewer of them."""
    assert job_cores({"SLURM_CPUS_ON_NODE": "2"} | said) == cores


def test_memory_that_is_given_by_core(tmp_path: Path) -> None:
    proc, root = tree(tmp_path, "0::/init.scope\n", {})
    write_files(proc, process(9, 1, 1, 1))
    reader = NodeReader(9, lambda *_: None, proc=proc, cgroups=root)
    by_core = {"SLURM_MEM_PER_CPU": "600", "SLURM_CPUS_ON_NODE": "1"}
    some = by_core | JOB | {"SLURM_JOB_CPUS_PER_NODE": "1(x2),4"}
    assert reader.memory_limit_bytes(some) == 2400 << 20
    assert reader.memory_limit_bytes(some | {"SLURM_MEM_PER_NODE": "100"}) == 100 << 20
    assert reader.memory_limit_bytes(by_core) is None


def test_it_says_of_whose_processes_cpu_time_is(tmp_path: Path) -> None:
    """Tasks of a step have one slurmstepd above them."""
    proc, root = tree(tmp_path, "0::/init.scope\n", {})
    step = {"9/comm": "slurmstepd\n", "10/comm": "sh\n", "11/comm": "sh\n"}
    rows = process(9, 1, 1, 1) | process(10, 9, 1, 1) | process(11, 9, 1, 1)
    write_files(proc, rows | process(12, 1, 1, 1) | step)
    readers = [NodeReader(pid, lambda *_: None, proc=proc, cgroups=root) for pid in (10, 11, 12)]
    assert [reader.summed for reader in readers] == ["0:9", "0:9", "0:12"]
    here = NodeReader(os.getpid(), lambda *_: None, cgroups=root)
    assert here.summed
    assert int(here.summed.partition(":")[0]) > 0


def unit(index: int, word: str = "", name: str = "H200") -> Unit:
    uuid = word or f"GPU-{index}{index}{index}{index}-x"
    return Unit(info=GpuInfo(index=index, uuid=uuid, name=name), handle=index, board=index)


FOUR = [unit(index) for index in range(4)]
SLURM = {"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "2"}


@pytest.mark.parametrize(
    ("environ", "indices", "method"),
    [
        ({}, [0, 1, 2, 3], "all_visible"),
        ({"CUDA_VISIBLE_DEVICES": "2,1"}, [2, 1], "cuda_index"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-3333-x,GPU-0000"}, [3, 0], "cuda_uuid"),
        ({"CUDA_VISIBLE_DEVICES": ""}, [], "cuda_none"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, [], "cuda_none"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, [], "cuda_none"),
        ({"CUDA_VISIBLE_DEVICES": "9"}, [], "cuda_index"),
        ({"SLURM_JOB_ID": "1"}, [], "slurm_none"),
        ({**SLURM, "SLURM_JOB_GPUS": "2-3"}, [2, 3], "slurm_job_gpus"),
        ({**SLURM, "SLURM_JOB_GPUS": "2-3", "SLURM_STEP_GPUS": "2"}, [2, 3], "slurm_job_gpus"),
        (
            {**SLURM, "SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "2,3", "SLURM_NODEID": "1"},
            [2, 3],
            "slurm_step_gpus",
        ),
        ({**SLURM, "CUDA_VISIBLE_DEVICES": "1,3"}, [1, 3], "cuda_index"),
        ({**SLURM, "SLURM_GPUS_ON_NODE": "4"}, [0, 1, 2, 3], "constrained"),
        (
            {**SLURM, "SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "0"},
            [0, 1, 2, 3],
            "constrained",
        ),
        ({**SLURM, "SLURM_JOB_GPUS": "nonsense"}, [], "slurm_none"),
    ],
)
def test_which_gpus_are_mine(environ: dict[str, str], indices: list[int], method: str) -> None:
    found = find_mine(FOUR, environ)
    assert [mine.info.index for mine in found.units] == indices
    assert found.method == method
    assert not found.shared


def test_what_does_not_fit_is_said() -> None:
    assert find_mine(FOUR, {"CUDA_VISIBLE_DEVICES": "GPU-9"}).doubt
    assert find_mine(FOUR, {"CUDA_VISIBLE_DEVICES": "0,9"}).doubt
    assert find_mine(FOUR, {**SLURM, "SLURM_GPUS_ON_NODE": "8"}).doubt
    unlike = [unit(0, name="H200"), unit(1, name="L40S")]
    assert find_mine(unlike, {"CUDA_VISIBLE_DEVICES": "0"}).doubt
    ordered = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert not find_mine(unlike, ordered).doubt


def test_shares_are_marked() -> None:
    assert find_mine(FOUR, {"SLURM_SHARDS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"}).shared
    mps = {"SLURM_JOB_ID": "1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    assert find_mine(FOUR, mps).shared


def mean_permille(since_us: int, pairs: list[tuple[int, int]]) -> int | None:
    gathered = Utilization()
    add_buffer(gathered, since_us, pairs)
    return gathered.take()


def test_mean_of_the_drivers_buffer() -> None:
    assert mean_permille(0, [(10, 0), (20, 100)]) == 500
    assert mean_permille(0, [(10, 50), (40, 100)]) == 875
    # The buffer begins long after the last look: its first value is not worth that time.
    assert mean_permille(0, [(1000, 0), (1010, 100)]) == 500
