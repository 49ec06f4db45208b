"""`scontrol show job`: what only the controller says, exit code and restarts among it.

It reads one job, while the controller remembers it, and is the last resort where there is no
accounting.
"""

import re

from hpckit.slurm.client import ask, checked_id, refusal
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.slurm.record import JobRecord, Source, each_task, parse_exit, text_or_none
from hpckit.slurm.states import is_finished, parse_state
from hpckit.slurm.times import parse_duration_s, parse_limit_min, parse_moment

# The name is its user's own text, of several words or lines; UserId always follows it.
_BLOCK = re.compile(
    r"^JobId=(?P<ids>.*?)JobName=(?P<name>.*?)\n +UserId=", re.DOTALL | re.MULTILINE
)
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)")


def scontrol_job(job_id: str) -> dict[str, JobRecord]:
    """Ask the controller for one job in full; an array's id brings its tasks, an unknown nothing.

    Raises:
        RequestError: `job_id` is not a job id.
        CommandError: The controller does not answer, or there is no scontrol.
    """
    result = ask(["scontrol", "show", "job", checked_id(job_id)], check=False)
    if result.returncode != 0 and "Invalid job id" not in result.stderr:
        raise refusal(result)
    return {record.job_id: record for record in parse_scontrol_jobs(result.stdout)}


def parse_scontrol_jobs(text: str) -> list[JobRecord]:
    """Read the jobs in the output of `scontrol show job`."""
    heads = list(_BLOCK.finditer(text))
    borders = [head.start() for head in heads] + [len(text)]
    return [
        task
        for head, end in zip(heads, borders[1:], strict=True)
        for task in each_task(
            _record(head, dict(_PAIR.findall("UserId=" + text[head.end() : end])))
        )
    ]


def _record(head: re.Match[str], fields: dict[str, str]) -> JobRecord:
    raw_id, job_id = _ids(head["ids"])
    state = parse_state(fields.get("JobState", ""))
    finished = is_finished(state)
    exit_code, signal = parse_exit(fields.get("ExitCode", ""), state)
    restarts = fields.get("Restarts", "")
    return JobRecord(
        job_id=job_id,
        raw_id=raw_id,
        state=state,
        source=Source.SCONTROL,
        name=head["name"],
        user=text_or_none(fields.get("UserId", "").partition("(")[0]),
        account=text_or_none(fields.get("Account", "")),
        partition=text_or_none(fields.get("Partition", "")),
        qos=text_or_none(fields.get("QOS", "")),
        reason=text_or_none(fields.get("Reason", "")),
        nodes=nodes_or_none(fields.get("NodeList", "")),
        elapsed_s=parse_duration_s(fields.get("RunTime", "")),
        time_limit_min=parse_limit_min(fields.get("TimeLimit", "")),
        submit_time=parse_moment(fields.get("SubmitTime", "")),
        start_time=parse_moment(fields.get("StartTime", "")),
        end_time=parse_moment(fields.get("EndTime", "")) if finished else None,
        exit_code=exit_code,
        signal=signal,
        restarts=int(restarts) if restarts.isdecimal() else None,
    )


def _ids(text: str) -> tuple[str, str]:
    """Return (the number inside, the id as users type it) from the start of a job's first line."""
    raw_id, _, rest = text.partition(" ")
    fields = dict(_PAIR.findall(rest))
    if "ArrayTaskId" in fields:
        tasks = fields["ArrayTaskId"]
        return raw_id, f"{fields['ArrayJobId']}_" + (tasks if tasks.isdecimal() else f"[{tasks}]")
    if "HetJobOffset" in fields:
        return raw_id, f"{fields['HetJobId']}+{fields['HetJobOffset']}"
    return raw_id, raw_id
