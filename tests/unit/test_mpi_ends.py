"""What MPI writes in a rank that it ends, and who is to blame then."""

from pathlib import Path

import pytest

from hpckit.job_ends.causes import Kind
from hpckit.job_ends.failures import cause_rows, error_report, why
from hpckit.job_ends.mpi_ends import is_mpi_end, mpi_end
from hpckit.job_ends.tracebacks import last_error, last_words, says_why
from hpckit.run_folders.ranks import RankRecord, write_rank
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState
from tests.unit.made import make_run, rank

RULE = "-" * 74 + "\n"
# Recorded here with Open MPI 4.1.4, under srun and Slurm 22.05.8.
ABORT = f"""\
{RULE}MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 5.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
You may or may not see output from other processes, depending on
exactly when Open MPI kills them.
{RULE}"""
FATAL = """\
[c1:11596] *** An error occurred in MPI_Send
[c1:11596] *** reported by process [2461935887,1]
[c1:11596] *** on communicator MPI_COMM_WORLD
[c1:11596] *** MPI_ERR_RANK: invalid rank
[c1:11596] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
[c1:11596] ***    and potentially your MPI job)
"""
NO_INIT = FATAL.replace("MPI_Send", "MPI_Init").replace("MPI_ERR_RANK: invalid", "Unknown")
PML = f"""\
{RULE}It looks like MPI_INIT failed for some reason; your parallel process is
likely to abort.  There are many reasons that a parallel process can
fail during MPI_INIT; some of which are due to configuration or environment
problems.  This failure appears to be an internal failure; here's some
additional information (which may only be relevant to an Open MPI
developer):

  PML add procs failed
  --> Returned "Not found" (-13) instead of "Success" (0)
{RULE}{NO_INIT}"""
UNREACHABLE = f"""\
{RULE}MPI_INIT has failed because at least one MPI process is unreachable
from another.  This *usually* means that an underlying communication
plugin has not loaded.

 * Check the output of ompi_info to see which BTL/MTL plugins are
   available.
{RULE}{NO_INIT}"""
NO_PMI = f"""\
{RULE}The application appears to have been direct launched using "srun",
but OMPI was not built with SLURM's PMI support and therefore cannot
execute. There are several options for building PMI support under
SLURM, depending upon the SLURM version you are using:

Please configure as appropriate and try again.
{RULE}*** An error occurred in MPI_Init_thread
*** on a NULL communicator
*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
***    and potentially your MPI job)
[c1:22685] Local abort before MPI_INIT completed completed successfully, but am not able to \
aggregate error messages, and not able to guarantee that all other processes were killed!
"""
WRONG_TIME = """\
*** The MPI_Barrier() function was called before MPI_INIT was invoked.
*** This is disallowed by the MPI standard.
*** Your MPI job will now abort.
"""
# By its source: ompi/mpi/c/help-mpi-api.txt of Open MPI 5.0.
ABORT_5 = ABORT.replace("with errorcode 5.", "  Proc: [[40927,1],1]\n  Errorcode: 5")
# Recorded here with MPICH 5.0.
MPICH = (
    "Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)"
    " - process 1\n"
)
MPICH_FATAL = """\
Abort(336251142) on node 1 (rank 1 in comm 0): Fatal error in internal_Send_c: Invalid rank, \
error stack:
internal_Send_c(316): MPI_Send_c(buf=0x557297bbda60, count=5, MPI_BYTE, 99, 0) failed
internal_Send_c(234): Invalid rank has value 99 but must be nonnegative and less than 2
"""
ABORTED = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD with errorcode 5."
ENDS = {
    "abort": (ABORT, ABORTED, 5),
    "abort, 5.0": (ABORT_5, ABORTED, 5),
    "abort, -1": (ABORT.replace("code 5", "code -1"), ABORTED.replace("code 5", "code -1"), 255),
    "fatal": (
        FATAL,
        "An error occurred in MPI_Send on communicator MPI_COMM_WORLD: MPI_ERR_RANK: invalid rank "
        "(MPI_ERRORS_ARE_FATAL)",
        None,
    ),
    "no init": (
        PML,
        'MPI_INIT failed: PML add procs failed --> Returned "Not found" (-13) instead of "Success" '
        "(0)",
        None,
    ),
    "unreachable": (
        UNREACHABLE,
        "MPI_INIT has failed because at least one MPI process is unreachable from another",
        None,
    ),
    "no PMI": (
        NO_PMI,
        'The application appears to have been direct launched using "srun", but OMPI was not built '
        "with SLURM's PMI support and therefore cannot execute",
        None,
    ),
    "before init": (
        NO_PMI.partition(RULE)[2].partition(RULE)[2],
        "An error occurred in MPI_Init_thread on a NULL communicator: (MPI_ERRORS_ARE_FATAL)",
        None,
    ),
    "wrong time": (
        WRONG_TIME,
        "The MPI_Barrier() function was called before MPI_INIT was invoked.",
        None,
    ),
    "mpich": (MPICH, MPICH.rstrip(), 5),
    "mpich, old": (MPICH.partition(": ")[2], MPICH.partition(": ")[2].rstrip(), 5),
    "mpich, fatal": (
        MPICH_FATAL,
        "Abort(336251142) on node 1 (rank 1 in comm 0): Fatal error in internal_Send_c: Invalid "
        "rank: Invalid rank has value 99 but must be nonnegative and less than 2",
        6,
    ),
}
OWN = "FATAL: input file mesh.dat has 3 columns, need 4"
BEFORE = f"before that, the end of its stderr:\n{OWN}"


def logged(run: Run, number: int, err: str, out: str = "") -> None:
    (run.dir / "logs" / f"{number}.err").write_text(err)
    (run.dir / "logs" / f"{number}.out").write_text(out)


@pytest.mark.parametrize(("banner", "text", "status"), ENDS.values(), ids=ENDS)
def test_each_end_is_told_in_one_line_with_what_came_before(
    tmp_path: Path, banner: str, text: str, status: int | None
) -> None:
    err, out = tmp_path / "0.err", tmp_path / "0.out"
    err.write_text(f"{OWN}\n{banner}")
    out.write_text("step 1\n")
    end = mpi_end(err.read_text().splitlines())
    assert end is not None
    assert (end.text, end.status) == (text, status)
    assert is_mpi_end(text)
    assert last_error(err) == text
    assert says_why(text)
    assert last_words((err, 0), (out, 0)) == BEFORE
    err.write_text(banner)  # the program had its say on stdout
    assert last_words((err, 0), (out, 0)) == "before that, the end of its stdout:\nstep 1"


@pytest.mark.parametrize(
    "text",
    [
        "MPI_ABORT",
        "my error: Fatal error in MPI_Send: no",
        "An error occurred in MPI_Send",
        "[c1:1] *** An error occurred in MPI_Send\n[c1:1] *** MPI_ERR_RANK: invalid rank",
        "Abort(5)",
        "MPI_INIT takes long",
    ],
)
def test_what_only_looks_like_an_end_is_none(text: str) -> None:
    assert mpi_end(text.splitlines()) is None
    assert not is_mpi_end(text)


@pytest.mark.parametrize(("banner", "text", "status"), ENDS.values(), ids=ENDS)
def test_a_rank_that_mpi_ended_and_that_recorded_no_end_is_the_cause(
    tmp_path: Path, banner: str, text: str, status: int | None
) -> None:
    run = make_run(tmp_path)
    logged(run, 0, "a warning\n")
    logged(run, 1, f"{OWN}\n{banner}")
    (run.dir / "job.out").write_text("srun: error: c1: tasks 0-3: Killed\n")
    rows = [rank(number) for number in range(4)]
    code = "" if status is None else f", exit status {status}"
    report = error_report(run, rows, JobState.FAILED).splitlines()
    assert [line for line in report if not line.startswith("hint: ")] == [
        f"rank 1 on n0 failed first{code}:",
        text,
        *BEFORE.splitlines(),
        "ranks 0 (n0), 2 (n1), 3 (n1) recorded no end",
    ]
    assert cause_rows(run, rows, JobState.FAILED) == [
        ("rank 1", f"n0{code}: {text}"),
        ("lost", "ranks 0 (n0), 2 (n1), 3 (n1) recorded no end"),
    ]
    cause = why(run, rows, JobState.FAILED)
    assert cause is not None
    assert cause.kind is Kind.RANK


def blamed(run: Run, *rows: RankRecord, state: JobState = JobState.FAILED) -> list[str]:
    for row in rows:
        write_rank(run.dir, row)
    return error_report(run, rows, state).splitlines()


def test_who_called_mpi_abort_comes_before_whom_mpi_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    logged(run, 0, FATAL)
    logged(run, 1, ABORT)
    said = blamed(run, rank(0), rank(1))
    assert said[0] == "rank 1 on n0 failed first, exit status 5:"
    assert "also failed: rank 0 (n0)" in said


def test_ranks_that_were_killed_or_miss_it_come_after_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    logged(run, 1, ABORT)
    killed = {"exit_code": 137, "ended": 14.0, "error": "killed by SIGKILL"}
    peer = {"exit_code": 1, "ended": 12.0, "error": "Connection closed by peer"}
    for other in (killed, peer):
        said = blamed(run, rank(0, **other), rank(1))
        assert said[0] == "rank 1 on n0 failed first, exit status 5:"
        assert f"also failed: rank 0 (n0, {other['exit_code']})" in said


def test_an_error_that_a_rank_recorded_comes_before_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    logged(run, 1, ABORT)
    raised = rank(0, exit_code=1, ended=12.0, error="Traceback\nValueError: no")
    assert blamed(run, raised, rank(1))[0].startswith("rank 0 on n0 failed first, exit status 1")


def test_a_traceback_before_the_abort_is_the_error(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    trace = 'Traceback (most recent call last):\n  File "a.py"\nValueError: no\n'
    logged(run, 1, trace + ABORT)
    said = blamed(run, rank(0), rank(1))
    assert said[:2] == ["rank 1 on n0 failed first, exit status 5:", trace.splitlines()[0]]
    assert not any("before that" in line for line in said)


def test_the_banner_of_an_earlier_attempt_says_nothing_of_this_one(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    logged(run, 1, ABORT, "of before\n")
    rows = [rank(number, restart=1, err_start=len(ABORT), out_start=10) for number in range(2)]
    assert "killed from outside" in blamed(run, *rows)[0]
    logged(run, 1, ABORT + ABORT, "of before\nof now\n")
    said = blamed(run, *rows)
    assert said[0] == "rank 1 on n0 failed first, exit status 5:"
    assert said[2:4] == ["before that, the end of its stdout:", "of now"]


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.TIMEOUT, JobState.NODE_FAIL])
def test_what_slurm_took_away_stays_slurms(tmp_path: Path, state: JobState) -> None:
    run = make_run(tmp_path)
    logged(run, 1, ABORT)
    assert not blamed(run, rank(0), rank(1), state=state)[0].startswith("rank 1")
