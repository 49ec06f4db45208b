"""Odd rows of accounting: each figure of the job is right, or unknown; never an invented one.

A healthy job stands beside each: what a case does not say is as there.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpckit.report import targets
from hpckit.report.gather import gather
from hpckit.report.identity import identify
from hpckit.report.known_job import KnownJob
from hpckit.report.targets import find_targets
from hpckit.slurm import usage
from hpckit.slurm.states import JobRecord, JobState, unstarted
from hpckit.slurm.usage_rows import FIXED, FREE, parse_usage
from hpckit.stats.document import job_document
from tests.unit.made import PLAN, make_run

Row = Mapping[str, str]
MARK = "\x1f%\x1f"
START = 1_790_000_000
GIB = 1 << 30
INFINITE, NO_VAL64, NO_VAL = str(2**64 - 1), str(2**64 - 2), str(2**32 - 2)
JOB = {
    "JobID": "7", "JobIDRaw": "7", "User": "me", "Account": "lab", "Partition": "gpu",
    "QOS": "normal", "State": "COMPLETED", "Reason": "None", "NodeList": "n1",
    "ElapsedRaw": "3600", "TimelimitRaw": "120", "Submit": str(START - 9), "Start": str(START),
    "End": str(START + 3600), "ExitCode": "0:0", "NNodes": "1", "AllocCPUS": "4",
    "AllocTRES": "billing=4,cpu=4,gres/gpu:h200=2,gres/gpu=2,mem=64G,node=1", "ReqMem": "64G",
    "TotalCPU": "02:00:00", "JobName": "train", "SubmitLine": "sbatch job.sh",
}  # fmt: skip
TWO = {
    "NodeList": "n[1-2]", "NNodes": "2", "AllocTRES": "cpu=4,gres/gpu=2,mem=64G,node=2",
}  # fmt: skip
USED = "cpu=02:00:00,energy=0,gres/gpumem=40G,gres/gpuutil=150,mem=16G"
STEP = JOB | {
    "JobID": "7.batch", "JobIDRaw": "7.batch", "User": "", "JobName": "batch", "NTasks": "1",
    "MaxRSS": "16G", "TRESUsageInTot": USED, "TRESUsageInMax": USED,
    "AllocTRES": "cpu=4,gres/gpu:h200=2,gres/gpu=2,mem=64G,node=1",
}  # fmt: skip
HEALTHY: dict[str, Any] = {
    "state": "COMPLETED", "exit_code": 0, "elapsed_s": 3600, "start": START, "end": START + 3600,
    "nodes": 1, "gpus": 2, "gpu_hours": 2, "cpu_s": 7200, "cpu": 50, "memory": 16, "limit": 64,
    "memory_share": 25, "util_peak": 75, "attempts": 1, "limit_s": 7200,
}  # fmt: skip
UNUSED = {"cpu_s": None, "cpu": None, "memory": None, "memory_share": None, "util_peak": None}
NEVER = UNUSED | {
    "elapsed_s": None, "start": None, "end": None, "gpus": None, "gpu_hours": None, "attempts": 0,
}  # fmt: skip


def figures(job: Mapping[str, Any]) -> dict[str, Any]:
    summary = job["summary"]
    peak, limit = summary["memory_peak_bytes"], summary["memory_limit_bytes"]
    return {
        **{name: job[name] for name in ("state", "exit_code", "elapsed_s", "start", "end")},
        **{name: job[name] for name in ("nodes", "gpus")},
        "gpu_hours": summary["gpu_hours"],
        "cpu_s": summary["cpu_s"],
        "cpu": summary["cpu_efficiency_percent"],
        "memory": None if peak is None else peak / GIB,
        "limit": None if limit is None else limit / GIB,
        "memory_share": summary["memory_efficiency_percent"],
        "util_peak": summary["gpu_utilization_peak_percent"],
        "attempts": len(job["attempts"]),
        "limit_s": job["requested"]["time_limit_s"],
    }


@pytest.fixture
def account(here: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function from accounting's rows to the jobs that `hpckit stats` finds in them."""
    monkeypatch.setattr(targets, "squeue", lambda _: {})
    monkeypatch.setattr(usage.cluster, "told_config", lambda: {"JobAcctGatherFrequency": "30"})

    def call(rows: Sequence[Row], word: str = "7") -> list[dict[str, Any]]:
        columns = (*FIXED, *FREE)
        text = "".join(MARK.join(row.get(name, "") for name in columns) + "\n" for row in rows)
        monkeypatch.setattr(usage, "_columns", lambda: columns)
        monkeypatch.setattr(usage, "_ask_sacct", lambda *_: parse_usage(text, columns, MARK))
        targets, missing = find_targets([word], here)
        assert not missing
        return [job_document(found.job, ()) for found in gather(targets, None, {})]

    return call


def step(name: str = "batch", **cells: str) -> Row:
    return STEP | {"JobID": f"7.{name}"} | cells


def words(epoch: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(epoch))


def both(**cells: str) -> list[Row]:
    """The job and its step, both with these cells."""
    return [JOB | cells, STEP | cells]


def used(text: str, **cells: str) -> list[Row]:
    return [JOB, step(TRESUsageInTot=text, TRESUsageInMax=text, MaxRSS="") | cells]


CASES: dict[str, tuple[Sequence[Row], dict[str, Any]]] = {
    "healthy": ([JOB, STEP], {}),
    # States ---------------------------------------------------------------------------------
    "a state of a newer Slurm": (both(State="DREAMING"), {"state": 'UNKNOWN', "exit_code": None,
        "end": None}),
    "no state": (both(State=""), {"state": 'UNKNOWN', "exit_code": None, "end": None}),
    "a state cut short": (both(State="COMPLET+"), {"state": 'UNKNOWN', "exit_code": None,
        "end": None}),
    "two states": (both(State="FAILED|REQUEUED"), {"state": 'REQUEUED', "exit_code": None,
        "end": None}),
    "cancelled by someone": (both(State="CANCELLED by 4294967294", ExitCode="0:15"),
        {"state": 'CANCELLED', "exit_code": 143}),
    "cancelled, no status": (both(State="CANCELLED"), {"state": 'CANCELLED', "exit_code": None}),
    "a status that is none": (both(State="FAILED", ExitCode="None"), {"state": 'FAILED',
        "exit_code": None}),
    "a status below 0": (both(State="FAILED", ExitCode="-1:0"), {"state": 'FAILED',
        "exit_code": None}),
    "revoked": (both(State="REVOKED"), {"state": 'REVOKED', "exit_code": None}),
    "cancelled before it started": (
        [JOB | {"State": "CANCELLED by 0", "ElapsedRaw": "0", "NodeList": "None assigned",
                "AllocTRES": "", "AllocCPUS": "0", "NNodes": "1", "TotalCPU": "00:00:00",
                "End": str(START)}], {**NEVER, "state": 'CANCELLED', "exit_code": None},
    ),
    "waiting": (
        [JOB | {"State": "PENDING", "ElapsedRaw": "0", "NodeList": "None assigned", "AllocTRES": "",
                "AllocCPUS": "0", "Start": "Unknown", "End": "Unknown", "TotalCPU": "00:00:00"}],
                    {**NEVER, "state": 'PENDING', "exit_code": None},
    ),
    "died at once": (
        [JOB | {"State": "FAILED", "ExitCode": "1:0", "ElapsedRaw": "0", "End": str(START),
                "TotalCPU": "00:00:00"},
         step(ElapsedRaw="0", TotalCPU="00:00:00", TRESUsageInTot="energy=0", TRESUsageInMax="",
              MaxRSS="")], {**UNUSED, "state": 'FAILED', "exit_code": 1, "elapsed_s": 0,
                  "end": START, "gpu_hours": 0},
    ),
    # Times ----------------------------------------------------------------------------------
    "no elapsed time": (both(ElapsedRaw=""), {}),
    "an elapsed time below 0": (both(ElapsedRaw="-3600"), {}),
    "an elapsed time that is none": (both(ElapsedRaw=NO_VAL), {}),
    "an elapsed time in words": (both(ElapsedRaw="INVALID"), {}),
    "no end": (both(End="Unknown"), {}),
    "an end of none": (both(End="None"), {}),
    "an end in 1970": (both(End="0"), {}),
    "an end in 1970, one second later": (both(End="1"), {}),
    "an end before the start": (both(End=str(START - 5)), {}),
    "no start": (both(Start="Unknown"), {"start": None, "end": None, "attempts": 0}),
    "a start in 1970": (both(Start="0"), {"start": None, "end": None, "attempts": 0}),
    "a folder that cannot be": (both(WorkDir="/" + "9" * 5000), {}),
    "a folder with a zero byte": (both(WorkDir="/a\0b"), {}),
    "a number inside that is none": (both(JobIDRaw="../" * 9), {}),
    "an elapsed time since 1970": (both(ElapsedRaw=str(START), Start="0"), {
        "elapsed_s": None, "start": None, "end": None, "gpu_hours": None, "cpu": None,
        "attempts": 0}),
    "no submission": (both(Submit="Unknown"), {}),
    "after 2038": (both(Submit=str(2**31), Start=str(2**31), End=str(2**31 + 3600)),
        {"start": 2**31, "end": 2**31 + 3600}),
    "moments in words": (both(Start=words(START), End=words(START + 3600)), {}),
    "no elapsed time, no end": (both(ElapsedRaw="", End="Unknown"), {
        "elapsed_s": None, "end": None, "gpu_hours": None, "cpu": None, "attempts": 0}),
    "suspended for an hour": (both(End=str(START + 7200)), {"end": START + 7200}),
    "longer than it lasted": (both(End=str(START + 60)), {"end": START + 60}),
    "an end of 5000 digits": (both(End="9" * 5000), {}),
    "an end that is none": (both(End=NO_VAL), {}),
    "no limit": (both(TimelimitRaw="UNLIMITED"), {"limit_s": None}),
    "the partition's limit": (both(TimelimitRaw="Partition_Limit"), {"limit_s": None}),
    "an endless limit": (both(TimelimitRaw=NO_VAL), {"limit_s": None}),
    # What it was given ----------------------------------------------------------------------
    "billing only": (both(AllocTRES="billing=4"), {"gpus": None, "gpu_hours": None,
        "util_peak": None}),
    "nothing": (both(AllocTRES=""), {"gpus": None, "gpu_hours": None, "util_peak": None}),
    "no gpus": (both(AllocTRES="billing=4,cpu=4,mem=64G,node=1"), {"gpus": 0, "gpu_hours": 0,
        "util_peak": None}),
    "typed gpus only": (both(AllocTRES="cpu=4,gres/gpu:h200=2,mem=64G,node=1"), {}),
    "two types": (both(AllocTRES="cpu=4,gres/gpu:a=1,gres/gpu:b=1,mem=64G,node=1"), {}),
    "gpus without a number": (both(AllocTRES="cpu=4,gres/gpu=,mem=64G,node=1"), {"gpus": None,
        "gpu_hours": None, "util_peak": None}),
    "gpus that are none": (both(AllocTRES=f"cpu=4,gres/gpu={NO_VAL64},mem=64G,node=1"),
        {"gpus": None, "gpu_hours": None, "util_peak": None}),
    "shards": (both(AllocTRES="cpu=4,gres/shard=8,mem=64G,node=1"), {"gpus": None,
        "gpu_hours": None, "util_peak": None}),
    "no cores": (both(AllocTRES="gres/gpu=2,mem=64G,node=1", AllocCPUS=""), {"cpu": None}),
    "0 cores": (both(AllocTRES="cpu=0,gres/gpu=2,mem=64G,node=1", AllocCPUS="0"), {"cpu": None}),
    "cores in the column only": (both(AllocTRES="gres/gpu=2,mem=64G,node=1"), {}),
    "memory by the core": (
        both(AllocTRES="cpu=4,gres/gpu=2,node=1", ReqMem="16Gc"), {}),
    "memory by the node": (both(AllocTRES="cpu=4,gres/gpu=2,node=1", ReqMem="64Gn"), {}),
    "memory of half a TiB": (both(AllocTRES="cpu=4,gres/gpu=2,mem=0.5T,node=1"), {"limit": 512,
        "memory_share": 3.125}),
    "memory in MiB": (both(AllocTRES="cpu=4,gres/gpu=2,mem=65536M,node=1"), {}),
    "no memory limit": (both(AllocTRES="cpu=4,gres/gpu=2,node=1", ReqMem="0"), {"limit": None,
        "memory_share": None}),
    "memory of Infinity": (both(AllocTRES="cpu=4,gres/gpu=2,node=1", ReqMem="Infinity"),
        {"limit": None, "memory_share": None}),
    "two nodes": (
        [JOB | {"NodeList": "n[1-2]", "NNodes": "2",
                "AllocTRES": "cpu=4,gres/gpu=2,mem=64G,node=2"},
         step(AllocTRES="cpu=2,gres/gpu=2,mem=32G,node=1")], {"nodes": 2,
                    "memory": 16, "memory_share": 25, "limit": 32}),
    "two nodes with a step on both": (
        [JOB | TWO, step(AllocTRES="mem=32G,node=1"),
         step("0", NodeList="n[1-2]", NNodes="2", Start="Unknown", MaxRSS="")],
        {"nodes": 2, "cpu": 100, "cpu_s": 14400, "memory": None, "limit": 32}),
    "two nodes with memory by core": (
        [JOB | {"NodeList": "n[1-2]", "NNodes": "2",
                "AllocTRES": "cpu=4,gres/gpu=2,mem=64G,node=2"},
         step(AllocTRES="cpu=3,gres/gpu=2,mem=48G,node=1")], {"nodes": 2,
                    "memory": 16, "limit": None}),
    "nodes that cannot be read": (both(NodeList="n[1-"), {}),
    "no list of nodes": (both(NodeList="None assigned"), {}),
    # What it used ---------------------------------------------------------------------------
    "no step": ([JOB], {"memory": None, "memory_share": None, "util_peak": None}),
    "a step of nobody": ([step() | {"JobID": "8.batch"}, JOB, STEP], {}),
    "a step before its job": ([STEP, JOB], {"memory": None, "memory_share": None,
        "util_peak": None}),
    "only extern": ([JOB, step("extern", MaxRSS="12K", TRESUsageInTot="cpu=00:00:00,mem=12K",
                                TRESUsageInMax="mem=12K")], {"memory": None, "memory_share": None,
                                    "util_peak": None}),
    "no time of cpus": ([JOB | {"TotalCPU": ""}, step(TotalCPU="", TRESUsageInTot="mem=16G")],
        {"cpu_s": None, "cpu": None}),
    "a time of cpus that is none": (
        [JOB | {"TotalCPU": "INVALID"}, step(TotalCPU="INVALID", TRESUsageInTot="mem=16G")],
            {"cpu_s": None, "cpu": None}),
    "0 of all": (
        [JOB | {"TotalCPU": "00:00:00"},
         step(TotalCPU="00:00:00", MaxRSS="0",
              TRESUsageInTot="cpu=00:00:00,mem=0,gres/gpumem=0,gres/gpuutil=0",
                  TRESUsageInMax="")], {**UNUSED}),
    "cpu time of days": ([JOB | {"TotalCPU": "1-00:00:00"}, step(TotalCPU="1-00:00:00")],
        {"cpu_s": 86400, "cpu": 600}),
    "cpu time of polls only": ([JOB | {"TotalCPU": "00:00:00"}, step(TotalCPU="00:00:00")], {}),
    "memory in fractions": (used("cpu=02:00:00,mem=16.5G,gres/gpuutil=150"), {"memory": 16.5,
        "memory_share": 25.78125}),
    "memory in KiB": (used("cpu=02:00:00,mem=16777216K,gres/gpuutil=150"), {}),
    "memory in bytes": (used(f"cpu=02:00:00,mem={16 << 30},gres/gpuutil=150"), {}),
    "memory of small letters": (used("cpu=02:00:00,mem=16g,gres/gpuutil=150"), {"memory": None,
        "memory_share": None}),
    "memory that is none": (used(f"cpu=02:00:00,mem={INFINITE},gres/gpuutil=150"),
        {"memory": None, "memory_share": None}),
    "memory below 0": (used("cpu=02:00:00,mem=-5K,gres/gpuutil=150"), {"memory": None,
        "memory_share": None}),
    "MaxRSS only": ([JOB, step(TRESUsageInTot="", TRESUsageInMax="")], {"util_peak": None}),
    "MaxRSS of four tasks": ([JOB, step(TRESUsageInTot="", TRESUsageInMax="", NTasks="4")],
        {"util_peak": None}),
    "AveRSS above MaxRSS": ([JOB, step(AveRSS="64G")], {}),
    "a task above the sum": ([JOB, step(TRESUsageInTot="mem=8G,gres/gpuutil=150")], {}),
    "more memory than it had": (used("cpu=02:00:00,mem=96G,gres/gpuutil=150"), {"memory": 96,
        "memory_share": 150}),
    "gpus used that it had not": (
        [JOB | {"AllocTRES": "cpu=4,mem=64G,node=1"},
         step(AllocTRES="cpu=4,mem=64G,node=1")], {"gpus": 0, "gpu_hours": 0, "util_peak": None}),
    "utilization that is none": (used(f"cpu=02:00:00,mem=16G,gres/gpuutil={NO_VAL64}"),
        {"util_peak": None}),
    "utilization not followed": (used("cpu=02:00:00,mem=16G"), {"util_peak": None}),
    "no tasks": ([JOB, step(NTasks="")], {}),
    "a step of a step": ([JOB, STEP, step("0+1", TotalCPU="00:10.0", TRESUsageInMax="", MaxRSS="",
                           TRESUsageInTot="cpu=00:00:10,mem=1G")], {"cpu_s": 7210,
                               "cpu": 50.06944}),
    "a step to be": ([JOB, STEP, step("TBD", ElapsedRaw="", TotalCPU="", MaxRSS="",
        TRESUsageInTot="",
                                      TRESUsageInMax="", State="PENDING")], {}),
    # Attempts -------------------------------------------------------------------------------
    "requeued": (
        [JOB | {"State": "REQUEUED", "Submit": str(START - 9000), "Start": str(START - 8000),
                "End": str(START - 4400)}, JOB | {"Submit": str(START - 4400)}, STEP],
                    {"elapsed_s": 7200, "start": START - 8000, "gpu_hours": 4, "attempts": 2,
                     "cpu_s": 14400}),
    "requeued before it started": (
        [JOB | {"State": "REQUEUED", "ElapsedRaw": "0", "Start": "Unknown", "End": str(START - 20),
                "NodeList": "None assigned", "AllocTRES": "", "Submit": str(START - 99)}, JOB,
                    STEP], {}),
    "requeued, of unknown length": (
        [JOB | {"State": "NODE_FAIL", "Submit": str(START - 9000), "Start": str(START - 8000),
                "ElapsedRaw": "", "End": "Unknown"}, JOB, STEP], {"elapsed_s": None,
                    "start": START - 8000, "gpu_hours": None, "cpu_s": 14400, "cpu": None}),
    "another user's job of old": (
        [JOB | {"User": "you", "Submit": str(START - 10**7), "Start": str(START - 10**7),
                "End": str(START - 10**7 + 60), "ElapsedRaw": "60"}, JOB, STEP], {}),
    "the same row twice": ([JOB, STEP, JOB, STEP], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_figure_is_right_or_unknown(account: Any, name: str) -> None:
    rows, changed = CASES[name]
    (job,) = account(rows)
    wanted = HEALTHY | changed
    found = figures(job)
    assert found == {
        key: value if not isinstance(value, float | int) else pytest.approx(value, rel=1e-4)
        for key, value in wanted.items()
    }
    # An attempt's hours are made as its job's are.
    hours = [attempt["gpu_hours"] for attempt in job["attempts"]]
    if hours and None not in (*hours, found["gpu_hours"]):
        assert sum(hours) == pytest.approx(found["gpu_hours"])
    over = {name.rpartition(".")[2] for name in job["suspect"]}
    shares = {"cpu": "cpu_efficiency_percent", "memory_share": "memory_efficiency_percent"}
    assert over == {full for short, full in shares.items() if (found[short] or 0) > 101}


@pytest.mark.parametrize(
    ("rows", "word", "ids"),
    [
        (["7_1", "7_5", "7_[7-9%2]"], "7", ["7_1", "7_5", "7_7", "7_8", "7_9"]),
        (["7_1", "7_5"], "7_5", ["7_5"]),
        (["7_[0,4-8:2,...]"], "7", ["7_0", "7_4", "7_6", "7_8"]),
        (["7+0", "7+1"], "7", ["7+0", "7+1"]),
        (["7+0", "7+2"], "7+2", ["7+2"]),
    ],
)
def test_parts_of_a_job_are_a_job_each(
    account: Any, rows: list[str], word: str, ids: list[str]
) -> None:
    waiting = {"State": "PENDING", "NodeList": "", "AllocTRES": "", "ElapsedRaw": "0"}
    waiting |= {"Start": "Unknown", "End": "Unknown"}
    parts = [
        JOB | {"JobID": row, "JobIDRaw": str(7 + at)} | (waiting if "[" in row else {})
        for at, row in enumerate(rows)
    ]
    found = account(parts, word)
    assert [job["job_id"] for job in found] == ids
    for job in found:
        ran = job["state"] == "COMPLETED"
        assert job["summary"]["gpu_hours"] == (2 if ran else None)
        assert job["elapsed_s"] == (3600 if ran else None)


def test_what_is_at_least_so_much_is_no_ground_for_advice(account: Any) -> None:
    (job,) = account([JOB, step("0", Start="Unknown"), step("1", Start="Unknown")])
    assert job["summary"]["memory_efficiency_percent"] == 25
    memory = ["summary.memory_peak_bytes", "summary.memory_efficiency_percent"]
    assert job["at_least"] == [*memory, "summary.gpu_utilization_peak_percent"]


def test_what_a_script_had_on_its_node_is_at_least_what_a_node_had(account: Any) -> None:
    (job,) = account([JOB | TWO, step(AllocTRES="mem=32G,node=1")])
    assert job["summary"]["memory_peak_bytes"] == 16 * GIB
    assert job["at_least"] == ["summary.memory_peak_bytes"]
    (note,) = [row["text"] for row in job["notes"] if row["code"] == "at_least"]
    assert note.startswith("CPU memory of a node is a lower bound: Slurm knows of no step on the ")


def test_a_job_that_ended_without_a_node_never_had_one(account: Any) -> None:
    (cancelled,) = account([JOB | {"State": "CANCELLED by 0", "ElapsedRaw": "0", "Start": "Unknown",
                                   "NodeList": "None assigned", "AllocTRES": ""}])  # fmt: skip
    assert [row["text"] for row in cancelled["notes"]] == [
        "The job never had a node, so there are no figures."
    ]
    assert (cancelled["start"], unstarted(cancelled["state"])) == (None, "never started")
    for state in ("PENDING", "UNKNOWN", "of a new Slurm", None):
        assert unstarted(state) == "has not started"


def test_a_run_has_the_name_that_was_asked_for_not_sacct_s_spelling(tmp_path: Path) -> None:
    record = JobRecord(job_id="7", state=JobState.COMPLETED, source="sacct", name="a `b`")
    known = KnownJob(record=record)
    assert identify("7", known, ()).name == "a `b`"
    ours = KnownJob(record=record, run=make_run(tmp_path, name='a "b"'))
    assert identify("7", ours, ()).name == 'a "b"'


def test_a_run_on_this_machine_is_in_no_partition(tmp_path: Path) -> None:
    """Its plan may name one: the site's default."""
    plan = PLAN | {"account": "lab", "partition": "gpu", "qos": "normal"}
    for executor, said in (("local", (None, None, None)), ("slurm", ("lab", "gpu", "normal"))):
        run = make_run(tmp_path / executor, executor=executor, plan=plan)
        job = identify("7", KnownJob(run=run), ())
        assert (job.account, job.partition, job.qos) == said


@pytest.mark.parametrize(
    ("asked", "gpus", "kind"),
    [
        ("billing=2,cpu=2,gres/gpu:h200=6,gres/gpu=6,mem=4G,node=2", 6, "h200"),
        ("cpu=2,gres/gpu=6,mem=4G,node=2", 6, None),
        ("cpu=2,mem=4G,node=2", 0, None),
        ("", None, None),
    ],
)
def test_what_a_waiting_job_asks_for(
    account: Any, asked: str, gpus: int | None, kind: str | None
) -> None:
    """Slurm has given it nothing yet; its page would show one of no GPU."""
    waiting = {"State": "PENDING", "NodeList": "None assigned", "AllocTRES": "", "NNodes": "2"}
    waiting |= {"ElapsedRaw": "0", "Start": "Unknown", "End": "Unknown", "ReqTRES": asked}
    (job,) = account([JOB | waiting])
    requested = job["requested"]
    assert (requested["nodes"], requested["gpus"], requested["gpu_type"]) == (2, gpus, kind)
    assert requested["gpus_per_node"] == (None if gpus is None else gpus // 2)
    assert (job["gpus"], job["summary"]["gpu_hours"]) == (None, None)
