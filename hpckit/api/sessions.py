"""Sessions: a shell or a notebook server as a job, worked out to the point of submitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.api import log
from hpckit.api.options import job_spec
from hpckit.api.prepare import Submission, prepare
from hpckit.environ import own_python
from hpckit.errors import RequestError
from hpckit.job import Job
from hpckit.job.program import Program, ProgramKind
from hpckit.job_spec.arguments import time_word
from hpckit.paths import typed_path
from hpckit.session.host import ENTERING, Asked, host_words
from hpckit.session.idle import parse_idle

if TYPE_CHECKING:
    from datetime import timedelta

# Options of `submit` that mean nothing for a session: it is one process, typed at, and of no code.
NOT_FOR_SESSIONS = (
    *("array", "zip", "parallel", "settings", "max_requeues", "chain", "retry", "retries"),
    *("checkpoint", "no_code", "nodes", "tasks_per_node", "launcher"),
)


def prepare_session(
    kind: str,
    words: Mapping[str, object],
    *,
    program: str,
    in_container: str | None = None,
    idle: str | int | timedelta | None = None,
    runs: Path | str | None = None,
    preview: bool = False,
    tell: Callable[[str], None] = log,
) -> Submission:
    """Work a session out to the point of submitting: its host, and in it a program.

    Args:
        kind: what `hpckit.session.host` serves.
        words: options of `hpckit.submit` by their words; no GPU unless they ask for one.
        program: what the host starts, in the environment.
        in_container: what it starts where the environment is an image, in the program's place.
        idle: a duration, or a timedelta: an idle session ends after so long.
        runs: the folder of runs.
        preview: it needs no Slurm.
        tell: hears what is found out on the way.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm was asked for and is not here.
    """
    given = {name: value for name, value in words.items() if value is not None}
    if wrong := next((name for name in NOT_FOR_SESSIONS if name in given), None):
        raise RequestError(f"A session takes no option {wrong!r}: it is one process on one node.")
    asked = {"gpus": 0, "name": kind, **given}
    spec = replace(job_spec("serial", asked, program=program), no_code=True)
    idle_s = parse_idle(None if idle is None else time_word(idle), spec.sample_interval_s)
    root = None if runs is None else typed_path(runs)
    submission = prepare(spec, root, preview=preview, tell=tell)
    hosted = _hosted(submission.job, kind, idle_s, in_container)
    return replace(submission, job=hosted, session={"kind": kind, "idle_s": idle_s})


def _hosted(job: Job, kind: str, idle_s: float | None, in_container: str | None) -> Job:
    """Return a job whose program is a session's host, which starts the program of this one."""
    image = job.environment
    if image.entered and kind not in ENTERING:
        raise RequestError(
            f"This kind of session cannot be in a container of Pyxis (--env {image.name}): what "
            "serves it would be in it, where hpckit is not. Use apptainer:IMAGE, or hpckit shell."
        )
    instead = in_container if image.in_container else None
    host = Asked(
        kind=kind,
        command=(*job.command[:-1], instead) if instead else job.command,
        idle_s=idle_s,
        interval_s=job.sample_interval_s,
        # This machine may play nodes with GPUs that it does not have.
        gpus=0 if job.device == "cpu" else job.gpus_per_node,
        container=image.path if image.entered else None,
    )
    command = (*own_python(), "-m", "hpckit.session.host", *host_words(host))
    program = Program(kind=ProgramKind.WORD, word=kind)
    # Nobody asked for the program, whose notes are of what this machine has.
    notes = tuple(row for row in job.notes if not (instead and row in job.program.notes))
    return replace(job, command=command, own_args=0, program=program, notes=notes)
