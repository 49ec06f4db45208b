import pytest

from hpckit.errors import SubmissionError
from hpckit.slurm.control import parse_job_id, parse_test_only
from tests.unit.recorded import slurm_said


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [
        ("Submitted batch job 123\n", "123"),
        ("Submitted batch job 123 on cluster alpha\n", "123"),
        ("sbatch: Submitted batch job 123\n", "123"),
        ("123\n", "123"),
        ("123;alpha\n", "123"),
        ("your job 2 limit is fine\nSubmitted batch job 77\n9 jobs are running\n", "77"),
        ("3\nSubmitted batch job 77\n4\n", "77"),
        ("WARNING: 2 of 5\n77\n", "77"),
    ],
)
def test_the_job_id_is_found(stdout: str, job_id: str) -> None:
    assert parse_job_id(stdout) == job_id


def test_the_job_id_is_found_amid_a_sites_banner() -> None:
    assert parse_job_id(slurm_said("sbatch-banner-documented.txt")) == "987654"
    assert parse_job_id(slurm_said("sbatch-parsable-banner-documented.txt")) == "424242"


@pytest.mark.parametrize("stdout", ["", "your job 2 limit\n", "sbatch: error: no\n"])
def test_an_answer_without_a_job_id_is_an_error(stdout: str) -> None:
    with pytest.raises(SubmissionError, match="gave no job id"):
        parse_job_id(stdout)


# The next three were recorded on Slurm 22.05.8.
def test_a_job_that_would_start_says_when_and_where() -> None:
    line = (
        "sbatch: Job 13 to start at 1795236456 using 2 processors on nodes c[1-2] in partition gpu"
    )
    verdict = parse_test_only(line + "\n", returncode=0)
    assert verdict.accepted
    assert (verdict.start_time, verdict.nodes) == (1795236456.0, ("c1", "c2"))
    assert verdict.partition == "gpu"
    assert verdict.message == line.removeprefix("sbatch: ")


def test_a_refusal_is_slurms_own_words() -> None:
    text = (
        "sbatch: error: invalid partition specified: nope\n"
        "allocation failure: Invalid partition name specified\n"
    )
    verdict = parse_test_only(text, returncode=1)
    assert (verdict.accepted, verdict.start_time, verdict.nodes) == (False, None, None)
    assert verdict.message.splitlines() == [
        "error: invalid partition specified: nope",
        "allocation failure: Invalid partition name specified",
    ]


def test_an_older_slurms_sentence_is_read_after_a_filters_own_line() -> None:
    verdict = parse_test_only(slurm_said("test-only-20.11-documented.txt"), returncode=0)
    assert verdict.nodes == ("g01", "g02")
    assert verdict.partition is None
    assert verdict.start_time is not None
