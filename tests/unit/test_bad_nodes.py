"""Nodes that looked bad: who is blamed, what is remembered and for how long, and what jobs do."""

import errno
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.api.bad_nodes import learn_of_run
from hpckit.bad_nodes.node_events import events_of
from hpckit.bad_nodes.node_memory import NodeEvent, bad_nodes, forget, read_memory, remember
from hpckit.errors import OutsideError
from hpckit.job_ends.restarts import earlier_ends
from hpckit.paths import bad_nodes_path
from hpckit.payload.recorder import slurm_node
from hpckit.report.node_faults import counted_events
from hpckit.run_folders.ranks import Fault, RankRecord, read_ranks, write_rank
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState
from hpckit.stats.summary.figures import GpuUse, JobUse
from tests.conftest import Answer, write_files
from tests.unit.made import PLAN, make_run, rank
from tests.unit.recorded import slurm_said

Cli = Callable[..., Answer]
DAY = 86_400.0
ECC = Fault(what="CUDA: uncorrectable ECC error", words="CUDA error: uncorrectable ECC error")
NO_GPU = Fault(what="CUDA: no usable GPU", words="no CUDA-capable device", sure=False)
FAILED = {"exit_code": 1, "ended": 20.0, "error": "RuntimeError"}
STOPPED = {"exit_code": 143, "ended": 21.0, "consequence": True}
GOOD = {"exit_code": 0, "ended": 30.0}
GONE: dict[str, Any] = {}


def event(
    host: str = "n1", days_ago: float = 0, job: str | None = "7", **changes: Any
) -> NodeEvent:
    values = {"cluster": "box", "host": host, "what": "Xid 79", "when": 1e9 - days_ago * DAY}
    return NodeEvent(**{**values, "job_id": job, **changes})


def pair(root: Path, *ends: dict[str, Any], log: str = "", **changes: Any) -> Run:
    """Make a run of a rank on each of c1, c2..., with these ends."""
    run = make_run(root, f"r{len(list(root.iterdir()))}", **changes)
    for number, end in enumerate(ends):
        where = {"host": f"c{number + 1}", "node": f"c{number + 1}", "cluster": "box"}
        write_rank(run.dir, rank(number, **{**where, **end}))
    (run.dir / "job.out").write_text(log)
    return run


def told(run: Run, state: JobState = JobState.FAILED) -> list[tuple[str, str]]:
    ranks = read_ranks(run.dir)
    newest = max(row.restart for row in ranks)
    found = events_of(run, ranks, state, earlier_ends(run, newest))
    return [(row.host, row.what) for row in found]


LOST = [
    "srun: error: Node failure on c2\n",
    "slurmstepd-c1: error: *** JOB 7 ON c1 CANCELLED AT 2026-11-22T20:38:23 DUE TO NODE FAILURE, "
    "SEE SLURMCTLD LOG FOR DETAILS ***\n",
]


def two(**changes: Any) -> dict[str, Any]:
    return {"plan": {**PLAN, "ranks": 2}, **changes}


def test_hardware_is_blamed_where_its_rank_wrote_of_it(tmp_path: Path) -> None:
    ecc = [("c2", ECC.what)]
    assert told(pair(tmp_path, STOPPED, FAILED | {"fault": ECC}, **two())) == ecc
    # The other one's failure ended the rank that had met it.
    assert told(pair(tmp_path, FAILED, STOPPED | {"fault": ECC}, **two())) == ecc
    everywhere = FAILED | {"fault": ECC}
    assert told(pair(tmp_path, everywhere, everywhere, **two())) == []
    assert told(pair(tmp_path, FAILED, FAILED, **two())) == []
    assert told(pair(tmp_path, everywhere, **two())) == [("c1", ECC.what)]
    assert told(pair(tmp_path, GOOD, FAILED | {"fault": ECC}), JobState.COMPLETED) == []
    assert told(pair(tmp_path, GOOD, FAILED | {"fault": ECC}), JobState.RUNNING) == []
    local = pair(tmp_path, GOOD, FAILED | {"fault": ECC}, **two(executor="local"))
    assert told(local) == []
    nameless = FAILED | {"fault": ECC, "node": None}
    assert told(pair(tmp_path, GOOD, nameless, **two())) == []
    hostile = FAILED | {"fault": ECC, "node": "c2,c3"}
    assert told(pair(tmp_path, GOOD, hostile, **two())) == []


def test_a_missing_gpu_needs_gpus_asked_for_and_a_rank_that_had_one(tmp_path: Path) -> None:
    gone = FAILED | {"fault": NO_GPU}
    peer = FAILED | {"error": "RuntimeError: Connection closed by peer [::1]:1"}
    assert told(pair(tmp_path, peer, gone, **two())) == [("c2", NO_GPU.what)]
    assert told(pair(tmp_path, STOPPED, gone, **two())) == []
    assert told(pair(tmp_path, gone, **two())) == []
    no_gpus = {**PLAN, "ranks": 2, "total_gpus": 0}
    assert told(pair(tmp_path, peer, gone, plan=no_gpus)) == []


def test_a_lost_node_is_blamed_by_slurms_word(tmp_path: Path) -> None:
    lost = [("c2", "the node was lost (Slurm)")]
    assert told(pair(tmp_path, STOPPED, GONE, log="".join(LOST), **two())) == lost
    assert told(pair(tmp_path, STOPPED, GONE, log=LOST[0], **two())) == lost
    assert told(pair(tmp_path, STOPPED, GONE, log=LOST[1], **two())) == []  # Slurm names none
    assert told(pair(tmp_path, STOPPED, GONE, log=LOST[1], **two()), JobState.NODE_FAIL) == lost
    # Both are without an end, or one never began: it may be the other.
    assert told(pair(tmp_path, GONE, GONE, **two()), JobState.NODE_FAIL) == []
    assert told(pair(tmp_path, GONE, **two()), JobState.NODE_FAIL) == []
    # Killed from outside, and not with a node.
    assert told(pair(tmp_path, STOPPED, GONE, **two())) == []
    # A node that is none of the job's: the log is anyone's.
    strange = "srun: error: Node failure on c9\n"
    assert told(pair(tmp_path, STOPPED, GONE, log=strange, **two())) == []
    local = pair(tmp_path, STOPPED, GONE, log=LOST[0], **two(executor="local"))
    assert told(local, JobState.NODE_FAIL) == []


def test_each_attempt_speaks_of_its_own_nodes(tmp_path: Path) -> None:
    run = pair(tmp_path, FAILED | {"fault": ECC}, STOPPED, log="requeued\n", **two())
    later: dict[str, Any] = {"restart": 1, "node": "c5", "host": "c5", "cluster": "box"}
    write_rank(run.dir, rank(0, **later, **FAILED, log_start=9))
    write_rank(run.dir, rank(1, **later, **STOPPED, log_start=9))
    assert told(run) == [("c1", ECC.what)]
    assert told(run, JobState.COMPLETED) == [("c1", ECC.what)]
    [found] = events_of(run, read_ranks(run.dir), JobState.RUNNING, earlier_ends(run, 1))
    assert (found.job_id, found.restart, found.when) == ("11", 0, 20.0)
    # The next job of a chain follows whatever ended the one before.
    killed = pair(tmp_path, GONE, **two(plan={**PLAN, "ranks": 1}, chain=["11", "12"]))
    write_rank(killed.dir, rank(0, **later, **FAILED))
    assert told(killed) == []
    alone = pair(tmp_path, GONE, **two(plan={**PLAN, "ranks": 1}))
    write_rank(alone.dir, rank(0, **later, **FAILED))
    assert told(alone) == [("c1", "the node was lost (Slurm)")]
    chain = pair(tmp_path, FAILED | {"fault": ECC, "restart": 1}, **two(chain=["11", "12"]))
    earlier = earlier_ends(chain, 1)
    [found] = events_of(chain, read_ranks(chain.dir), JobState.FAILED, earlier)
    assert found.job_id == "12"


@pytest.mark.parametrize(
    ("host", "environ", "by_srun", "name"),
    [
        ("c2", {"SLURMD_NODENAME": "c2"}, True, "c2"),
        ("c2.lab.org", {"SLURMD_NODENAME": "c2"}, False, "c2"),
        ("ip-10-0-0-7", {"SLURMD_NODENAME": "gpu-7"}, True, "gpu-7"),
        # MPICH's mpirun gives all ranks its own node's variables.
        ("c2", {"SLURMD_NODENAME": "c1", "SLURM_JOB_NODELIST": "c[1-2]"}, False, "c2"),
        ("ip-7", {"SLURMD_NODENAME": "c1", "SLURM_JOB_NODELIST": "c[1-2]"}, False, None),
        ("laptop", {}, False, None),
    ],
)
def test_a_node_is_called_as_slurm_calls_it(
    host: str, environ: dict[str, str], by_srun: bool, name: str | None
) -> None:
    assert slurm_node(host, environ, by_srun=by_srun) == name


def test_an_event_is_remembered_once_and_for_some_days(here: Path) -> None:
    assert remember([event(), event()], 1e9) == (event(),)
    assert remember([event()], 1e9 + 5) == ()
    assert bad_nodes_path().stat().st_mode & 0o777 == 0o600
    memory = read_memory()
    assert memory.events == (event(),)
    for days, known in ((0, True), (13.9, True), (14.1, False), (400, False)):
        assert bool(bad_nodes(memory.events, 1e9 + days * DAY)) is known
    assert bad_nodes(memory.events, 1e9 + 2 * DAY, days=1) == []
    assert bad_nodes(memory.events, 1e9, cluster="other") == []


def test_a_node_on_which_several_jobs_failed_counts_longer() -> None:
    rows = [event(days_ago=20, job="1"), event(days_ago=15, job="2")]
    [node] = bad_nodes(rows, 1e9)
    assert (node.host, node.what) == ("n1", "Xid 79 (2 jobs)")
    assert node.until == 1e9 + 13 * DAY  # twice 14 days after the newest
    same = [event(days_ago=20, restart=0), event(days_ago=15, restart=1)]
    assert bad_nodes(same, 1e9) == []  # attempts of one job
    assert bad_nodes([event(days_ago=20, job="5_1"), event(days_ago=15, job="5_2")], 1e9) == []
    many = [event(days_ago=1, job=str(number)) for number in range(50)]
    [node] = bad_nodes(many, 1e9)
    assert node.until == 1e9 + 55 * DAY  # four times at most
    by_hand = replace(event(days_ago=1), what="slow", job_id=None)
    [node] = bad_nodes([event(days_ago=2), by_hand], 1e9)
    assert (node.what, node.until) == ("slow", 1e9 + 13 * DAY)  # of one job, and of nobody's


def test_the_newest_come_first_and_clocks_that_jump_change_little(here: Path) -> None:
    rows = [event("n1", 3), event("n2", 1), event("n3", 2)]
    assert [row.host for row in bad_nodes(rows, 1e9)] == ["n2", "n3", "n1"]
    # A node's clock may be ahead: what is written down is not.
    remember([event("n4", -300)], 1e9)
    assert read_memory().events[0].when == 1e9
    assert bad_nodes(read_memory().events, 1e9 - 3 * DAY) == []  # this clock was put back
    assert len(bad_nodes(read_memory().events, 1e9 - 0.5 * DAY)) == 1


def test_what_is_forgotten_is_not_learned_again(here: Path) -> None:
    remember([event(), event("n2")], 1e9)
    forget([("box", "n1")], 1.0)  # whatever the clock says: lines have an order
    assert [row.host for row in read_memory().events] == ["n2"]
    assert remember([event()], 1e9) == ()
    assert [row.host for row in read_memory().events] == ["n2"]
    remember([event(job="8")], 1e9)
    assert {row.host for row in read_memory().events} == {"n1", "n2"}


def test_damaged_lines_cost_themselves_alone(here: Path) -> None:
    remember([event()], 1e9)
    whole = bad_nodes_path().read_bytes()
    rows = [
        b"\xff\x00",
        b'{"cluster": "box"',
        b'{"cluster": "box", "host": "n1,n2", "when": 1.0}',
        b'{"cluster": "box", "host": "$(reboot)", "when": 1.0}',
        b'{"cluster": "a b", "host": "n1", "when": 1.0}',
        b'{"cluster": "box", "host": "n1", "when": "soon"}',
        b'{"cluster": "box", "host": "n3", "when": 1e30}',
    ]
    bad_nodes_path().write_bytes(b"\n".join(rows) + b"\n" + whole + whole[:30])  # killed meanwhile
    memory = read_memory()
    assert memory.events == (event(),)
    assert memory.trouble.startswith("8 of the lines of ")
    remember([event("n2")], 1e9)
    assert [row.host for row in read_memory().events] == ["n1", "n2"]


def test_names_that_are_none_are_not_written(here: Path) -> None:
    names = ("n1,n2", "n[1-3]", "-n", "n1\nn2", "", "n1 ", "n" * 200, "\u00fc1")
    assert remember([event(name) for name in names], 1e9) == ()
    assert remember([event(cluster="a b"), event(cluster="")], 1e9) == ()
    assert not bad_nodes_path().exists()
    remember([event(what="a\nb\x1b[31m", words="\r" * 5000)], 1e9)
    [row] = read_memory().events
    assert "\n" not in row.what + row.words
    assert "\x1b" not in row.what
    assert len(bad_nodes_path().read_bytes()) < 2000


def test_a_file_of_others_is_not_believed_nor_added_to(here: Path) -> None:
    remember([event()], 1e9)
    bad_nodes_path().chmod(0o666)
    memory = read_memory()
    assert (memory.events, memory.usable) == ((), False)
    assert "everybody may write to it (chmod 600 " in memory.trouble
    before = bad_nodes_path().read_bytes()
    with pytest.raises(OutsideError, match="Nothing is remembered"):
        remember([event("n2")], 1e9)
    assert bad_nodes_path().read_bytes() == before
    bad_nodes_path().unlink()
    bad_nodes_path().symlink_to(here / "elsewhere")
    with pytest.raises(OutsideError, match="cannot be written"):
        remember([event("n2")], 1e9)
    assert not (here / "elsewhere").exists()


def test_a_full_disk_leaves_whole_lines(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember([event()], 1e9)
    whole, real = bad_nodes_path().read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: real(descriptor, text[:10]))
    with pytest.raises(OutsideError, match=os.strerror(errno.ENOSPC)):
        remember([event("n2")], 1e9)
    assert bad_nodes_path().read_bytes() == whole


def _many() -> None:
    for number in range(40):
        remember([event(f"n{number}")], 1e9)


@pytest.mark.long
def test_many_at_once_write_each_event_once(here: Path) -> None:
    context = multiprocessing.get_context("fork")
    writing = [context.Process(target=_many) for _ in range(4)]
    for row in writing:
        row.start()
    for row in writing:
        row.join()
        assert row.exitcode == 0
    assert len(bad_nodes_path().read_text().splitlines()) == 40


def failed_run(root: Path) -> Run:
    root.mkdir(exist_ok=True)
    now = {"ended": time.time() - 7200, "started": time.time() - 9000}
    fault = FAILED | now | {"fault": ECC}
    return pair(root, STOPPED | now, fault, **two(submitted_at=time.time() - 9000))


@pytest.fixture
def box(fake_slurm: Path) -> Path:
    """Answer as a cluster of two nodes, c1 and c2, each with 4 GPUs, does."""
    config = slurm_said("scontrol-config-22.05.8.txt")
    (fake_slurm / "scontrol.out").write_text(config + slurm_said("scontrol-partition-22.05.8.txt"))
    (fake_slurm / "sinfo.out").write_text(slurm_said("sinfo-22.05.8.txt"))
    return fake_slurm


def remembered(*rows: NodeEvent) -> None:
    now = time.time()
    remember([event(row.host, when=now - 7200, what=row.what, job=row.job_id) for row in rows], now)


def calls(folder: Path) -> list[str]:
    path = folder / "calls.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [" ".join(json.loads(line)[:3]) for line in lines]


SUBMIT = ("submit", "ddp", "--dry-run", "--gpus", "1", "--time", "5")


def test_a_job_says_which_nodes_looked_bad_and_leaves_them_out_if_asked(
    here: Path, box: Path, cli: Cli
) -> None:
    remembered(event("c2"))
    said = cli(*SUBMIT)
    note = "note: nodes that looked bad: c2 (Xid 79, job 7, 2 h 00 min ago). --exclude-bad leaves"
    assert note in said.err
    assert "--exclude" not in said.out
    said = cli(*SUBMIT, "--exclude-bad")
    assert "#SBATCH --exclude=c2\n" in said.out
    assert "note: left out by --exclude-bad: c2 (Xid 79, job 7, " in said.err
    said = cli(*SUBMIT, "--exclude-bad", "--skip-check", "bad-nodes")
    assert "--exclude" not in said.out
    assert "c2" not in said.err


def test_where_nothing_is_remembered_slurm_is_not_asked(here: Path, box: Path, cli: Cli) -> None:
    assert "bad" not in cli(*SUBMIT).err
    assert "no bad node is known, so none is left out" in cli(*SUBMIT, "--exclude-bad").err
    remember([event("c2")], 1e9)  # long ago
    assert "bad" not in cli(*SUBMIT).err
    assert calls(box) == []
    remembered(event("c2", job="9"))
    config = (box / "scontrol.out").read_text()
    (box / "scontrol.out").write_text(config.replace("= box", "= other"))
    assert "c2" not in cli(*SUBMIT).err  # of another cluster


def test_a_request_that_leaves_too_few_nodes_is_refused(here: Path, box: Path, cli: Cli) -> None:
    remembered(event("c2"))
    said = cli(*SUBMIT, "--exclude-bad", "--nodes", "2")
    assert said.status == 2
    assert "--exclude-bad leaves 1 of 2 nodes of partition gpu, and the job asks for 2" in said.err
    assert "--skip-check bad-nodes" in said.err
    said = cli(*SUBMIT, "--exclude-bad", "--exclude", "c1")
    assert said.status == 2
    assert "leaves 0 of 1 nodes" in said.err
    said = cli(*SUBMIT, "--exclude-bad", "--sbatch", "nodelist=c[2-3]")
    assert said.status == 2
    assert "leaves out c2, which --sbatch nodelist asks for" in said.err
    # With more nodes than there are it would wait in any case: that is not ours to say.
    assert cli(*SUBMIT, "--exclude-bad", "--nodes", "5").status == 0


def test_names_that_sbatch_would_refuse_are_not_given_to_it(
    here: Path, box: Path, cli: Cli
) -> None:
    remembered(event("c2"), event("renamed-7"))
    said = cli(*SUBMIT, "--exclude-bad", "--exclude", "c2")
    assert "#SBATCH --exclude=c2\n" in said.out
    assert "the cluster has no such node, so it is not left out: renamed-7" in said.err


def test_slurm_that_is_silent_refuses_a_job_but_no_preview(here: Path, box: Path, cli: Cli) -> None:
    remembered(event("c2"))
    (box / "scontrol.out").unlink()
    (box / "scontrol.err").write_text(
        "slurm_load_ctl_conf error: Unable to contact slurm controller"
    )
    (box / "scontrol.rc").write_text("1")
    assert "its bad nodes are unknown" in cli(*SUBMIT, "--exclude-bad").err
    words = [word for word in SUBMIT if word != "--dry-run"]
    said = cli(*words, "--exclude-bad", "--check")
    assert said.status == 3
    assert "Slurm does not say which cluster this is" in said.err
    assert "looked bad" not in cli(*SUBMIT).err


def test_a_local_run_leaves_none_out_and_says_so(here: Path, box: Path, cli: Cli) -> None:
    remembered(event("c2"))
    local = (*SUBMIT, "--executor", "local", "--gpus", "0")
    assert "c2" not in cli(*local).err
    said = cli(*local, "--exclude-bad")
    assert "--exclude-bad is for Slurm, and this run is for executor 'local'" in said.err


def test_sites_and_users_may_leave_them_out_always(here: Path, box: Path, cli: Cli) -> None:
    site = "description: x\nidentify: {HOME: '*'}\n"
    write_files(here, {"templates/sites/box.yaml": site + "defaults: {exclude_bad: true}\n"})
    remembered(event("c2"))
    assert "left out by site box (defaults): c2" in cli(*SUBMIT).err
    config = here.parent / "home/.config/hpckit/config.yaml"
    write_files(config.parent, {"config.yaml": "bad_nodes: {exclude: false, days: 30}\n"})
    config.chmod(0o600)
    assert "--exclude-bad leaves them out" in cli(*SUBMIT).err
    config.write_text("bad_nodes: {exclude: true, days: 0.01}\n")
    assert "c2" not in cli(*SUBMIT).err  # 2 h are more than that
    config.write_text("bad_nodes: {exclude: true}\n")
    write_files(here, {"templates/sites/box.yaml": site})
    assert "left out by your config.yaml (bad_nodes): c2" in cli(*SUBMIT).err
    config.chmod(0o644)
    said = cli(*SUBMIT, "--skip-check", "notify")
    assert said.status == 2
    assert "chmod 600" in said.err
    assert "(--skip-check bad-nodes submits it anyway.)" in said.err
    # Who is notified stands in the same file: one switch was named, and then the other.
    for text, mode in (("notify: {}\n", 0o644), ("notify: [x\n", 0o600)):
        config.write_text(text)
        config.chmod(mode)
        said = cli(*SUBMIT)
        both = "--skip-check bad-nodes --skip-check notify"
        assert said.status == 2
        assert f"({both} submits it anyway.)" in said.err
        assert cli(*SUBMIT, *both.split()).status == 0
    config.write_text("bad_nodes: {days: -1}\n")
    assert "(--skip-check bad-nodes submits it anyway.)" in cli(*SUBMIT).err


def test_a_sites_file_names_nodes(here: Path, box: Path, cli: Cli) -> None:
    site = "description: x\nidentify: {HOME: '*'}\nbad_nodes: "
    path = here / "templates/sites/box.yaml"
    write_files(here, {"templates/sites/box.yaml": site + "{hosts: 'c[2,8]', days: 3}\n"})
    said = cli(*SUBMIT, "--exclude-bad")
    assert "#SBATCH --exclude=c2\n" in said.out
    assert "c2 (named by the site's file)" in said.err
    [first, _] = json.loads(cli("bad-nodes", "--json").out)["nodes"]
    assert first == {
        "host": "c2", "cluster": None, "what": "named by the site's file", "until": None,
        "events": [],
    }  # fmt: skip
    for wrong, why in (
        ("{hosts: 'c[2'}", "cannot be read"),
        ("{hosts: ['$(reboot)']}", "is not the name of a node"),
        ("{days: 0}", "must be more than 0"),
        ("{exclude: true}", "unknown key 'exclude'"),
        ("[c2]", "must be a mapping"),
    ):
        path.write_text(site + wrong + "\n")
        said = cli(*SUBMIT, "--exclude-bad")
        assert said.status == 2
        assert f"{path}:3" in said.err
        assert why in said.err
    path.write_text(f"{site}{{hosts: c2}}\nlaunch: {{sbatch_args: ['--exclude=c1']}}\n")
    said = cli(*SUBMIT, "--exclude-bad")
    assert said.status == 2
    assert "--exclude in the sbatch_args of site 'box'" in said.err


def test_what_a_run_tells_is_learned_by_looking_at_it(here: Path, box: Path, cli: Cli) -> None:
    run = failed_run(here / "runs")
    said = cli("status", run.run_id)
    how = "Leave it out: hpckit resubmit 11 --exclude-bad"
    assert f"note     node c2 looked bad: {ECC.what}. {how}" in said.out
    [row] = read_memory().events
    assert (row.host, row.cluster, row.job_id, row.words) == ("c2", "box", "11", ECC.words)
    document = json.loads(cli("status", run.run_id, "--json").out)
    assert document["bad_nodes"] == [{"host": "c2", "what": ECC.what, "restart": 0}]
    assert f"note: node c2 looked bad: {ECC.what}" in cli("logs", run.run_id, "--errors").err
    assert f"node c2 looked bad: {ECC.what}" in cli("stats", run.run_id, "--all").out
    assert learn_of_run(run)
    cli("jobs")
    assert len(read_memory().events) == 1
    assert "c2" in cli("bad-nodes").out


def test_a_session_is_not_told_to_be_submitted_again(here: Path, box: Path, cli: Cli) -> None:
    run = failed_run(here / "runs")
    session = {"session": {"kind": "shell", "idle_s": None}}
    (run.dir / "run.json").write_text(json.dumps({**run.record, **session}))
    said = cli("status", run.run_id)
    assert "Leave it out: hpckit shell --exclude-bad\n" in said.out
    assert "resubmit" not in said.out


def test_a_run_that_others_may_have_written_teaches_nothing(
    here: Path, box: Path, cli: Cli
) -> None:
    run = failed_run(here / "runs")
    (run.dir / "run.json").chmod(0o666)
    assert "node c2 looked bad" in cli("status", run.run_id).out
    cli("stats", run.run_id)
    assert not bad_nodes_path().exists()


def test_a_state_folder_that_cannot_be_written_costs_only_the_memory(
    here: Path, box: Path, cli: Cli
) -> None:
    run = failed_run(here / "runs")
    (here.parent / "home/.local").write_text("no folder")
    said = cli("status", run.run_id)
    assert said.status == 0
    assert "node c2 looked bad" in said.out


def test_nodes_are_added_listed_and_forgotten_by_hand(here: Path, box: Path, cli: Cli) -> None:
    assert "No bad node of cluster box is known." in cli("bad-nodes").err
    said = cli("bad-nodes", "--add", "c1", "--why", "GPU 3 is slow")
    assert "GPU 3 is slow" in said.out
    hpckit.add_bad_node("c9", "old", cluster="other")
    found = hpckit.bad_nodes()
    assert [(row.host, row.what, row.events[0].job_id) for row in found] == [
        ("c1", "GPU 3 is slow", None)
    ]
    assert (found.cluster, found.days) == ("box", 14.0)
    assert [row.host for row in hpckit.bad_nodes("other")] == ["c9"]
    document = json.loads(cli("bad-nodes", "--json").out)
    assert document == found.document()
    assert document["file"] == str(bad_nodes_path())
    assert cli("bad-nodes", "--forget", "c1").status == 0
    assert hpckit.bad_nodes() == []
    hpckit.forget_bad_node("c9", cluster="other")
    assert hpckit.bad_nodes("other") == []


def test_several_nodes_are_added_and_forgotten_together(here: Path, box: Path, cli: Cli) -> None:
    assert cli("bad-nodes", "--add", "c1", "--add", "c2", "--why", "slow").status == 0
    assert sorted(row.host for row in hpckit.bad_nodes()) == ["c1", "c2"]
    assert "of node 'c7'" in cli("bad-nodes", "--forget", "c1", "--forget", "c7").err
    assert "'c[7-8]' is not" in cli("bad-nodes", "--add", "c3", "--add", "c[7-8]", "--why", "x").err
    assert sorted(row.host for row in hpckit.bad_nodes()) == ["c1", "c2"]
    assert cli("bad-nodes", "--forget", "c1", "--forget", "c2").status == 0
    assert hpckit.bad_nodes() == []


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("--add", "c1"), 2, "--add HOST and --why TEXT go together"),
        (("--add", "c1", "--why", " "), 2, "give a reason"),
        (("--add", "c[1-2]", "--why", "x"), 2, "is not the name of one node"),
        (("--add", "c1", "--why", "x", "--cluster", "a b"), 2, "is not the name of a cluster"),
        (("--forget", "c1"), 2, "Nothing is remembered of node 'c1' of cluster box"),
        (("--forget", "../x"), 2, "is not the name of one node"),
    ],
)
def test_wrong_words(
    here: Path, box: Path, cli: Cli, words: tuple[str, ...], status: int, why: str
) -> None:
    said = cli("bad-nodes", *words)
    assert said.status == status
    assert why in said.err
    assert not bad_nodes_path().exists()


def test_without_slurm_a_cluster_must_be_named(here: Path, cli: Cli) -> None:
    said = cli("bad-nodes", "--add", "c1", "--why", "x")
    assert said.status == 3
    assert "--cluster" in said.err
    assert cli("bad-nodes", "--add", "c1", "--why", "x", "--cluster", "box").status == 0
    assert "c1" in cli("bad-nodes").out  # of all clusters


def test_a_rank_record_of_before_has_none_of_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_rank(run.dir, rank(0, **FAILED))
    path = run.dir / "ranks/0.json"
    rows = json.loads(path.read_text())
    for name in ("node", "cluster", "fault"):
        del rows["attempts"][0][name]
    path.write_text(json.dumps(rows))
    [row] = read_ranks(run.dir)
    assert isinstance(row, RankRecord)
    assert (row.node, row.cluster, row.fault) == (None, None, None)


@pytest.mark.parametrize("host", ["c2", "gpu-2"])  # the node's name of itself, and Slurm's
def test_what_the_sampler_saw_is_told_of_the_ranks_node(tmp_path: Path, host: str) -> None:
    run = pair(tmp_path, GOOD, GOOD | {"node": "gpu-2"}, **two())
    lost = "nvmlDeviceGetMemoryInfo: GPU is lost (NVML error 15)"
    gpus = (
        GpuUse(host="c1", index=0, uuid="GPU-a", ecc_uncorrected=0),
        GpuUse(host="c1", index=1, uuid="GPU-b", lost=True, lost_error="Unknown Error"),
        GpuUse(host=host, index=3, uuid="GPU-c", ecc_uncorrected=4),
        GpuUse(host=host, index=2, uuid="GPU-d", lost=True, lost_error=lost),
        GpuUse(host=host, index=1, uuid="GPU-e", lost=True, lost_error=lost, back_at=9.0),
        GpuUse(host="elsewhere", index=0, uuid="GPU-f", ecc_uncorrected=4),
    )
    found = list(counted_events(run, JobUse(job_id="11", end=50.0, per_gpu=gpus)))
    assert [(row.host, row.what, row.when) for row in found] == [
        ("gpu-2", "uncorrectable GPU memory errors, counted by the driver", 50.0),
        ("gpu-2", "a GPU was lost", 50.0),
    ]
    assert found[0].words == "4 on GPU 3, UUID GPU-c"
    local = pair(tmp_path, GOOD, GOOD, **two(executor="local"))
    assert not list(counted_events(local, JobUse(job_id="11", per_gpu=gpus)))
