"""Why a job waits or ended, in plain words, and what its user can do.

The codes are Slurm's own: src/common/job_state_reason.c of SchedMD/slurm, commit 00cd61fa0d59.
"""

import re

# Slurm has texts of its own in place of some codes: src/slurmctld/job_mgr.c.
_REQUEUED = "It was put back into the queue and is held: release it with 'scontrol release JOBID'."
_TEXTS = {
    "job requeued in held state": _REQUEUED,
    "job requeued in special exit state": _REQUEUED,
    "launch failed requeued held": (
        "Its nodes could not start it, and it is held: release it with 'scontrol release JOBID', "
        "and tell the cluster's support if that happens again."
    ),
}
_SENTENCES = {
    **_TEXTS,
    "Priority": "Jobs with a higher priority are ahead: wait, or ask for less time or fewer GPUs.",
    "Resources": "It is next in line and waits for nodes to come free: wait, or ask for less.",
    "None": "Slurm has not considered it yet: look again in a minute.",
    "BeginTime": "It may not start yet: it has a begin time, or was just requeued; wait.",
    "Dependency": "It waits for another job to end: see what it was submitted after.",
    "DependencyNeverSatisfied": (
        "The job of its --after did not end as required, so it will never start."
    ),
    "JobHeldUser": "It is held by its user: release it with 'scontrol release JOBID'.",
    "JobHeldAdmin": "It is held by an administrator: ask the cluster's support.",
    "JobHoldMaxRequeue": "It was requeued too often and is held: read its logs, then resubmit.",
    "JobArrayTaskLimit": "The array's own limit of tasks at once is reached: wait, or raise it.",
    "ReqNodeNotAvail": (
        "A node it needs is down, drained or reserved, perhaps for maintenance: ask for less time, "
        "or for other nodes."
    ),
    "Reservation": "It waits for its reservation to begin: wait, or submit without it.",
    "ReservationDeleted": "Its reservation was deleted: cancel it and submit without one.",
    "ReservationInvalid": "Its reservation is not valid for it: cancel it and submit without one.",
    "PartitionTimeLimit": "It asks for more time than the partition allows: lower --time.",
    "PartitionNodeLimit": "It asks for more nodes than the partition allows: lower --nodes.",
    "PartitionConfig": (
        "It asks for more than the partition allows, or than its nodes have: lower --time, "
        "--nodes, --tasks-per-node or --cpus-per-task, or choose another --partition."
    ),
    "PartitionDown": "The partition starts no jobs now: wait, or choose another --partition.",
    "PartitionInactive": "The partition is switched off: choose another --partition.",
    "BadConstraints": "No node has what it asks for: change the features, GPUs or memory.",
    "Constraints": "No available node has what it asks for: change --constraint, or wait.",
    "Licenses": "It waits for a software license to come free: wait.",
    "InvalidAccount": "Its account does not exist or is not yours: choose another --account.",
    "InvalidQOS": "Its QOS does not exist or is not yours: choose another --qos.",
    "AccountNotAllowed": "The partition does not accept its account: change one of them.",
    "QOSNotAllowed": "The partition or account does not accept its QOS: choose another --qos.",
    "QOSUsageThreshold": "Its account has used too much for this QOS: choose another, or wait.",
    "AccountingPolicy": "A limit of your account or QOS is reached: wait, or ask for less.",
    "MaxMemPerLimit": "It asks for more memory than the partition allows: lower --mem-gb.",
    "Prolog": "The nodes are being made ready: wait.",
    "Cleaning": "Its last attempt is still being cleaned up: wait.",
    "SchedDefer": "It asked to start at once or never, and could not: resubmit without that.",
    "BurstBufferResources": "It waits for space in the burst buffer: wait.",
    "BurstBufferStageIn": "Its files are being brought to the burst buffer: wait.",
    "BurstBufferOperation": "Its files could not be moved to or from the burst buffer: resubmit.",
    "PowerNotAvail": "The cluster's power budget is used up: wait.",
    "PowerReserved": "The cluster's power is reserved for others: wait.",
    "FedJobLock": "The federated clusters still decide where it runs: wait.",
    "NodeDown": "A node it needs went down: resubmit it if it is not requeued.",
    "SystemFailure": "Slurm or a node failed: resubmit it, and tell the cluster's support.",
    # 22.05 says so also when a signal killed the batch script.
    "JobLaunchFailure": "It could not be started, or was killed: check its paths and logs.",
    "NonZeroExitCode": "Its script ended with an error: read its logs.",
    "RaisedSignal": "A signal ended it: read its logs.",
    "TimeLimit": "It reached its time limit: ask for more --time, or resume from a checkpoint.",
    "InactiveLimit": "It was idle for too long and was ended.",
    "DeadLine": "It could not end before its deadline, or missed it: resubmit without one.",
    "OutOfMemory": "It used more memory than it asked for: ask for more --mem-gb.",
}
_LIMIT = (
    r"(?P<whose>QOS|Assoc(?:iation)?)?(?P<kind>Grp|Max|Min)?(?P<what>[A-Za-z]+?)"
    r"(?P<minutes>(?:Run)?Minutes)?(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
_RESOURCES = {
    "bb": "burst buffer space",
    "billing": "billing units",
    "cpu": "CPUs",
    "energy": "energy",
    "gres": "GPUs",
    "job": "jobs",
    "jobs": "jobs",
    "license": "licenses",
    "mem": "memory",
    "memory": "memory",
    "node": "nodes",
    "submitjob": "submitted jobs",
    "submitjobs": "submitted jobs",
    "time": "time",
    "wall": "time",
    "wallduration": "time",
}


_HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", *_TEXTS)
# What somebody must change before a job with such a reason starts: time alone does not.
_NEEDS_CHANGE = (
    *_HELD,
    "PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "PartitionInactive",
    "BadConstraints", "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed",
    "MaxMemPerLimit", "ReservationDeleted", "ReservationInvalid",
)  # fmt: skip
# Why a job waits for others, and why for what cannot come any more.
WAITS, NEVER = "Dependency", "DependencyNeverSatisfied"


def code_of(reason: str | None) -> str:
    """Return Slurm's code without what follows it, or its text, as squeue writes it.

    scontrol writes `_` for the spaces of a text.
    """
    code = (reason or "").partition(",")[0].strip()
    text = code.replace("_", " ")
    return text if text in _TEXTS else code


def is_held(reason: str | None) -> bool:
    """Say whether a job starts only after somebody has released it, whatever its begin time."""
    return code_of(reason) in _HELD


def needs_change(reason: str | None) -> bool:
    """Say whether a job waits until somebody changes it, or the cluster's rules."""
    return code_of(reason) in _NEEDS_CHANGE


def in_vain(reason: str | None, held_by: str | None) -> bool:
    """Say whether a job waits for what cannot come any more, itself or because of another."""
    return code_of(reason) == NEVER or held_by is not None


def explain(reason: str | None, job_id: str = "JOBID") -> str | None:
    """Say in a sentence why a job waits, and what to do; an unknown code is returned as it is.

    `job_id` is what scontrol is to be called with. What Slurm adds after a comma
    (`ReqNodeNotAvail, UnavailableNodes:c1`) is kept in brackets.
    """
    if reason is None:
        return None
    code, _, detail = (part.strip() for part in reason.strip("() ").partition(","))
    sentence = _SENTENCES.get(code_of(code)) or _limit(code)
    if sentence is None:
        return reason
    sentence = sentence.replace("JOBID", job_id)
    return f"{sentence} ({detail.replace(':', ': ')})" if detail else sentence


def _limit(code: str) -> str | None:
    """Explain one of the some two hundred limits, whose names are built from parts."""
    match = re.fullmatch(_LIMIT, code)
    if match is None or not (match["whose"] or match["per"] == "Account"):
        return None
    what = _RESOURCES.get(match["what"].lower(), "resources")
    whose = "QOS" if match["whose"] == "QOS" else "account"
    if match["kind"] == "Min":
        return f"It asks for fewer {what} than its {whose} wants: ask for more."
    if match["per"] in ("Job", "Node"):
        per = match["per"].lower()
        return f"It asks for more {what} per {per} than its {whose} allows: ask for less."
    if match["minutes"]:
        return f"The {whose}'s budget of {what} x time is used up: wait, or ask for less time."
    if match["per"] == "User":
        return f"Your jobs use all the {what} its {whose} allows one user: wait for one to end."
    return f"The {whose} uses all the {what} it is allowed at once: wait, or use another {whose}."
