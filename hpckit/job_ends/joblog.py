"""What Slurm's own programs wrote into a job's log, as facts. Pure.

Their words are those of Slurm's sources from 20.11 to 25.05 (slurmd/slurmstepd/req.c and mgr.c,
api/step_launch.c, srun/libsrun/launch.c, the cgroup plugins); those tried on a real 22.05.8 and
26.05.5 are in the tests.
"""

import re
from collections.abc import Iterator

from hpckit.frozen import frozen
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.slurm.states import JobState
from hpckit.units import number_ranges

_SLURMSTEPD = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ (?:CANCELLED|FAILED)")
# srun was told from outside to end the step: by scancel, or by PMIx, which misses a rank.
_ABORTED = re.compile(r"srun: Job step aborted")
_WHOLE_JOB = re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED")
_WHY = re.compile(r"DUE TO ([A-Z ]+)", re.IGNORECASE)
# Who says so, and of which ranks: `srun: error: c1: tasks 0-1: Exited with exit code 3`.
_TASKS = re.compile(r"srun: (?:error|launch/slurm): ([\w.-]+): tasks? ([\d,\[\]-]+): (.+)")
_NODE = re.compile(r"srun: error: Node failure on ([\w.,\[\]-]+)")
# slurmstepd begins its lines with its name, since 26.05 with the time.
_OUT_OF_MEMORY = re.compile(
    r"(?:slurmstepd(?:-\S+)?:|\[[\d-]+T[\d:.]+\]) error: "
    r".*(?:\boom[-_ ]kill|\bexceeded (?:job |step )?memory limit)"
    r"|Out Of Memory",
    re.IGNORECASE,
)
# srun gave its step up, before or after its tasks had started. It ends with 0 then, unless a task
# ended otherwise that it heard of: step_launch.c and launch.c set no status.
_GIVEN_UP = re.compile(
    r"srun: (?:error: )?(?:[\w/]+: )*(?P<words>(?P<launch>"
    r"StepId=\S+ aborted before step completely launched"
    r"|timeout waiting for task launch, started \d+ of \d+ tasks"
    r"|task \d+ launch failed: .+"
    r"|Task launch for \S+ failed on node .+"
    r"|Application launch failed: .+"
    r")|aborting, io error with slurmstepd on node \d+"
    r"|Aborting, (?:io error and missing step|step missing and io error) on node \d+"
    r"|Aborting, can not test connection to node \d+"
    r"|Cannot communicate with node \d+\."
    r"|Job step aborted"
    r")"
)
_MOST_TASKS = 100_000
# Slurm's reasons as the states that accounting has later: too late for a process of the job itself.
_STATES = {
    "TIME LIMIT": JobState.TIMEOUT,
    "DEADLINE": JobState.DEADLINE,
    "PREEMPTION": JobState.PREEMPTED,
    "NODE FAILURE": JobState.NODE_FAIL,
}


@frozen(kw_only=True)
class TaskEnd:
    """How srun saw tasks of one host end; it says so in the order in which they did.

    `aborted`: the whole step was being ended by then, so that the order means nothing.
    """

    host: str
    tasks: tuple[int, ...]
    words: str
    aborted: bool = False


@frozen(kw_only=True)
class JobFacts:
    """What is said of the whole job, and how its tasks ended, in order.

    `why` is Slurm's own reason in its own words, such as TIME LIMIT, PREEMPTION, NODE FAILURE or
    JOB REQUEUE; empty when a step or job was cancelled without one; None when none was. `written`:
    there is a log. `given_up`: srun's first words that it gave its step up; `not_launched`: its
    first words that it could not launch it.
    """

    written: bool = True

    why: str | None = None
    tasks: tuple[TaskEnd, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    out_of_memory: bool = False
    given_up: str | None = None
    not_launched: str | None = None

    @property
    def state(self) -> JobState | None:
        """The state of a job that Slurm ended for its reason; None: it has not said a reason."""
        return _STATES.get(self.why or "")

    def never_begun(self, *, again: bool) -> str | None:
        """Return why an attempt has no rank, in srun's words; None: srun does not say so.

        `again`: an attempt before had ranks. What the log says of a step may then be about that.
        """
        return self.not_launched or (None if again else self.given_up)


def job_facts(text: str) -> JobFacts:
    """Read a job's log."""
    lines = text.splitlines()
    said = [_WHY.search(line) for line in lines if _SLURMSTEPD.search(line)]
    reasons = [match[1].strip().upper() for match in said if match]
    # 26.05 says so of what scancel ends, and before some other reason.
    reasons = [words for words in reasons if not words.startswith("SIGNAL ")]
    given_up = [match for match in map(_GIVEN_UP.search, lines) if match]
    return JobFacts(
        written=bool(text.strip()),
        why=reasons[0] if reasons else ("" if said else None),
        tasks=tuple(_task_ends(lines)),
        lost_nodes=tuple(dict.fromkeys(_lost_nodes(lines))),
        out_of_memory=any(_OUT_OF_MEMORY.search(line) for line in lines),
        given_up=next((row["words"] for row in given_up), None),
        not_launched=next((row["words"] for row in given_up if row["launch"]), None),
    )


def was_cancelled(text: str) -> bool:
    """Say whether somebody has ended the whole job, by what its log got meanwhile.

    Slurm writes the same line of a job that it ends for its memory, and of no other for its own
    reasons.
    """
    facts = job_facts(text)
    return facts.why == "" and not facts.out_of_memory and bool(_WHOLE_JOB.search(text))


def _task_ends(lines: list[str]) -> Iterator[TaskEnd]:
    aborted = False
    for line in lines:
        aborted = aborted or bool(_ABORTED.search(line) or _SLURMSTEPD.search(line))
        if match := _TASKS.search(line):
            yield TaskEnd(
                host=match[1],
                tasks=tuple(number_ranges(match[2].strip("[]"), _MOST_TASKS)),
                words=match[3].strip(),
                aborted=aborted,
            )


def _lost_nodes(lines: list[str]) -> Iterator[str]:
    for match in filter(None, map(_NODE.search, lines)):
        yield from nodes_or_none(match[1].rstrip(",.")) or ()
