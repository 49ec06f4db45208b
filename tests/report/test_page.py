"""Words of the page that depend on how a job went."""

import io
from dataclasses import replace

import pytest

from hpckit.report.array_page import distribution_page
from hpckit.report.job_page import _MARKS, Page, page
from hpckit.report.terminal import Style, blocks, style_of
from hpckit.stats.advice.namespace import job_values
from hpckit.stats.summary.figures import (
    Attempt,
    GpuUse,
    JobUse,
    NodeUse,
    Requested,
    SourceNote,
    Summary,
    attempt_words,
    last_attempt,
)
from hpckit.stats.summary.timeline import Line, Timeline
from tests.pages import ROOT


@pytest.mark.parametrize(
    ("elapsed_s", "attempts", "words"),
    [
        (120.0, 1, "ran 2 min 00 s of 4 min 00 s"),
        (386.0, 1, "ran 6 min 26 s, 2 min 26 s over its limit of 4 min 00 s"),
        (386.0, 2, "ran 6 min 26 s in 2 attempts of at most 4 min 00 s"),
    ],
)
def test_each_attempt_has_all_of_the_limit(elapsed_s: float, attempts: int, words: str) -> None:
    job = JobUse(
        job_id="1",
        state="TIMEOUT",
        elapsed_s=elapsed_s,
        requested=Requested(time_limit_s=240),
        attempts=tuple(Attempt(restart=number) for number in range(attempts)),
    )
    text = " ".join(page(Page(job=job, advice=[]), Style()).split())
    assert words in text.replace("4 min,", "4 min 00 s,")


def test_a_local_run_says_what_it_asked_for() -> None:
    asked = Requested(nodes=2, gpus=4)
    local = JobUse(job_id="local-1a2b3c", nodes=1, gpus=0, requested=asked)
    assert "1 node, 0 GPUs, asked for 2 nodes and 4 GPUs," in page(Page(job=local), Style())
    same = replace(local, nodes=2, gpus=4)
    of_slurm = replace(local, job_id="17")
    assert not any("asked for" in page(Page(job=job), Style()) for job in (same, of_slurm))


def test_a_job_without_gpus_has_no_words_about_them() -> None:
    note = SourceNote(code="no_nvml", text="No GPU figures: no library", host="n1")
    nodes = tuple(NodeUse(host=host, cores=4, cpu_efficiency_percent=50.0) for host in ("n1", "n2"))
    attempts = tuple(Attempt(restart=number, cpu_efficiency_percent=9.0) for number in range(2))
    job = JobUse(
        job_id="1", nodes=2, gpus=0, per_node=nodes, attempts=attempts, notes=(note,),
        sources=("samples",), summary=Summary(samples=8, coverage_percent=94.0),
    )  # fmt: skip
    text = page(Page(job=job), Style())
    assert text.count("GPU") == 1  # 0 GPUs
    assert "samples (8 on 2 nodes, 94 % of the job)" in text
    assert "n1 50 % ? of 4" in " ".join(text.split())
    # Of a job whose GPUs could not be read, all of it is news; so where a local run got none.
    for other in (replace(job, gpus=2), replace(job, gpus=None)):
        text = page(Page(job=other), Style())
        assert "- n1: No GPU figures: no library" in text
        assert "94 % of the job, ? of its GPUs' time" in text
        assert "Node     GPU    CPU" in text
        assert "GPU      ?  CPU" in text
    local = replace(job, requested=Requested(nodes=2, gpus=4))
    assert "- n1: No GPU figures: no library" in page(Page(job=local), Style())


def test_a_peak_without_a_limit_is_no_unknown_share() -> None:
    job = JobUse(job_id="local-1a2b3c", summary=Summary(memory_peak_bytes=655 << 20))
    (row,) = (row for row in page(Page(job=job), Style()).splitlines() if row.startswith("CPU mem"))
    assert row == "CPU memory        655 MiB at the peak; the limit is not known"


def test_all_attempts_stand_on_one_axis() -> None:
    """Each as wide as it was long, and a mark between two; the newest ones where there are many."""

    def drawn(*seconds: int, unicode: bool = True) -> tuple[str, str]:
        lines = [
            Timeline(
                restart=at,
                start=1e9 + 1000 * at,
                width_s=1,
                gpu_utilization=(Line(host="n1", gpu="G", index=0, values=(100.0,) * length),),
                gpu_memory_bytes=(),
                gpu_throttled=(),
                cores_used=(),
                memory_bytes=(),
            )
            for at, length in enumerate(seconds)
        ]
        attempts = [
            Attempt(restart=row.restart, start=row.start, end=row.start + length, elapsed_s=length)
            for row, length in zip(lines, seconds, strict=True)
        ]
        job = JobUse(
            job_id="1",
            elapsed_s=float(sum(seconds)),
            per_gpu=(GpuUse(host="n1", uuid="G", index=0),),
            attempts=tuple(attempts),
        )
        text = page(Page(job=job, timelines=lines), Style(unicode=unicode)).splitlines()
        at = next(at for at, row in enumerate(text) if row.startswith("GPU   "))
        return text[at][31:], text[at + 1][31:]

    head, line = drawn(30, 10)
    assert head.split() == ["attempts", "0-1", "40", "s"]
    assert [len(part) for part in line.split("┊")] == [36, 12]
    assert "|" in drawn(30, 10, unicode=False)[1]
    head, line = drawn(*(9,) * 40)
    shown = line.split("┊")
    assert head.split()[:2] == ["attempts", f"{40 - len(shown)}-39"]
    assert {*line} == {"█", "┊"}
    assert max(map(len, shown)) - min(map(len, shown)) <= 1
    assert len(line) == len(drawn(30)[1]) == 49
    assert drawn(1, 10_000)[1].startswith("██┊")


def test_time_between_attempts_is_said() -> None:
    times = [(0.0, 60.0, "PREEMPTED"), (4060.0, 4100.0, "COMPLETED")]
    attempts = [
        Attempt(restart=at, state=state, start=start, end=end, elapsed_s=end - start)
        for at, (start, end, state) in enumerate(times)
    ]
    text = page(Page(job=JobUse(job_id="1", attempts=tuple(attempts))), Style()).splitlines()
    at = text.index("2 attempts (figures above are for all of them)")
    assert "later" not in text[at + 1]
    assert "1 h 06 min later" in text[at + 2]


def test_parts_between_changes_of_size_are_one_attempt() -> None:
    parts = (
        Attempt(restart=0, state="REQUEUED", start=0, end=90, elapsed_s=90),
        Attempt(restart=1, state="RESIZING", start=100, end=160, elapsed_s=60),
        Attempt(restart=2, state="FAILED", start=160, end=170, elapsed_s=10),
    )
    job = JobUse(job_id="1", state="FAILED", attempts=parts)
    assert attempt_words(job) == "2 attempts with 3 parts"
    last = last_attempt(job)
    assert last
    assert (last.start, last.elapsed_s, last.state) == (100, 70, "FAILED")
    resized = replace(job, attempts=parts[1:])
    assert attempt_words(resized) == "2 parts of one attempt"
    assert job_values(resized, None)[0]["attempt"]["elapsed_s"] == 70


def test_a_page_is_as_wide_as_the_terminal_from_60_columns_to_80() -> None:
    given = {columns: style_of(io.StringIO(), {"COLUMNS": columns}).width for columns in _COLUMNS}
    assert given == _COLUMNS


_COLUMNS = {"": 80, "0": 80, "200": 80, "80": 80, "72": 72, "60": 60, "40": 60, "wide": 80}


@pytest.mark.parametrize("width", [60, 66, 72, 79])
@pytest.mark.parametrize("host", ["n", "gpu-node-of-a-long-name-"])
def test_a_narrow_page_says_what_a_wide_one_does(width: int, host: str) -> None:
    job = _full(host)
    text = page(Page(job=job, timelines=_lines(host)), Style(width=width))
    assert max(map(len, text.splitlines())) <= width
    for number in (1, 2):
        assert f"{host}{number} 0" in text
    wide = page(Page(job=replace(job, per_gpu=()), timelines=()), Style())
    narrow = page(Page(job=replace(job, per_gpu=()), timelines=()), Style(width=width))
    assert sorted(_words(narrow)) == sorted(_words(wide))


def _words(text: str) -> list[str]:
    """Return a page's words, without bars and hosts, which a wide page cuts."""
    words = [word for word in text.split() if set(word) - set("[]\u2588|")]
    return [word for word in words if not word.startswith("gpu-node")]


def _full(host: str) -> JobUse:
    hosts = (f"{host}1", f"{host}2")
    return JobUse(
        job_id="4242",
        name="train",
        state="COMPLETED",
        elapsed_s=7200.0,
        gpus=2,
        per_gpu=tuple(
            GpuUse(
                host=name,
                index=0,
                uuid="G",
                utilization_percent=100.0,
                busy_sm_percent=50.0,
                sm_active_percent=50.0,
                covered_percent=50.0,
                hours=1.0,
            )
            for name in hosts
        ),
        per_node=tuple(
            NodeUse(host=name, cores=128, cores_used=127.5, memory_peak_bytes=200 << 30)
            for name in hosts
        ),
        attempts=tuple(
            Attempt(
                restart=at, state="PREEMPTED", start=at * 9e3, end=at * 9e3 + 3600, hosts=("n1",)
            )
            for at in range(2)
        ),
        summary=Summary(
            cpu_efficiency_percent=99.0,
            gpu_utilization_percent=100.0,
            gpu_memory_used_percent=99.0,
            gpu_memory_peak_bytes=123 << 30,
            gpu_memory_total_bytes=456 << 30,
        ),
    )


def _lines(host: str) -> list[Timeline]:
    line = Line(host=f"{host}1", gpu="G", index=0, values=(100.0,) * 60)
    return [
        Timeline(
            restart=0,
            start=0.0,
            width_s=60,
            gpu_utilization=(line,),
            gpu_memory_bytes=(),
            gpu_throttled=(),
            cores_used=(),
            memory_bytes=(),
        )
    ]


def test_gpus_of_a_node_with_a_long_name_are_told_apart() -> None:
    host = "gpu-node-of-the-faculty-0123"
    gpus = tuple(GpuUse(host=host, index=at, utilization_percent=9.0 + at) for at in range(2))
    lines = page(Page(job=JobUse(job_id="1", per_gpu=gpus)), Style()).splitlines()
    for at in range(2):
        assert lines[lines.index(f"{host} {at}") + 1].split()[0] == ("9%", "10%")[at]


def test_a_narrow_page_of_many_jobs_has_room_for_every_figure() -> None:
    jobs = [
        replace(_full("n"), job_id=f"1234567_{at}", parameters={"learning-rate": "0.001"})
        for at in range(3)
    ]
    for among in (jobs, [replace(job, parameters={}) for job in jobs]):
        wide = distribution_page(among, {}, Style(), all_jobs=True)
        narrow = distribution_page(among, {}, Style(width=60), all_jobs=True)
        assert max(map(len, narrow.splitlines())) <= 60
        assert _words(narrow) == _words(wide)


def test_a_waiting_job_has_the_gpus_that_it_asks_for() -> None:
    asked = Requested(nodes=2, gpus=6, gpu_type="h200", cores=2)
    job = JobUse(job_id="1", state="PENDING", nodes=2, requested=asked)
    assert "  2 nodes, 6 GPUs (h200), 2 cores, has not started" in page(Page(job=job), Style())
    job = JobUse(job_id="1", state="CANCELLED", nodes=2, requested=asked)
    assert "  2 nodes, 6 GPUs (h200), 2 cores, never started" in page(Page(job=job), Style())
    without = page(Page(job=replace(job, requested=Requested(gpus=0))), Style())
    assert "GPU util" not in without
    # What has run has what it was given, or nobody knows.
    ran = JobUse(job_id="1", state="COMPLETED", elapsed_s=5, start=1.0, requested=asked)
    assert "GPUs (h200)" not in page(Page(job=ran), Style())


def test_the_documentation_names_the_marks_of_the_page() -> None:
    said = (ROOT / "docs" / "stats.md").read_text()
    line = blocks([None], 1, Style())
    for mark in (*_MARKS.values(), line, "→", "┊"):
        assert f"`{mark}`" in said
