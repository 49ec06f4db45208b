"""The edges, against programs of the same names that answer from recordings."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.errors import CommandError, RequestError, SubmissionError
from hpckit.schedulers.base import Answers
from hpckit.schedulers.slurm.asking import in_full
from hpckit.schedulers.slurm.preflight import preflight
from hpckit.schedulers.slurm.sbatch import job_of
from hpckit.slurm import cluster, control, jobs
from hpckit.slurm.client import id_lists
from hpckit.slurm.rows import COLUMN, ROW
from hpckit.slurm.states import JobState
from hpckit.slurm.usage import job_usage
from hpckit.slurm.usage_rows import FIXED
from tests.conftest import FAKES
from tests.unit.recorded import RECORDED

Fake = Callable[[str, str], Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a program first on PATH; every call of it is a line in the file given back."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def program(name: str, body: str) -> Path:
        log = tmp_path / f"{name}.log"
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "$SLURM_TIME_FORMAT $*" >> {log}\n{body}\n')
        path.chmod(0o755)
        return log

    return program


def recorded(name: str) -> str:
    return f"""'{FAKES / "say.bash"}' '{RECORDED / "slurm" / name}' "$@" """


def test_many_jobs_are_one_squeue_that_is_asked_for_epoch_seconds(fake: Fake) -> None:
    log = fake("squeue", recorded("squeue-22.05.8.txt"))
    assert list(jobs.squeue(["1", "3_9", "999"])) == ["3_9", "1"]
    (call,) = log.read_text().rstrip().split("\n")
    assert call.startswith("%s --noheader --states=all --format=")
    assert call.endswith("--jobs=1,3_9,999")


@pytest.mark.parametrize("asked", [["2"], ["1", "2", "8", "9"]], ids=["one", "many"])
def test_how_jobs_ended_badly_is_one_more_question_for_all(fake: Fake, asked: list[str]) -> None:
    """Accounting may not have heard of it yet."""
    ends = "".join(f"{job} {status} 1\\n" for job, status in ((2, 768), (8, 9), (1, 256)))
    body = f'case "$*" in *exit_code*) printf "{ends}"; exit 0;; esac\n'
    log = fake("squeue", body + recorded("squeue-22.05.8.txt"))
    records = in_full(Answers(records=jobs.squeue(asked))).records
    assert (log.read_text().count("--noheader"), records["2"].exit_code) == (2, 3)
    assert records["2"].restarts == 1
    if "8" in asked:
        assert (records["8"].exit_code, records["1"].exit_code) == (137, None)  # it runs
        assert records["9"].exit_code is None  # forgotten meanwhile


@pytest.mark.parametrize(
    ("said", "status"),
    [("768", "3:0"), ("9", "0:9"), ("3:0", "3:0"), ("0:125", "0:125"), ("", None), ("3:", None)],
)
def test_newer_slurms_write_status_and_signal(said: str, status: str | None) -> None:
    """22.05.8 writes wait(2)'s number, 26.05.5 `5:0`."""
    row = f"{'7':>48}{said:>24}{'2':>24}\n"
    assert jobs.parse_ends(row) == ({"7": (status, 2)} if status else {})


def test_of_jobs_that_run_nothing_more_is_asked(fake: Fake) -> None:
    log = fake("squeue", recorded("squeue-22.05.8.txt"))
    in_full(Answers(records=jobs.squeue(["1"])))
    assert log.read_text().count("--noheader") == 1


def test_an_array_brings_its_tasks_and_an_id_inside_finds_its_task(fake: Fake) -> None:
    fake("squeue", recorded("squeue-22.05.8.txt"))
    assert len(jobs.squeue(["3"])) == 10
    assert list(jobs.squeue(["16"])) == ["3_1"]
    assert list(jobs.squeue(["12"])) == ["12+0", "12+1"]
    assert list(jobs.squeue(["12+1"])) == ["12+1"]


def test_the_bare_row_of_a_cancelled_array_is_not_a_job(fake: Fake) -> None:
    fake("squeue", recorded("squeue-after-22.05.8.txt"))
    assert list(jobs.squeue(["3"])) == ["3_0", "3_1"]


def test_sacct_is_asked_for_the_array_of_a_task(fake: Fake) -> None:
    log = fake("sacct", recorded("sacct-after-22.05.8.txt"))
    assert jobs.sacct(["14_3"])["14_3"].state is JobState.CANCELLED
    assert log.read_text().splitlines()[0].endswith("--jobs=14")


def test_the_latest_attempt_has_the_number_of_restarts(fake: Fake) -> None:
    fake("sacct", recorded("sacct-requeued-22.05.8.txt"))
    assert jobs.sacct(["11"])["11"].restarts == 1
    assert [row.restarts for row in jobs.sacct_attempts(["11"])["11"]] == [0, 1]


def test_a_job_on_its_way_back_counts_the_restart_to_come(fake: Fake) -> None:
    fake("sacct", recorded("sacct-requeued-22.05.8.txt") + " | head -n 1")
    record = jobs.sacct(["11"])["11"]
    assert (record.state, record.restarts) == (JobState.REQUEUED, 1)


def test_a_job_that_squeue_does_not_know_is_left_out(fake: Fake) -> None:
    fake("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert jobs.squeue(["99"]) == {}


def test_one_unknown_job_does_not_lose_the_others(fake: Fake) -> None:
    fake(
        "squeue",
        'case "$*" in *99*) echo "error: Invalid job id specified" >&2; exit 1;; esac\n'
        + recorded("squeue-22.05.8.txt"),
    )
    assert sorted(jobs.squeue(["1", "2", "99", "10"])) == ["1", "10", "2"]


def test_a_controller_that_is_down_is_an_error_with_advice(fake: Fake) -> None:
    say = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
    fake("squeue", say)
    for ask in (jobs.squeue, jobs.ends):
        with pytest.raises(CommandError, match="down or restarting: try again"):
            ask(["1"])


SILENT = [
    "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2",
    "echo 'slurm_load_jobs error: Unable to contact slurm controller'",
    "echo 'Invalid user id' >&2",
    "echo 'Welcome to the lab'",
    "echo 'slurm_load_jobs error: Invalid job id specified' >&2; echo 'error: timed out' >&2; "
    "exit 1",
]


@pytest.mark.parametrize("body", SILENT)
def test_words_without_rows_are_no_answer_whatever_the_exit_status(fake: Fake, body: str) -> None:
    """Else jobs that run would count as forgotten."""
    columns = " ".join(FIXED)
    for program in ("squeue", "sacct"):
        fake(program, f'case "$*" in *--helpformat*) echo {columns} ;; *) {body} ;; esac')
    words = "Unable to contact|Invalid user id|Welcome to the lab|error: timed out"
    for reader in (jobs.squeue, jobs.sacct, job_usage):
        with pytest.raises(CommandError, match=words):
            reader(["1"])
    with pytest.raises(CommandError, match=words):
        job_of("run-1", time.time())


def test_a_list_of_columns_that_is_cut_short_is_not_believed(fake: Fake) -> None:
    refuses = "echo 'sacct: fatal: Invalid field requested' >&2; exit 1"
    fake(
        "sacct",
        f'case "$*" in *--helpformat*) echo JobID State ;; *QOS*TotalCPU*) {refuses};; esac',
    )
    with pytest.raises(CommandError, match="Invalid field requested"):
        job_usage(["1"])


def test_an_error_beside_rows_leaves_open_only_what_has_no_row(fake: Fake) -> None:
    """Plugins of some sites complain each time."""
    fake("squeue", "echo 'squeue: error: plugin x' >&2\n" + recorded("squeue-22.05.8.txt"))
    assert jobs.squeue(["1", "3_9", "16"]).keys() == {"3_1", "3_9", "1"}
    with pytest.raises(CommandError, match="did not answer what it was asked; it said: squeue: er"):
        jobs.squeue(["1", "999"])


def test_a_failure_with_rows_shows_nothing_of_them(fake: Fake) -> None:
    for program, rows in (("squeue", "squeue-22.05.8.txt"), ("sacct", "sacct-after-22.05.8.txt")):
        fake(program, f'echo Out of money; {recorded(rows)}; echo "+ $*" >&2; exit 1')
        with pytest.raises(CommandError) as error:
            getattr(jobs, program)(["1"])
        assert "exited with status 1: + --" in str(error.value)
        fake(program, f"echo Out of money; {recorded(rows)}; exit 1")
        with pytest.raises(CommandError, match=r"exited with status 1: Out of money$") as bare:
            getattr(jobs, program)(["1"])
        assert not re.search("[\x1e\x1f]|[0-9a-f]{16}", f"{error.value}{bare.value}")


def test_a_name_that_reads_like_rows_of_other_jobs_is_only_a_name(
    fake: Fake, tmp_path: Path
) -> None:
    """As a real Slurm prints it: nothing in a name is escaped, neither separators nor lines."""

    def say(program: str, row: str, name: str) -> None:
        (tmp_path / "row").write_text(row)
        (tmp_path / "name").write_text(name + "\n")
        fake(program, f"""'{FAKES / "say.bash"}' {tmp_path}/row "$@"; cat {tmp_path}/name""")

    who = ["root", "lab", "gpu", "normal", "COMPLETED"]
    row = ["7", "7", *who, "0:01", "1:00", "1", "2", "N/A", "c1", "None", ""]
    name = "a\n" + ROW + COLUMN.join(["1", "1", *row[2:]]) + "\n" + ROW + "b"
    say("squeue", ROW + COLUMN.join(row), name)
    assert jobs.squeue(["1", "7"]).keys() == {"7"}
    assert jobs.squeue(["7"])["7"].name == name
    row = ["7", "7", *who, "", "c1", "5", "60", "1", "2", "3", "0:0", ""]
    name = "a\n" + COLUMN.join(["1", "1", *row[2:]]) + "\nb"
    say("sacct", COLUMN.join(row), name)
    assert jobs.sacct(["1", "7"]).keys() == {"7"}
    assert jobs.sacct(["7"])["7"].name == name


def test_switched_off_accounting_is_an_error_with_advice(fake: Fake) -> None:
    fake("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    with pytest.raises(CommandError, match="only squeue can answer"):
        jobs.sacct(["1"])


@pytest.mark.parametrize("job_id", ["", "latest", "1;rm", "-1", "1,2", "1_", "²"])
def test_what_is_no_job_id_is_not_asked(job_id: str) -> None:
    with pytest.raises(RequestError, match="is not a Slurm job id"):
        jobs.squeue(["1", job_id])
    with pytest.raises(RequestError, match="is not a Slurm job id"):
        jobs.sacct([job_id])


def test_no_jobs_ask_nothing(fake: Fake) -> None:
    log = fake("squeue", "exit 1")
    assert jobs.squeue([]) == {}
    assert not log.exists()


def test_more_ids_than_one_argument_holds_are_parted() -> None:
    ids = [str(number) for number in range(1_000_000, 1_030_000)]
    lists = list(id_lists(ids))
    assert ",".join(lists).split(",") == ids
    assert len(lists) == 3
    assert max(map(len, lists)) <= 100_000


def test_a_users_own_filters_do_not_apply(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    monkeypatch.setenv("SLURM_CONF", "/etc/here")
    fake("squeue", f"env > {tmp_path}/env")
    jobs.squeue(["1"])
    seen = (tmp_path / "env").read_text()
    assert "SQUEUE_PARTITION" not in seen
    assert "SLURM_CONF=/etc/here" in seen
    assert "SLURM_BITSTR_LEN=0" in seen


def test_a_refused_script_is_a_verdict_and_a_controller_that_is_down_an_error(fake: Fake) -> None:
    log = fake("sbatch", "echo 'allocation failure: Invalid account' >&2; exit 1")
    verdict = control.test_only(Path("a job.sh"), None)
    assert (verdict.accepted, verdict.message) == (False, "allocation failure: Invalid account")
    assert log.read_text() == "%s --test-only a job.sh\n"
    fake("sbatch", "echo 'allocation failure: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(CommandError, match="try again soon"):
        control.test_only(Path("job.sh"), None)


def test_a_job_whose_nodes_are_drained_is_not_told_to_ask_for_less(fake: Fake) -> None:
    """Slurm takes such a job, which waits; --test-only says what it says of an impossible one."""
    fake(
        "sbatch",
        "echo 'allocation failure: Requested node configuration is not available' >&2; exit 1",
    )
    show = (
        'case "$*" in *partition*) echo "PartitionName=gpu Default=YES State=UP"; exit;; esac\n'
        "echo 'NodeName=n1 State=IDLE+DRAIN Partitions=gpu'\n"
        "echo 'NodeName=n2 State=%s Partitions=gpu'\n"
        "echo 'NodeName=n3 State=DOWN Partitions=cpu'"
    )
    job: Any = SimpleNamespace(options={"partition": None})
    fake("sinfo", "exit 0")
    fake("scontrol", show % "DOWN*")
    with pytest.raises(
        SubmissionError, match=r"2 of 2 nodes of partition gpu .* \(n1, n2\)\. If"
    ) as e:
        preflight(job, "")
    assert "submit it: it waits for them" in str(e.value)
    fake("scontrol", (show % "IDLE").replace("+DRAIN", ""))
    with pytest.raises(SubmissionError, match="No node is like that: lower --gpus"):
        preflight(job, "")
    fake("scontrol", "exit 1")
    with pytest.raises(SubmissionError, match="No node is like that: lower --gpus"):
        preflight(job, "")


def test_a_script_is_tried_in_the_environment_given(fake: Fake) -> None:
    fake("sbatch", 'echo "$SLURM_CONF-$HOME" >&2')
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": "/etc/there"}
    assert control.test_only(Path("job.sh"), env).message == "/etc/there-"


def test_cancelling_names_each_job_and_forgives_those_that_are_over(fake: Fake) -> None:
    log = fake("scancel", "echo 'error: Invalid job id specified' >&2; exit 1")
    control.cancel(["1", "2_3", "1"])
    assert log.read_text() == "%s 1 2_3\n"
    fake(
        "scancel",
        "echo 'Invalid job id'; printf 'Invalid job id\\nerror: permission denied\\n' >&2; exit 1",
    )
    with pytest.raises(CommandError, match="permission denied"):
        control.cancel(["1"])


def test_partitions_know_their_nodes_from_sinfo(fake: Fake) -> None:
    fake("scontrol", recorded("scontrol-partition-22.05.8.txt"))
    fake("sinfo", recorded("sinfo-22.05.8.txt"))
    assert [(one.name, one.gpus_per_node) for one in cluster.partitions()] == [
        ("gpu", 4),
        ("short", 4),
        ("urgent", 4),
    ]


def test_mpi_types_are_heard_on_either_stream(fake: Fake) -> None:
    fake("srun", recorded("srun-mpi-20.11-documented.txt") + " >&2")
    assert "openmpi" in cluster.mpi_types()
    fake("srun", recorded("srun-mpi-22.05.8.txt"))
    assert "pmi2" in cluster.mpi_types()


def test_what_the_linker_says_is_no_complaint_of_slurms(fake: Fake) -> None:
    said = "ERROR: ld.so: object 'libxalt_init.so' from LD_PRELOAD cannot be preloaded: ignored."
    fake("squeue", f'echo "{said}" >&2')
    assert jobs.squeue(["1"]) == {}
