"""Whether Slurm answers: sbatch, the queue, accounting; and whether clocks agree."""

import re
from collections.abc import Iterator, Mapping

from hpckit.detect.cluster import version_text
from hpckit.detect.model import Answer, Detected
from hpckit.doctor.model import Check, bad, good, unknown

# munge, which proves who a user is, takes no message that is 300 s old: munge(1), --ttl.
_CLOCK_S = 60.0
_MADE_AT = re.compile(r"Configuration data as of (\d+)$", re.MULTILINE)
_MUTE = "accounting storage is disabled"


def more_questions(user: str) -> dict[str, tuple[str, ...]]:
    """Return what is asked beside `hpckit.detect.ask.questions`."""
    return {
        "sbatch": ("sbatch", "--version"),
        "queue": ("squeue", "--noheader", f"--user={user}", "--format=%i"),
    }


def scheduler_checks(answers: Mapping[str, Answer], found: Detected, now: float) -> Iterator[Check]:
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
        yield good(f"squeue answers: {len(queue.text.split())} jobs of yours")
    yield _accounting(answers["accounting"])
    yield _clock(answers["config"], now)
    for row in found.unknown:
        if row.what not in (sbatch.asked, queue.asked, answers["accounting"].asked):
            yield unknown(row.what, row.why)


def _accounting(answer: Answer) -> Check:
    if answer.text is not None:
        return good("accounting answers (sacct)")
    if _MUTE in answer.why:
        return unknown("what jobs used, after their end", "this cluster keeps no accounting")
    return bad("accounting does not answer (sacct)", answer.why)


def _clock(answer: Answer, now: float) -> Check:
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
