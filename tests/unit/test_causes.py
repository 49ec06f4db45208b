"""Who is to blame, from ranks' records, Slurm's word and the job's log."""

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from hpckit.job_ends.causes import Cause, Evidence, Kind, find_cause
from hpckit.job_ends.failures import ended_as, error_report, never_begun, why, why_from_inside
from hpckit.job_ends.joblog import JobFacts, TaskEnd, job_facts
from hpckit.job_ends.tracebacks import HANGS_AT_END, OUT_OF_MEMORY, START
from hpckit.run_folders.ranks import RankRecord, current, first_failure, write_rank
from hpckit.slurm.states import JobState
from hpckit.stop_marks import OVER, PREEMPTED, add_mark, marks_of
from tests.unit.made import make_run, rank

GOOD = {"exit_code": 0, "ended": 20.0}
TERM = {"exit_code": 143, "ended": 15.0, "consequence": True, "error": "ended by SIGTERM"}
RAISED = {"exit_code": 1, "ended": 20.0, "error": "Traceback\nValueError: no"}
PEER = {"exit_code": 1, "ended": 12.0, "error": "RuntimeError: Connection closed by peer [::1]:1"}
# Of Open MPI 5, seen with 5.0.7: a rank's own log has no word of it.
ABORTED = {"exit_code": 14, "ended": 12.0}
KILLED = {"exit_code": 137, "ended": 14.0, "error": "killed by SIGKILL"}
GONE: dict[str, object] = {}


def cause(state: JobState, *ends: dict, log: str = "", planned: int | None = None) -> Cause:
    rows = tuple(rank(number, **end) for number, end in enumerate(ends))
    found = find_cause(
        Evidence(ranks=rows, planned=planned or len(ends), state=state, facts=job_facts(log))
    )
    assert found is not None
    return found


def numbers(rows: tuple[RankRecord, ...]) -> list[int]:
    return [row.rank for row in rows]


# --- what the log says ---

LOG = """\
setting up
slurmstepd-c1: error: *** STEP 7.0 ON c1 CANCELLED AT 2026-11-22T03:30:38 DUE TO TIME LIMIT ***
slurmstepd: error: *** JOB 7 ON c1 CANCELLED AT 2026-11-22T03:30:38 DUE TO TIME LIMIT ***
srun: error: c2: task 3: Killed
srun: error: c1: tasks 0-1,4: Exited with exit code 3
srun: launch/slurm: _step_signal: Terminating StepId=7.0
"""


def test_a_log_is_read_as_facts() -> None:
    assert job_facts(LOG) == JobFacts(
        why="TIME LIMIT",
        tasks=(
            TaskEnd(host="c2", tasks=(3,), words="Killed", aborted=True),
            TaskEnd(host="c1", tasks=(0, 1, 4), words="Exited with exit code 3", aborted=True),
        ),
    )
    assert job_facts("loss 0.3\n") == JobFacts()
    assert len(job_facts("srun: error: c1: tasks 0-99999999999: Killed").tasks[0].tasks) < 200_000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("slurmstepd: error: *** STEP 4.0 ON c1 CANCELLED AT 2026-11-22T03:19:54 ***", ""),
        ("slurmstepd: error: *** JOB 4 ON c1 CANCELLED AT T DUE TO PREEMPTION ***", "PREEMPTION"),
        ("slurmstepd: error: *** JOB 4 ON c1 CANCELLED AT T DUE TO JOB REQUEUE ***", "JOB REQUEUE"),
        ("slurmstepd: error: *** JOB 4 ON c1 CANCELLED AT T DUE TO NODE FAILURE, SEE SLURMCTLD LOG "
         "FOR DETAILS ***", "NODE FAILURE"),
        # The next two were recorded on Slurm 26.05.5.
        ("[2026-11-24T15:23:38.369] error: *** STEP 6.0 ON c1 CANCELLED AT 2026-11-24T15:23:38 "
         "DUE to SIGNAL Killed ***", ""),
        ("[2026-11-24T15:22:25.014] error: *** JOB 6 ON c1 CANCELLED AT 2026-11-24T15:22:25 "
         "DUE TO TIME LIMIT ***", "TIME LIMIT"),
    ],
)  # fmt: skip
def test_slurms_own_reason_is_found(line: str, reason: str) -> None:
    assert job_facts(line).why == reason


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0. Some of your processes may "
        "have been killed by the cgroup out-of-memory handler.",
        "slurmstepd-c1: error: Detected 1 oom_kill event in StepId=5.batch. Some of the step tasks "
        "have been OOM Killed.",
        "srun: error: c1: task 0: Out Of Memory",
        # Slurm 26.05.5.
        "[2026-11-24T15:23:38.365] error: StepId=6.0 exceeded memory limit "
        "(1297465344 > 1073741824), being killed",
    ],
)
def test_a_kill_for_want_of_memory_is_found_in_the_log(line: str) -> None:
    assert job_facts(line).out_of_memory
    found = cause(JobState.FAILED, TERM, KILLED, log=line)
    assert (found.kind, numbers((found.rank,))) == (Kind.OUT_OF_MEMORY, [1])
    assert "out of memory" in found.text


def test_a_kill_for_want_of_memory_is_known_from_the_rank_itself() -> None:
    worker = {**RAISED, "error": f"RuntimeError: DataLoader worker is killed\n{OUT_OF_MEMORY}"}
    found = cause(JobState.FAILED, TERM, worker)
    assert found.kind is Kind.OUT_OF_MEMORY
    assert found.text.startswith("rank 1 on n0 failed first, exit status 1 (out of memory), 10.0 s")


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    found = cause(JobState.FAILED, {**RAISED, "ended": 10.0 - 7200})
    assert found.text == "rank 0 on n0 failed first, exit status 1"


# Of a step whose slurmstepd was killed before its tasks had started; srun ended with 0.
NOT_LAUNCHED = """\
srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 0
srun: launch/slurm: launch_p_step_launch: StepId=7.0 aborted before step completely launched.
srun: Job step aborted: Waiting up to 12 seconds for job step to finish.
srun: error: Timed out waiting for job step to complete
"""
WORDS = "StepId=7.0 aborted before step completely launched"
NEVER = f"no rank had started: srun gave up ({WORDS})"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # 23.02 and later name no plugin.
        (f"srun: {WORDS}.", WORDS),
        ("srun: error: timeout waiting for task launch, started 0 of 4 tasks",
         "timeout waiting for task launch, started 0 of 4 tasks"),
        ("srun: error: task 0 launch failed: Unspecified error",
         "task 0 launch failed: Unspecified error"),
        ("srun: error: Task launch for StepId=7.0 failed on node c1: Communication connection "
         "failure",
         "Task launch for StepId=7.0 failed on node c1: Communication connection failure"),
        ("srun: error: Application launch failed: Communication connection failure",
         "Application launch failed: Communication connection failure"),
    ],
)  # fmt: skip
def test_what_srun_says_of_a_step_that_it_could_not_launch(line: str, words: str) -> None:
    facts = job_facts(f"{line}\n{NOT_LAUNCHED}")
    assert (facts.not_launched, facts.never_begun(again=True)) == (words, words)


@pytest.mark.parametrize(
    "words",
    [
        "step_launch_notify_io_failure: aborting, io error with slurmstepd on node 0",
        "Aborting, io error and missing step on node 1",
        "Aborting, step missing and io error on node 1",
        "Aborting, can not test connection to node 1.",
        "Cannot communicate with node 1.  Aborting job.",
        "Job step aborted: Waiting up to 12 seconds for job step to finish.",
    ],
)
def test_what_srun_says_of_a_step_that_it_gave_up(words: str) -> None:
    """Of one that had started: with ranks in an attempt before, it may be about that."""
    facts = job_facts(f"srun: error: {words}\n")
    assert facts.given_up
    assert facts.given_up in words
    assert (facts.not_launched, facts.never_begun(again=False)) == (None, facts.given_up)
    assert facts.never_begun(again=True) is None
    assert job_facts(words).given_up is None  # not srun's


def test_ranks_that_srun_could_not_start_are_its_fault(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert never_begun(run.dir) is None  # no log
    (run.dir / "job.out").write_text("loading modules\n")
    assert never_begun(run.dir) is None
    (run.dir / "job.out").write_text(f"loading modules\n{NOT_LAUNCHED}")
    found = why(run, (), JobState.FAILED)
    assert found is not None
    assert (found.kind, found.text) == (Kind.JOB_SCRIPT, NEVER)
    assert "hint: Slurm could not start the ranks" in report(run)[-1]
    assert never_begun(run.dir) == NEVER
    (run.dir / "job.sh").write_text("#!/bin/bash\nsrun -n1 ours || true\n")
    assert never_begun(run.dir) is None  # a group's own template, which knows no ranks
    (run.dir / "job.sh").write_text("#!/bin/bash\nsrun python -m hpckit.submission.in_job /r\n")
    assert never_begun(run.dir) == NEVER
    write_rank(run.dir, rank(0, restart=0, **TERM, log_start=len(NOT_LAUNCHED) + 16))
    assert never_begun(run.dir) is None  # that was another attempt


# --- who is to blame ---


def test_the_first_failure_of_its_own_is_to_blame_not_one_that_was_stopped() -> None:
    found = cause(JobState.FAILED, TERM, GOOD, RAISED, {**RAISED, "ended": 22.5, "exit_code": 9})
    assert found.text == "rank 2 on n1 failed first, exit status 1, 10.0 s after its start"
    assert found.rank is not None
    assert (found.rank.rank, numbers(found.also), numbers(found.stopped)) == (2, [3], [0])


@pytest.mark.parametrize("peer", [PEER, ABORTED])
def test_one_that_only_says_that_a_peer_is_gone_comes_last(peer: dict) -> None:
    """Its clock may even say that it failed before the one it misses."""
    rows = [rank(0, **peer), rank(1, **KILLED)]
    assert first_failure(rows) == rows[1]
    assert numbers((cause(JobState.FAILED, peer, KILLED).rank,)) == [1]
    assert numbers((cause(JobState.FAILED, peer, peer).rank,)) == [0]


def test_a_script_that_ends_with_mpis_status_and_says_why_is_to_blame() -> None:
    own = ABORTED | {"error": "no licence"}
    assert numbers((cause(JobState.FAILED, own, GONE).rank,)) == [0]


@pytest.mark.parametrize(
    ("state", "log", "kind", "words"),
    [
        (JobState.TIMEOUT, "", Kind.TIME_LIMIT, "the job reached its time limit"),
        (JobState.PREEMPTED, "", Kind.PREEMPTED, "a job of higher priority took its place"),
        (JobState.CANCELLED, "", Kind.CANCELLED, "the job was cancelled"),
        (JobState.DEADLINE, "", Kind.TIME_LIMIT, "the job reached its deadline"),
        (JobState.FAILED, LOG, Kind.TIME_LIMIT, "the job reached its time limit"),
    ],
)
@pytest.mark.parametrize("ends", [(TERM, TERM), (TERM, PEER), (TERM, GONE), (PEER, GONE)])
def test_a_job_that_was_taken_away_is_no_ranks_fault(state, log, kind, words, ends) -> None:
    found = cause(state, *ends, log=log)
    assert (found.kind, found.rank) == (kind, None)
    assert found.text == f"{words}; no rank is the cause"


@pytest.mark.parametrize("ends", [(TERM, TERM), (TERM, PEER), (TERM, GONE), (GOOD, GOOD)])
def test_a_job_that_ended_in_a_preemptions_grace_time_is_no_ranks_fault(
    tmp_path: Path, ends: tuple[dict, ...]
) -> None:
    """Slurm calls it FAILED, and writes no reason into its log."""
    run = make_run(tmp_path)
    rows = [rank(number, **end) for number, end in enumerate(ends)]
    log = "slurmstepd-c1: error: *** STEP 11.0 ON c1 CANCELLED AT T ***\n"
    (run.dir / "job.out").write_text(log)
    add_mark(marks_of(run.dir, 0), 0, PREEMPTED)
    add_mark(marks_of(run.dir, 0), 0, OVER)  # a supervisor also says so, which ends its script
    taken = "a job of higher priority took its place"
    for found in (why(run, rows, JobState.FAILED), ended_as(run, rows)[1]):
        assert found is not None
        assert (found.kind, found.text) == (Kind.PREEMPTED, f"{taken}; no rank is the cause")
    assert why_from_inside(run, rows) is None
    assert error_report(run, rows, JobState.FAILED).startswith(taken)
    raised = why(run, [rank(0, **RAISED), *rows], JobState.FAILED)
    assert raised is not None
    assert raised.kind is Kind.RANK
    # A user's scancel in that time, which the job itself knows by its log alone.
    (run.dir / "job.out").write_text(log + log.replace("STEP 11.0", "JOB 11"))
    inside = ended_as(run, rows)[1]
    assert inside is not None
    assert inside.kind is not Kind.PREEMPTED


def test_a_rank_that_raised_before_the_job_was_taken_away_is_to_blame() -> None:
    found = cause(JobState.TIMEOUT, TERM, RAISED)
    assert (found.kind, numbers((found.rank,))) == (Kind.RANK, [1])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState.TIMEOUT, "the job reached its time limit"),
        (JobState.CANCELLED, "the job was cancelled"),
        (JobState.FAILED, "ranks were ended from outside, by a signal"),
    ],
)
def test_a_rank_that_raised_and_did_not_end_is_named(state: JobState, words: str) -> None:
    hung = TERM | {"error": f"ended by SIGTERM; before that it wrote:\n{START}\nOSError: x"}
    found = cause(state, TERM, hung, TERM)
    assert found.text == f"rank 1 on n0 had failed and did not end; {words}"
    assert (numbers((found.rank,)), numbers(found.stopped)) == ([1], [0, 2])
    assert cause(JobState.NODE_FAIL, TERM, hung).rank is None
    done = TERM | {"error": f"ended by SIGTERM\n{HANGS_AT_END}"}
    assert cause(state, GOOD, done).text == f"rank 1 on n0 was done and did not end; {words}"


def test_a_job_cancelled_on_its_way_back_into_the_queue_was_cancelled() -> None:
    """Its log has the words of the attempt before."""
    log = "slurmstepd-c1: error: *** JOB 7 ON c1 CANCELLED AT T DUE TO JOB REQUEUE ***\n"
    assert cause(JobState.CANCELLED, planned=1, log=log).kind is Kind.CANCELLED


def test_a_lost_node_comes_first() -> None:
    found = cause(JobState.NODE_FAIL, RAISED, GOOD, GONE, GONE)
    assert (found.kind, found.rank, found.text) == (Kind.LOST, None, "node n1 was lost")
    assert (numbers(found.lost), numbers(found.also)) == ([2, 3], [0])
    said = cause(JobState.FAILED, PEER, GONE, log="srun: error: Node failure on c[2-3]\n")
    assert said.text == "node c2, c3 was lost"


@pytest.mark.parametrize(
    ("words", "nodes"),
    [("c1, giving up", ("c1",)), ("c[1-2].", ("c1", "c2")), ("c[2-1]", ()), ("[", ())],
)
def test_what_a_script_writes_like_srun_is_no_error(words: str, nodes: tuple[str, ...]) -> None:
    assert job_facts(f"srun: error: Node failure on {words}\n").lost_nodes == nodes


@pytest.mark.parametrize("peer", [PEER, ABORTED])
def test_lost_ranks_come_before_those_that_miss_them(peer: dict) -> None:
    found = cause(JobState.FAILED, peer, GONE, TERM)
    assert (found.kind, found.rank) == (Kind.KILLED, None)
    assert found.text == "rank 1 (n0) recorded no end: killed from outside"
    assert (numbers(found.also), numbers(found.stopped)) == ([0], [2])


def test_srun_tells_which_came_first() -> None:
    """After MPI_Abort the others have no end; a killed rank has none, and others fail by it."""
    killed = "srun: error: c2: task 1: Killed\n"
    exited = "srun: error: c1: task 0: Exited with exit code 1\n"
    lost = cause(JobState.FAILED, RAISED, GONE, log=killed + exited)
    assert (lost.kind, lost.rank) == (Kind.KILLED, None)
    assert "srun saw task 1 of c2 end first: Killed" in lost.text
    raised = cause(JobState.FAILED, RAISED, GONE, log=exited + killed)
    assert (raised.kind, numbers((raised.rank,)), numbers(raised.lost)) == (Kind.RANK, [0], [1])


# What a rank's own failure under PMIx left in the log of a real 22.05.8: its node came last.
PMIX = """\
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
slurmstepd-c1: error:  mpi/pmix_v4: _errhandler: c1 [0]: pmixp_client_v2.c:211: Error handler \
invoked: status = -61, source = [slurm.pmix.139.0:0]
slurmstepd-c1: error: *** STEP 139.0 ON c1 CANCELLED AT 2026-11-22T04:32:34 ***
srun: error: c2: tasks 2-3: Killed
srun: launch/slurm: _step_signal: Terminating StepId=139.0
srun: error: c1: tasks 0-1: Killed
"""


def test_of_a_step_that_was_ended_as_a_whole_the_order_of_ends_says_nothing() -> None:
    raised = {**RAISED, "ended": 12.0}
    found = cause(JobState.FAILED, raised, KILLED, GONE, GONE, log=PMIX)
    assert found.text.startswith("rank 0 on n0 failed first, exit status 1")
    assert (numbers(found.also), numbers(found.lost)) == ([1], [2, 3])
    # A supervisor of its own was killed: the other ranks' SIGKILL is Slurm's.
    found = cause(JobState.FAILED, KILLED, KILLED, GONE, GONE, log=PMIX)
    assert found.rank is None
    assert found.text.endswith("ranks 2 (n1), 3 (n1) recorded no end: killed from outside")


# What two kills left in the log of a real 22.05.8: of rank 0's supervisor, and of the whole step.
ONE_KILLED = """\
srun: error: c1: task 0: Killed
srun: launch/slurm: _step_signal: Terminating StepId=9001.0
slurmstepd-c1: error: *** STEP 9001.0 ON c1 CANCELLED AT 2026-11-29T05:16:29 ***
srun: error: c2: task 1: Exited with exit code 1
srun: Force Terminated StepId=9001.0
"""
STEP_KILLED = """\
srun: error: c2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=9080.0
slurmstepd-c1: error: *** STEP 9080.0 ON c1 CANCELLED AT 2026-11-29T05:28:06 ***
srun: error: c1: task 0: Killed
srun: Force Terminated StepId=9080.0
"""
STEP_CANCELLED = """\
srun: Job step aborted: Waiting up to 12 seconds for job step to finish.
slurmstepd-c1: error: *** STEP 9079.0 ON c1 CANCELLED AT 2026-11-29T05:28:06 ***
srun: error: c1: task 0: Killed
srun: error: c2: task 1: Killed
"""
ELSEWHERE = {**GONE, "host": "n1"}


@pytest.mark.parametrize(
    ("log", "rows", "kind"),
    [
        (ONE_KILLED, (GONE, TERM), Kind.KILLED),
        ("srun: error: c1: task 0: Killed\n", (GONE,), Kind.KILLED),
        ("", (GONE, GONE), Kind.KILLED),  # srun was killed
        (STEP_KILLED, (GONE, ELSEWHERE), Kind.STOPPED),
        (STEP_KILLED.replace("slurmstepd", ""), (GONE, ELSEWHERE), Kind.STOPPED),
        (STEP_CANCELLED, (GONE, ELSEWHERE), Kind.STOPPED),
        (STEP_CANCELLED, (TERM, GONE), Kind.STOPPED),
    ],
    ids=["one", "alone", "no srun", "step", "step, in silence", "scancel", "scancel, one"],
)
def test_one_that_was_killed_is_told_from_a_step_that_was_ended(
    log: str, rows: tuple[dict, ...], kind: Kind
) -> None:
    assert cause(JobState.FAILED, *rows, log=log).kind is kind


def test_a_rank_whose_end_found_no_room_was_perhaps_not_killed() -> None:
    rows = (rank(0), rank(1, **TERM))
    facts, state = job_facts(ONE_KILLED), JobState.FAILED
    found = find_cause(Evidence(ranks=rows, planned=2, state=state, facts=facts, was_full=True))
    assert found is not None
    assert found.kind is Kind.UNKNOWN


def test_ranks_that_never_began_are_named() -> None:
    found = cause(JobState.FAILED, GOOD, planned=3)
    assert (found.kind, found.text) == (Kind.UNKNOWN, "ranks 1, 2 never started")
    many = cause(JobState.FAILED, *[GONE] * 40)
    assert many.text.endswith("15 (n7) and 24 more recorded no end: killed from outside")


def test_what_is_left_is_a_signal_or_the_job_script() -> None:
    assert cause(JobState.FAILED, TERM, TERM).kind is Kind.STOPPED
    well = cause(JobState.FAILED, GOOD, GOOD, log="x").text
    assert well.startswith("every rank ended well: the job's own")
    early = cause(JobState.FAILED, log="x").text
    assert early == "no rank had started: the job's own log says why it failed"
    silent = "no rank had started: the job wrote no log; under Slurm its node then most often"
    assert cause(JobState.FAILED, log="\n").text.startswith(silent)
    assert cause(JobState.OUT_OF_MEMORY, GONE).kind is Kind.OUT_OF_MEMORY


def test_an_attempt_without_ranks_may_have_no_line_in_the_log(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.dir / "job.out").write_text("of the attempt before\n")
    told = "no rank had started: the job's own log says why it failed"
    alone = why(run, (), JobState.FAILED)
    assert alone is not None
    assert alone.text == told
    write_rank(run.dir, rank(0, **GOOD))
    again = why(run, (), JobState.FAILED)
    assert again is not None
    assert again.text == (
        f"{told}, unless its lines are all of the attempt before: "
        "then Slurm could not start the job again"
    )


def test_while_a_job_runs_only_a_failure_is_said() -> None:
    running = Evidence(
        ranks=(rank(0), rank(1)), planned=4, state=JobState.RUNNING, facts=JobFacts()
    )
    assert find_cause(running) is None
    assert cause(JobState.RUNNING, GONE, RAISED).kind is Kind.RANK
    done = Evidence(ranks=(), planned=1, state=JobState.COMPLETED, facts=JobFacts())
    assert find_cause(done) is None


def test_only_slurms_newest_attempt_counts() -> None:
    rows = [rank(0, restart=1), rank(1, restart=1)]
    assert current(rows, None) == current(rows, 1) == tuple(rows)
    assert current(rows, 2) == ()


# --- the report ---


def report(run, *rows, state=JobState.FAILED) -> list[str]:
    for row in rows:
        write_rank(run.dir, row)
    return error_report(run, rows, state).splitlines()


def test_the_report_names_the_rank_that_failed_first_and_what_followed(tmp_path: Path) -> None:
    rows = [rank(0, **TERM), rank(1, **GOOD), rank(2, **RAISED),
            rank(3, exit_code=9, ended=22.5)]  # fmt: skip
    assert report(make_run(tmp_path), *rows) == [
        "rank 2 on n1 failed first, exit status 1, 10.0 s after its start:",
        "Traceback",
        "ValueError: no",
        "also failed: rank 3 (n1, 9)",
        "stopped after that: rank 0",
    ]


def test_a_rank_without_words_points_to_its_log(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    said = report(run, rank(2, exit_code=1, ended=20.0))
    assert f"the rank printed no error; see {run.dir}/logs/2.out" in said


def test_of_ranks_that_were_killed_with_their_supervisors_the_traceback_is_shown(
    tmp_path: Path,
) -> None:
    """PMIx kills all processes of the step; MPI's own words are in test_mpi_ends.py."""
    run = make_run(tmp_path)
    said = "Traceback (most recent call last):\n  File 'a.py'\nValueError: no\nMPI_ABORT"
    (run.dir / "logs" / "0.err").write_text("a warning\n")
    (run.dir / "logs" / "1.err").write_text(said)
    (run.dir / "job.out").write_text("srun: error\n")
    rows = [rank(number) for number in range(4)]
    assert report(run, *rows) == [
        "ranks 0 (n0), 1 (n0), 2 (n1), 3 (n1) recorded no end: killed from outside",
        "rank 1 on n0 wrote:",
        *said.splitlines(),
        "srun: error",
    ]
    # Without one, the first that said anything may say why; Slurm's word says more.
    (run.dir / "logs" / "1.err").write_text("")
    (run.dir / "logs" / "2.err").write_text("bad input in line 3\n")
    assert report(run, *rows)[1:] == ["rank 0 on n0 wrote last: a warning", "srun: error"]
    (run.dir / "logs" / "0.err").write_text("")
    last = "rank 2 on n1 wrote last: bad input in line 3"
    assert report(run, *rows)[1:] == [last, "srun: error"]
    assert "wrote last" not in str(report(run, *rows, state=JobState.TIMEOUT))


def test_without_ranks_the_end_of_the_jobs_log_is_the_report(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert error_report(run, [], JobState.RUNNING) == ""
    assert report(run)[-1] == f"{run.dir}/job.out is empty"
    (run.dir / "job.out").write_text("".join(f"line {number}\n" for number in range(50)))
    assert report(run)[1:] == [f"line {number}" for number in range(30, 50)]


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = make_run(tmp_path, executor="local"), os.statvfs(tmp_path)
    full = os.statvfs_result((*real[:3], 2, 2, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    said = report(run, *map(rank, range(4)), state=JobState.NODE_FAIL)
    lost = "ranks 0 (n0), 1 (n0), 2 (n1), 3 (n1) recorded no end"
    assert said[0] == f"{lost}: their folder's disk is full"  # not: killed from outside
    full_disk = "the disk of the run's folder is full, so not all could be written there"
    early = why(run, (), JobState.FAILED)
    assert early is not None
    assert early.text == f"no rank had started: the job wrote no log: {full_disk}"
    (run.dir / "job.out").write_text("srun: error\n")
    early = why(run, (), JobState.FAILED)
    assert early is not None
    assert early.text.endswith(f"; {full_disk}")
    assert said[-1] == f"there is no room left in {run.dir}: the last output is lost"


@pytest.mark.parametrize("why", [errno.ENOSPC, errno.EDQUOT])
def test_that_a_disk_or_a_quota_was_full_is_still_known_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    def full(*_words: object, **_options: object) -> None:
        raise OSError(why, os.strerror(why))

    run = make_run(tmp_path)
    begun = rank(1)
    with monkeypatch.context() as patch:
        patch.setattr("hpckit.run_folders.ranks.write_json", full)
        patch.setattr("hpckit.run_folders.run_files._PAUSES_S", (0.0,))
        with pytest.raises(OSError, match=os.strerror(why)):
            write_rank(run.dir, dataclasses.replace(begun, ended=9.0, exit_code=0))
    said = report(run, rank(0, ended=9.0, exit_code=0), begun)
    lost = "rank 1 (n0) recorded no end"
    assert said[0].startswith(f"{lost}: their folder's disk or quota was full; ")
    later = [
        dataclasses.replace(row, restart=1) for row in (rank(0, ended=9.0, exit_code=0), begun)
    ]
    assert report(run, *later)[0].startswith(f"{lost}: killed from outside; ")


def test_an_earlier_attempts_part_of_the_log_says_nothing_of_this_one(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.dir / "job.out").write_text(LOG + "line\n")
    found = why(run, [rank(0, log_start=len(LOG), **TERM)], JobState.FAILED)
    assert found is not None
    assert found.kind is not Kind.TIME_LIMIT
    older = why(run, [rank(0, **TERM)], JobState.FAILED)
    assert older is not None
    assert older.kind is Kind.TIME_LIMIT
