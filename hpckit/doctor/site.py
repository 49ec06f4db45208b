"""Whether Slurm answers, a site's file says what the cluster says, and its job script is sound."""

import re
from collections.abc import Iterable, Iterator, Mapping

from hpckit.detect.answers import Detected, Reply, version_text
from hpckit.doctor import Check, bad, good, unknown
from hpckit.lint import bash_errors, late_options
from hpckit.sites import GENERIC, PartitionLimits, Site
from hpckit.slurm.cluster import Partition
from hpckit.submission.model import Submission, preflight
from hpckit.text import counted, plural
from hpckit.units import format_minutes

_MIB_PER_GIB = 1024
_INIT = "or run hpckit init again, if you have not edited the file"


def site_checks(site: Site, path: str, found: Detected | None) -> Iterator[Check]:
    """Compare a site with what was found out; None where there is no Slurm to ask."""
    yield good(f"site {site.name}: {path} can be read")
    if found is None:
        return
    if site.name == GENERIC:
        yield unknown(
            "limits and GPUs of this cluster", "no site file fits this cluster: run hpckit init"
        )
    differences = list(_differences(site, found))
    yield from differences
    if site.name != GENERIC and not differences:
        yield good(f"site {site.name} agrees with the cluster")


def _differences(site: Site, found: Detected) -> Iterator[Check]:
    if found.partitions is None:
        yield unknown("whether the site's partitions are right", "scontrol did not answer")
    else:
        yield from _partitions(site, {row.name: row for row in found.partitions})
    yield from _gpus(site, found)
    yield from _rights(site, found)
    kinds = found.mpi.kinds
    if site.mpi and kinds and site.mpi not in kinds:
        todo = f"srun --mpi=list names {', '.join(kinds)}: set 'launch: {{mpi: NAME}}'"
        yield bad(f"the site's MPI {site.mpi!r} is not one that srun knows", todo)


def _partitions(site: Site, known: dict[str, Partition]) -> Iterator[Check]:
    names = dict.fromkeys([*site.partitions, *([site.partition] if site.partition else [])])
    for name in names:
        if name not in known:
            todo = f"the cluster has {', '.join(known)}: correct the site's file, {_INIT}"
            yield bad(f"partition {name!r} of the site does not exist", todo)
    for row in site.partitions.values():
        if row.name in known:
            yield from _limits(row.name, row.max_time_min, row.max_nodes, known[row.name])
            yield from _nodes(row, known[row.name])
    default = known.get(site.partition or "")
    if default and default.state != "UP":
        todo = "jobs wait there: give another --partition, or ask the cluster's support"
        yield bad(f"default partition {default.name!r} is {default.state}", todo)


def _limits(name: str, minutes: int | None, nodes: int | None, known: Partition) -> Iterator[Check]:
    """Yield limits over the cluster's: such jobs wait for ever."""
    limit = known.max_time_min
    if limit and minutes and minutes > limit:
        yield bad(
            f"partition {name!r}: the site allows {format_minutes(minutes)}, but "
            f"the cluster allows {format_minutes(limit)}",
            f"such jobs never start: correct max_time, {_INIT}",
        )
    if known.max_nodes and nodes and nodes > known.max_nodes:
        yield bad(
            f"partition {name!r}: the site allows {counted(nodes, 'node')}, but the cluster allows "
            f"{known.max_nodes}",
            f"correct max_nodes, {_INIT}",
        )


def _nodes(row: PartitionLimits, known: Partition) -> Iterator[Check]:
    """Yield what is more than any node has. A node of 0 GPUs may have some of another name."""
    memory = [group.memory_mb / _MIB_PER_GIB for group in known.node_groups if group.memory_mb]
    for key, unit, said, most in (
        ("gpus_per_node", "GPUs", row.gpus_per_node, known.gpus_per_node),
        ("cpus_per_node", "CPUs", row.cpus_per_node, _most(g.cpus for g in known.node_groups)),
        ("mem_gb_per_node", "GiB of memory", row.mem_gb_per_node, _most(map(int, memory))),
    ):
        if said and most and said > most:
            yield bad(
                f"partition {row.name!r}: the site has {said} {unit} on a node, but the cluster's "
                f"nodes have {most} at most",
                f"Slurm refuses such jobs: correct {key}, {_INIT}",
            )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _gpus(site: Site, found: Detected) -> Iterator[Check]:
    most = _most(row.gpus_per_node for row in found.partitions or ())
    if site.gpus_per_node and most and site.gpus_per_node > most:
        yield bad(
            f"the site has {site.gpus_per_node} GPUs on a node, but the cluster's nodes have "
            f"{most} at most",
            f"Slurm refuses such jobs: correct per_node under gpus, {_INIT}",
        )
    for name, count in site.gpu_types.items():
        if count and count > found.gpu_types.get(name, count):
            yield bad(
                f"the site has {count} GPUs of type {name} on a node, but the cluster's nodes have "
                f"{found.gpu_types[name]} at most",
                f"Slurm refuses such jobs: correct types under gpus, {_INIT}",
            )
    gone = [name for name in site.gpu_types if name not in found.gpu_types]
    if gone and not found.nodes_known:
        yield unknown("whether the site's GPU types are right", "sinfo did not answer")
    elif gone:
        has = ", ".join(found.gpu_types) or "no types"
        yield bad(
            f"GPU types {', '.join(gone)} of the site do not exist",
            f"the cluster has {has}: correct the site's file, {_INIT}",
        )


def _rights(site: Site, found: Detected) -> Iterator[Check]:
    account, qos = site.defaults.get("account"), site.defaults.get("qos")
    if found.associations is None:
        if account or qos:
            yield unknown("whether you may use the account and QOS", "sacctmgr did not answer")
        return
    if account and account not in found.accounts:
        yours = ", ".join(found.accounts) or "none"
        yield bad(f"account {account!r} is not yours", f"you have {yours}: --account NAME")
    if site.account_required and not account and not found.default_account:
        yours = ", ".join(found.accounts) or "none"
        yield bad("jobs here need an account", f"you have {yours}: --account NAME at each submit")
    if qos and found.qos and qos not in found.qos:
        yield bad(f"QOS {qos!r} is not yours", f"you have {', '.join(found.qos)}: --qos NAME")


# munge, which proves who a user is, takes no message that is 300 s old: munge(1), --ttl.
_CLOCK_S = 60.0
_MADE_AT = re.compile(r"Configuration data as of (\d+)$", re.MULTILINE)
_MUTE = "accounting storage is disabled"


def more_questions(user: str) -> dict[str, tuple[str, ...]]:
    """Return what is asked beside `hpckit.detect.login_node.questions`."""
    return {
        "sbatch": ("sbatch", "--version"),
        "queue": ("squeue", "--noheader", f"--user={user}", "--format=%i"),
    }


def scheduler_checks(answers: Mapping[str, Reply], found: Detected, now: float) -> Iterator[Check]:
    """Check what Slurm's programs said; `now` is this machine's time, in epoch seconds."""
    sbatch, queue = answers["sbatch"], answers["queue"]
    if sbatch.text is None:
        yield bad("sbatch does not answer", sbatch.why)
    else:
        version = version_text(found.version) if found.version else sbatch.text.strip()
        yield good(f"sbatch answers (Slurm {version}, cluster {found.name or 'of unknown name'})")
    if queue.text is None:
        yield bad("squeue does not answer", queue.why)
    else:
        number = len(queue.text.split())
        yield good(f"squeue answers: {number} {plural('job', number)} of yours")
    yield _accounting(answers["accounting"])
    yield _clock(answers["config"], now)
    for row in found.unknown:
        if row.what not in (sbatch.asked, queue.asked, answers["accounting"].asked):
            yield unknown(row.what, row.why)


def _accounting(answer: Reply) -> Check:
    if answer.text is not None:
        return good("accounting answers (sacct)")
    if _MUTE in answer.why:
        return unknown("what jobs used, after their end", "this cluster keeps no accounting")
    return bad("accounting does not answer (sacct)", answer.why)


def _clock(answer: Reply, now: float) -> Check:
    match = _MADE_AT.search(answer.text or "")
    if match is None:
        return unknown(
            "whether clocks agree", "scontrol show config did not give the controller's time"
        )
    seconds = round(now - int(match[1]))
    if abs(seconds) <= _CLOCK_S:
        return good("this machine's clock and the controller's agree")
    return bad(
        f"this machine's clock is {abs(seconds)} s {'ahead of' if seconds > 0 else 'behind'} the "
        "controller's",
        "tell the cluster's support: logins and the times of jobs will be wrong",
    )


def script_checks(submission: Submission) -> Iterator[Check]:
    """Render a small job, read it with bash, and ask `sbatch --test-only`: nothing is submitted."""
    rendered = submission.rendered
    template = rendered.templates[0].path
    faults = [*late_options(rendered.text), *bash_errors(rendered.text)]
    for line, message in faults:
        todo = f"hpckit templates lint {submission.job.template}"
        yield bad(f"line {line} of the job script: {message}", todo)
    if not faults:
        yield good(f"template {template} gives a valid job script")
    if submission.job.scheduler.accounting:
        yield good(preflight(submission).removesuffix("."))
    else:
        yield unknown(
            "whether Slurm would accept a job", "no Slurm answers here; jobs run on this machine"
        )
