"""`scontrol show job`: what only the controller says, exit code and restarts among it.

It reads one job, while the controller remembers it, and is the last resort where there is no
accounting.
"""

import re

from hpckit.slurm.client import ask, checked_id, refusal
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.slurm.record import JobRecord, Source, each_task, parse_exit, text_or_none
from hpckit.slurm.states import is_finished, parse_state
from hpckit.text import parse_duration_s, parse_limit_min, parse_moment

_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)")


def scontrol_job(job_id: str, name: str) -> dict[str, JobRecord]:
    """Ask the controller for one job in full; an array's id brings its tasks, an unknown nothing.

    `name` is the job's as squeue says it: a name may hold lines that look like Slurm's own, and
    only who knows it can tell where it ends. A job of another name is left out.

    Raises:
        RequestError: `job_id` is not a job id.
        CommandError: The controller does not answer, or there is no scontrol.
    """
    result = ask(["scontrol", "show", "job", checked_id(job_id)], check=False)
    if result.returncode != 0 and "Invalid job id" not in result.stderr:
        raise refusal(result)
    found: dict[str, JobRecord] = {}
    for record in parse_scontrol_jobs(result.stdout, name):
        # A comment may hold lines like Slurm's too, but it comes after what is the job's own.
        found.setdefault(record.job_id, record)
    return found


def parse_scontrol_jobs(text: str, name: str) -> list[JobRecord]:
    """Read the jobs of a name in the output of `scontrol show job`."""
    block = re.compile(
        r"(?:\A|\n\n)JobId=(?P<ids>[^\n]*?)JobName="
        + re.escape(name)
        + r"\n(?: +HetJobIdSet=\S*\n)? +UserId="
    )
    heads = list(block.finditer(text))
    borders = [head.start() for head in heads] + [len(text)]
    return [
        task
        for head, end in zip(heads, borders[1:], strict=True)
        for task in each_task(_record(name, head["ids"], _fields(text[head.end() : end])))
    ]


def _fields(text: str) -> dict[str, str]:
    """Return a block's fields; of several of a name the first, which no comment wrote."""
    fields: dict[str, str] = {}
    for key, value in _PAIR.findall("UserId=" + text):
        fields.setdefault(key, value)
    return fields


def _record(name: str, ids: str, fields: dict[str, str]) -> JobRecord:
    raw_id, job_id = _ids(ids)
    state = parse_state(fields.get("JobState", ""))
    finished = is_finished(state)
    exit_code, signal = parse_exit(fields.get("ExitCode", ""), state)
    restarts = fields.get("Restarts", "")
    return JobRecord(
        job_id=job_id,
        raw_id=raw_id,
        state=state,
        source=Source.SCONTROL,
        name=name,
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
