"""Words of the page that depend on how a job went."""

from dataclasses import replace

import pytest

from hpckit.report.job_page import Page, page
from hpckit.report.terminal import Style
from hpckit.stats.summary.figures import Attempt, JobUse, Requested, Summary


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


def test_a_peak_without_a_limit_is_no_unknown_share() -> None:
    job = JobUse(job_id="local-1a2b3c", summary=Summary(memory_peak_bytes=655 << 20))
    (row,) = (row for row in page(Page(job=job), Style()).splitlines() if row.startswith("CPU mem"))
    assert row == "CPU memory        655 MiB at the peak; the limit is not known"
