from dataclasses import replace
from typing import Any

import pytest

from hpckit.stats.merge import Answer, Remark, merge
from hpckit.stats.summary.figures import (
    JS1,
    SACCT,
    SQUEUE,
    SSTAT,
    GpuUse,
    JobUse,
    NodeUse,
    Requested,
    SourceNote,
    Summary,
)
from hpckit.stats.summary.summarise import Account

JOB = JobUse(job_id="7", origins={"state": SQUEUE}, notes=(SourceNote(code="a", text="A."),))


def account(**values: Any) -> Account:
    per_node, per_gpu = values.pop("per_node", ()), values.pop("per_gpu", ())
    return Account(
        summary=Summary(**values),
        per_node=per_node,
        per_gpu=per_gpu,
        attempts=(),
        timelines=(),
        notes=(SourceNote(code="b", text="B."),),
        last_epoch=0.0,
    )


def says(source: str, **values: Any) -> Answer:
    return Answer(source=source, summary=values)


def test_the_first_that_knows_is_believed_and_named() -> None:
    job = merge(
        JOB,
        account(cpu_s=1.0),
        [
            says(JS1, cpu_s=2.0, memory_efficiency_percent=20.0),
            says(SACCT, cpu_s=3.0, memory_efficiency_percent=30.0, memory_peak_bytes=30),
            says(SSTAT, cpu_s=4.0, memory_peak_bytes=40, memory_limit_bytes=400),
        ],
    )
    summary = job.summary
    assert (summary.cpu_s, summary.memory_efficiency_percent) == (1.0, 20.0)
    assert (summary.memory_peak_bytes, summary.memory_limit_bytes) == (30, 400)
    assert job.origins == {
        "state": "squeue",
        "summary.cpu_s": "samples",
        "summary.memory_efficiency_percent": "JS1",
        "summary.memory_peak_bytes": "sacct",
        "summary.memory_limit_bytes": "sstat",
    }
    assert job.sources == ("samples", "JS1", "sacct", "sstat", "squeue")
    assert [note.code for note in job.notes] == ["a", "b"]


def test_a_zero_is_known_and_none_is_not() -> None:
    job = merge(JOB, None, [says(JS1, cpu_s=0.0, gpu_hours=None), says(SACCT, cpu_s=5.0)])
    assert (job.summary.cpu_s, job.summary.gpu_hours) == (0.0, None)
    assert "summary.gpu_hours" not in job.origins


def test_nothing_known_stays_unknown() -> None:
    for answers in ([], [says(SACCT)], [says(SACCT, cpu_s=None)]):
        job = merge(JOB, None, answers)
        assert job.summary == Summary()
        assert (job.per_node, job.per_gpu, job.suspect) == ((), (), ())
        assert job.sources == ("squeue",)


def test_rows_are_of_one_source() -> None:
    ours = (NodeUse(host="c1"),)
    theirs = Answer(
        source=JS1, summary={}, per_node=(NodeUse(host="c2"),), per_gpu=(GpuUse(host="c2"),)
    )
    job = merge(JOB, account(per_node=ours), [theirs])
    assert (job.per_node, job.per_gpu) == (ours, theirs.per_gpu)
    assert (job.origins["per_node"], job.origins["per_gpu"]) == ("samples", "JS1")


def test_slurms_gpuutil_fills_only_the_peak() -> None:
    job = merge(JOB, None, [says(SACCT, gpu_utilization_peak_percent=95.0)])
    assert job.summary.gpu_utilization_peak_percent == 95.0
    assert job.summary.gpu_utilization_percent is None
    assert job.suspect == ()


@pytest.mark.parametrize(("percent", "suspect"), [(100.0, False), (101.0, False), (101.1, True)])
def test_over_100_is_suspect(percent: float, suspect: bool) -> None:
    job = merge(
        JOB, None, [says(SACCT, cpu_efficiency_percent=percent, memory_efficiency_percent=10.0)]
    )
    assert job.summary.cpu_efficiency_percent == percent
    assert job.suspect == (("summary.cpu_efficiency_percent",) if suspect else ())


def test_a_suspect_figure_silences_nothing_else() -> None:
    rows = account(
        cpu_efficiency_percent=1593.0,
        memory_efficiency_percent=42.0,
        per_node=(NodeUse(host="c1"), NodeUse(host="c2", memory_efficiency_percent=182.8)),
        per_gpu=(GpuUse(host="c1", utilization_percent=130.0, utilization_peak_percent=99.0),),
    )
    job = merge(JOB, rows, [says(JS1, gpu_utilization_percent=50.0)])
    assert job.summary.memory_efficiency_percent == 42.0
    assert job.summary.gpu_utilization_percent == 50.0
    names = (
        "summary.cpu_efficiency_percent",
        "per_node.1.memory_efficiency_percent",
        "per_gpu.0.utilization_percent",
    )
    assert job.suspect == names
    assert [note.code for note in job.notes] == ["a", "b", "suspect"]
    assert all(name in job.notes[-1].text for name in names)


def test_means_made_of_a_gpus_impossible_share_are_suspect_too() -> None:
    gpus = (("c1", 150.0), ("c1", 10.0), ("c2", 40.0))
    of_record = Answer(
        source=JS1,
        summary={"gpu_utilization_percent": 66.7, "cpu_efficiency_percent": 50.0},
        per_gpu=tuple(GpuUse(host=host, utilization_percent=value) for host, value in gpus),
        per_node=(
            NodeUse(host="c1", cpu_efficiency_percent=120.0, gpu_utilization_percent=80.0),
            NodeUse(host="c2", cpu_efficiency_percent=20.0, gpu_utilization_percent=40.0),
        ),
    )
    job = merge(JOB, None, [of_record])
    over = ("per_node.0.cpu_efficiency_percent", "per_gpu.0.utilization_percent")
    # Of cores, a job may have used more than it asked for: that mean is one.
    made = ("summary.gpu_utilization_percent", "per_node.0.gpu_utilization_percent")
    assert job.suspect == (*over, *made)
    assert f"Over 100 %: {', '.join(over)}. " in job.notes[-1].text
    assert job.notes[-1].text.endswith(f"or what is made of them ({', '.join(made)}).")
    gpu = replace(of_record.per_gpu[0], utilization_percent=100.9)
    sane = replace(of_record, per_gpu=(gpu, *of_record.per_gpu[1:]))
    assert merge(JOB, None, [sane]).suspect == over[:1]


@pytest.mark.parametrize(("kind", "mig"), [("a100_1g.5gb", True), ("a100", False), (None, False)])
def test_a_record_of_slices_is_of_slices(kind: str | None, mig: bool) -> None:
    job = replace(JOB, requested=Requested(gpu_type=kind))
    record = Answer(source=JS1, summary={}, per_gpu=(GpuUse(host="c1", index=0),))
    assert [gpu.mig for gpu in merge(job, None, [record]).per_gpu] == [mig]
    seen = account(per_gpu=(GpuUse(host="c1", index=0, utilization_percent=9.0),))
    assert [gpu.mig for gpu in merge(job, seen, [record]).per_gpu] == [False]


def test_sizes_and_hours_over_100_are_not_suspect() -> None:
    job = merge(JOB, None, [says(SACCT, cpu_s=1e6, gpu_hours=500.0, memory_peak_bytes=10**12)])
    assert job.suspect == ()


def test_what_accounting_has_of_one_attempt_alone_is_said_of_figures_it_gave() -> None:
    note = SourceNote(code="newest_attempt", text="Of one attempt.")
    names = ("cpu_s", "gpu_utilization_percent")
    remark = Remark(figures=names, note=note, of_known=True)
    told = Answer(source=SACCT, summary={"cpu_s": 5.0}, remarks=(remark,))
    assert note in merge(JOB, None, [told]).notes
    # The samples are of all attempts, and of a job without GPUs nobody knows their use.
    assert note not in merge(JOB, account(cpu_s=7.0), [told]).notes
