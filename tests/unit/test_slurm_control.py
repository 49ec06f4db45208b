import pytest

from hpckit.errors import SubmissionError
from hpckit.slurm import control
from hpckit.slurm.client import own_job_id
from hpckit.slurm.control import parse_job_id, parse_test_only
from tests.unit.recorded import slurm_said


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [
        ("Submitted batch job 123\n", "123"),
        ("Submitted batch job 123 on cluster alpha\n", "123"),
        ("sbatch: Submitted batch job 123\n", "123"),
        ("123\n", "123"),
        ("\n 123;alpha\r\n", "123"),
    ],
)
def test_the_job_id_is_found(stdout: str, job_id: str) -> None:
    assert parse_job_id(stdout) == job_id


@pytest.mark.parametrize(
    ("stdout", "shown"),
    [
        ("", "nothing"),
        ("your job 2 limit\n", "'your job 2 limit'"),
        ("Your balance is\n1200\n", "'Your balance is / 1200'"),
        ("1200\n77\n", "'1200 / 77'"),
        ("77\n\n\x1b[32mok\x1b[0m\r\n", r"'77 / \x1b[32mok\x1b[0m'"),
        ("77 jobs\n", "'77 jobs'"),
        ("x" * 1000 + "\n77\n", "'…" + "x" * 295 + " / 77'"),
        (slurm_said("sbatch-banner-documented.txt"), "987654"),
        (slurm_said("sbatch-parsable-banner-documented.txt"), "424242;perlmutter"),
    ],
)
def test_an_answer_that_is_not_the_job_id_alone_is_not_believed(stdout: str, shown: str) -> None:
    with pytest.raises(SubmissionError) as said:
        parse_job_id(stdout)
    assert shown in str(said.value)


# The next three were recorded on Slurm 22.05.8; "a using" is 26.05.5's.
@pytest.mark.parametrize("using", ["using", "a using"])
def test_a_job_that_would_start_says_when_and_where(using: str) -> None:
    start = f"Job 13 to start at 1795236456 {using} 2 processors"
    line = f"sbatch: {start} on nodes c[1-2] in partition gpu"
    verdict = parse_test_only(line + "\n", returncode=0)
    assert verdict.accepted
    assert (verdict.start_time, verdict.nodes) == (1795236456.0, ("c1", "c2"))
    assert verdict.message == line.removeprefix("sbatch: ")


@pytest.mark.parametrize(
    ("number", "array", "own"),
    [
        (None, None, None),
        ("7", None, "7"),
        ("9", "7", "9"),  # also of an array that another job was submitted from
        ("7", "7", "7_3"),  # by 7 Slurm means all tasks
    ],
)
def test_a_job_names_itself_and_no_other(monkeypatch, number, array, own) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    for name, value in (("SLURM_JOB_ID", number), ("SLURM_ARRAY_JOB_ID", array)):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    assert own_job_id() == own


def test_many_tasks_of_an_array_are_one_word() -> None:
    tasks = [f"7_{number}" for number in (*range(60), 70, 72, 73)]
    assert control._by_array(["5", "7_1", "7_2"]) == ["5", "7_1", "7_2"]
    assert control._by_array(["5", *tasks]) == ["5", "7_[0-59,70-70,72-73]"]


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
    assert verdict.start_time is not None
