"""What ends a job, or says whether one could run: scancel, sbatch --test-only, sbatch's answer."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpckit.errors import CommandError, SubmissionError
from hpckit.frozen import frozen
from hpckit.slurm.client import (
    NO_CLUSTER,
    NO_CONTROLLER,
    REFUSED,
    UNKNOWN_JOB,
    ask,
    checked_id,
    id_lists,
    refusal,
)
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.units import parse_moment

_ANSWER = r"(?:(?:sbatch: )?Submitted batch job )?(?P<id>\d+)(?:;[\w.-]+| on cluster [\w.-]+)?"
# 22.05 says `on nodes c1 in partition gpu`, older ones only `on c1`; 26.05 says `a using`.
_WOULD_START = (
    r"Job \d+ to start at (?P<start>\S+) (?:a )?using \d+ processors on "
    r"(?:nodes )?(?P<nodes>\S+)"
)
# So much of an answer is shown, in characters.
_SHOWN = 300
# So many tasks of one array are cancelled together.
_MANY = 50
# So many are named in an error.
_NAMED = 5
_SERVICE_DOWN = (
    rf"{NO_CONTROLLER}|Socket timed out|{REFUSED}|{NO_CLUSTER}|Protocol authentication error|"
    r"Zero Bytes were"
)


@frozen(kw_only=True)
class TestOnly:
    """Whether Slurm would take a job, and when and where it would start.

    `start_time` is in epoch seconds, and like `nodes` None where the job was refused or Slurm did
    not say. `message` is Slurm's own text, whatever the outcome.
    """

    accepted: bool
    start_time: float | None
    nodes: tuple[str, ...] | None
    message: str


def cancel(job_ids: Sequence[str]) -> None:
    """End jobs, or take them out of the queue; a job that is over stays as it was.

    Slurm does not say when a job is unknown (22.05 exits 0 in silence): ask squeue for the effect.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: The controller does not answer or refuses, or there is no scancel.
    """
    for ids in id_lists(job_ids):
        words = _by_array(ids.split(","))
        try:
            result = ask(["scancel", *words], check=False)
        except CommandError as error:
            raise _not_known(words, error) from error
        said = [line for line in result.stderr.splitlines() if line.strip()]
        if result.returncode != 0 and not (said and all(UNKNOWN_JOB in line for line in said)):
            raise _not_known(words, refusal(result))


def _not_known(words: Sequence[str], error: CommandError) -> CommandError:
    """Say of which jobs nobody knows whether they will end: scancel may have reached some."""
    named = " ".join(words[:_NAMED]) + f" and {len(words) - _NAMED} more" * (len(words) > _NAMED)
    return CommandError(
        f"{str(error).rstrip('.')}. hpckit does not know whether Slurm ends {named}: cancel again.",
        argv=error.argv,
        returncode=error.returncode,
        stderr=error.stderr,
    )


def _by_array(job_ids: Sequence[str]) -> list[str]:
    """Write many tasks of an array as one word, `12_[0-99]`: Slurm is asked once for each word."""
    arrays: dict[str, list[str]] = {}
    for job_id in job_ids:
        arrays.setdefault(job_id.partition("_")[0], []).append(job_id)
    words: list[str] = []
    for array, its in arrays.items():
        if len(its) < _MANY or not all("_" in job_id for job_id in its):
            words += its
            continue
        tasks = {int(job_id.partition("_")[2]) for job_id in its}
        firsts = sorted(task for task in tasks if task - 1 not in tasks)
        lasts = sorted(task for task in tasks if task + 1 not in tasks)
        ranges = [f"{first}-{last}" for first, last in zip(firsts, lasts, strict=True)]
        words.append(f"{array}_[{','.join(ranges)}]")
    return words


def end_batch_script(job_id: str) -> None:
    """End a job's batch script with SIGTERM, and so the job: as FAILED, not as CANCELLED.

    Raises:
        CommandError: The controller does not answer or refuses, or there is no scancel.
    """
    ask(["scancel", "--batch", "--signal=TERM", checked_id(job_id)])


def end_step(job_id: str, step: str) -> None:
    """End a job's step with SIGTERM; its job goes on.

    Raises:
        CommandError: The controller does not answer or refuses, or there is no scancel.
    """
    ask(["scancel", "--signal=TERM", f"{checked_id(job_id)}.{step}"])


def forbid_requeue(job_id: str) -> None:
    """Let a job that runs end for good when it is preempted, or loses a node: scontrol(1).

    Raises:
        CommandError: The controller does not answer or refuses, or there is no scontrol.
    """
    ask(["scontrol", "update", f"JobId={checked_id(job_id)}", "Requeue=0"])


def set_dependency(job_id: str, dependency: str) -> None:
    """Let a job that waits wait for something else: scontrol(1).

    Raises:
        CommandError: The controller does not answer or refuses, or there is no scontrol.
    """
    ask(["scontrol", "update", f"JobId={checked_id(job_id)}", f"Dependency={dependency}"])


def requeue(job_id: str) -> None:
    """End a job that runs, and put it back into the queue: scontrol(1).

    Raises:
        CommandError: The controller does not answer or refuses, or there is no scontrol.
    """
    ask(["scontrol", "requeue", checked_id(job_id)])


def test_only(script_path: Path, env: Mapping[str, str] | None) -> TestOnly:
    """Ask Slurm whether it would take a script, without submitting it.

    Without `EnforcePartLimits` Slurm accepts here, as when submitting, also a job that asks for
    more than its partition allows; such a job then waits for ever.

    `env` is the environment sbatch would get, None this process's.

    Raises:
        CommandError: The controller does not answer, or there is no sbatch.
    """
    result = ask(["sbatch", "--test-only", str(script_path)], env=env, check=False)
    if result.returncode != 0 and re.search(_SERVICE_DOWN, result.stderr):
        raise refusal(result)
    return parse_test_only(result.stderr or result.stdout, returncode=result.returncode)


def parse_test_only(text: str, *, returncode: int) -> TestOnly:
    """Read what `sbatch --test-only` said, also amid a submit filter's own lines."""
    lines = (line.strip().removeprefix("sbatch: ") for line in text.splitlines())
    match = re.search(_WOULD_START, text)
    return TestOnly(
        accepted=returncode == 0,
        start_time=parse_moment(match["start"]) if match else None,
        nodes=nodes_or_none(match["nodes"]) if match else None,
        message="\n".join(line for line in lines if line),
    )


def parse_job_id(stdout: str) -> str:
    """Return the job id of sbatch's answer: `ID`, `ID;CLUSTER`, or the sentence without --parsable.

    Only of an answer that is nothing else: a site's wrapper or plugin may print more, also
    a line that is a number (a balance), before the id or after it.

    Raises:
        SubmissionError: There is none, or more than the id was printed.
    """
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    answer = re.fullmatch(_ANSWER, lines[0]) if len(lines) == 1 else None
    if answer is None:
        raise SubmissionError(f"sbatch gave no job id by itself; it printed {_shown(lines)}.")
    return answer["id"]


def _shown(lines: Sequence[str]) -> str:
    """Return what was printed on one line, its end if it is long: there the id would be."""
    text = " / ".join(lines)
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}") if lines else "nothing"
