"""What samples say of a session's use, and what its job is made of."""

import socket
from pathlib import Path

import pytest

from hpckit.api.sessions import prepare_session
from hpckit.errors import RequestError
from hpckit.session.activity import Activity
from hpckit.session.folder import END, write_private
from hpckit.session.host import Asked, host_words, parse
from hpckit.session.idle import Reading
from hpckit.session.notes import session_notes
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import GpuInfo, GpuSample, Header, Sample, file_name


class Node:
    """This node's sampler, ten seconds at a time."""

    def __init__(self, folder: Path, *, gpus: int, restart: int = 0, host: str = "") -> None:
        folder.mkdir(exist_ok=True)
        host = host or socket.gethostname()
        table = tuple(GpuInfo(index=at, uuid=f"GPU-{at}") for at in range(gpus))
        self.path = folder / file_name(host, restart, 7)
        self.encode = encoder(gpus)
        self.now = self.cpu = self.own = 10**9
        header = Header(host=host, boot_id="b", pid=7, epoch_us=1, mono_us=self.now,
                        interval_us=10**7, gpus=table)  # fmt: skip
        self.path.write_bytes(self.encode(header))

    def sample(self, *permille: int | None, cores: float | None = 0.0, own: float = 0.0) -> None:
        self.now += 10**7
        self.own += round(own * 10**7)
        self.cpu += round(((cores or 0.0) + own) * 10**7)
        gpus = tuple(GpuSample(utilization_permille=value) for value in permille)
        cpu = None if cores is None else self.cpu
        sample = Sample(mono_us=self.now, cpu_us=cpu, own_cpu_us=self.own, gpus=gpus)
        with self.path.open("ab") as stream:
            stream.write(self.encode(sample))


def busy(folder: Path, node: Node, *permille: int | None, gpus: int = 0, **words) -> bool | None:
    """Say what one sample means, after one that is idle."""
    look = Activity(folder, 0, gpus)
    node.sample(*(0 for _ in permille))
    node.sample(*permille, **words)
    found = look.new()[-1]
    assert found == Reading(at_s=node.now / 1e6, busy=found.busy)
    return found.busy


def test_gpus_and_cores_are_use(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus=2)
    assert busy(tmp_path, node, 0, 0) is False
    assert busy(tmp_path, node, 0, 30) is False
    assert busy(tmp_path, node, 0, 31) is True
    assert busy(tmp_path, node, 0, 0, cores=0.04) is False
    assert busy(tmp_path, node, 0, 0, cores=0.06) is True
    assert busy(tmp_path, node, 0, 0, own=0.5) is False  # the sampler itself


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus=2)
    assert busy(tmp_path, node, 0, None) is None
    assert busy(tmp_path, node, None, 900) is True
    assert busy(tmp_path, node, 0, 0, gpus=2) is False
    assert busy(tmp_path, node, 0, 0, gpus=4) is None  # the job has more than the samples
    assert busy(tmp_path, node, 0, 0, cores=None) is None


def test_only_this_attempts_samples_and_only_what_is_new(tmp_path: Path) -> None:
    look = Activity(tmp_path / "samples", 1)
    assert look.new() == []
    before = Node(tmp_path / "samples", gpus=0)
    before.sample(cores=1.0)
    before.sample(cores=1.0)
    assert look.new() == []
    node = Node(tmp_path / "samples", gpus=0, restart=1)
    node.sample()
    assert look.new() == []  # there is nothing to compare with
    node.sample(cores=2.0)
    node.sample()
    assert [row.busy for row in look.new()] == [True, False]
    assert look.new() == []


def test_a_node_is_called_as_slurm_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its samples are: its own name may be `n1.cluster.example.org`."""
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    assert busy(tmp_path, Node(tmp_path, gpus=1, host="gpu-7"), 900) is True


def test_a_host_understands_its_own_words() -> None:
    for asked in (
        Asked(kind="shell", command=("bash",)),
        Asked(kind="shell", command=("a", "--", "--idle=3"), idle_s=90.0, interval_s=0.5, gpus=4),
        Asked(kind="shell", command=("bash",), container="/images/a b.sqsh"),
    ):
        assert parse(host_words(asked)) == asked


def test_a_sessions_job(tmp_path: Path) -> None:
    words = {"gpus": "2", "executor": "slurm", "time": "2h"}
    found = prepare_session("shell", words, program="bash", idle="30m", runs=tmp_path, preview=True)
    at = found.job.command.index("hpckit.session.host")
    assert found.job.command[at + 1 :] == (
        *("shell", "--idle=1800", "--interval=10", "--gpus=2", "--", "bash"),
    )
    assert found.session == {"kind": "shell", "idle_s": 1800.0}
    assert (found.job.name, found.job.ranks, found.job.time_min) == ("shell", 1, 120)
    assert not found.code.keeps
    assert prepare_session("shell", {}, program="bash", preview=True).job.gpus_per_node == 0


def test_in_a_container_the_host_is_outside_and_the_program_inside(tmp_path: Path) -> None:
    (tmp_path / "x.sif").touch()
    words = {"env": f"apptainer:{tmp_path}/x.sif", "executor": "slurm"}
    words["site"] = "generic"
    job = prepare_session("shell", words, program="zsh", in_container="bash", preview=True).job
    assert job.notes == ()
    command = job.command
    at = command.index("apptainer")
    assert command[at - 1] == "--"
    assert command[at:] == ("apptainer", "exec", "--nv", f"{tmp_path}/x.sif", "bash")


@pytest.mark.parametrize("word", ["array", "chain", "nodes", "launcher", "max_requeues"])
def test_what_means_nothing_for_a_session_is_refused(word: str) -> None:
    with pytest.raises(RequestError, match=f"no option '{word}'"):
        prepare_session("shell", {word: 2}, program="bash", preview=True)


def test_status_says_how_a_session_is_reached_and_why_it_ended(tmp_path: Path) -> None:
    record = {"session": {"kind": "shell", "idle_s": None}, "job_id": "7"}
    assert session_notes(record, tmp_path, over=False, waiting=True) == []
    assert session_notes(record, tmp_path, over=False, waiting=False) == [
        "a session; go there: hpckit shell 7"
    ]
    assert session_notes(record, tmp_path, over=True, waiting=False) == []
    write_private(tmp_path, END, {"why": "idle", "idle_s": 1810.2})
    assert session_notes(record, tmp_path, over=True, waiting=False) == [
        "hpckit ended this session: idle for 30 min 10 s (--idle)"
    ]
    assert session_notes({"job_id": "7"}, tmp_path, over=True, waiting=False) == []
