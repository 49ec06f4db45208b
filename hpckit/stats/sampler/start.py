"""Starts and stops a sampler from a process of the job; neither can fail or hold up the job."""

import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import CommandError
from hpckit.interpreter import own_python

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_log = logging.getLogger(__name__)
# The sampler ends in less than a second; one that hangs in a dead file system never does.
_STOP_S = 1.5


def start_sampler(folder: Path, interval_s: float, ids: Mapping[str, str]) -> "Popen[bytes] | None":
    """Start a sampler that writes to a folder and ends with this process; takes milliseconds.

    Call it from the main thread, before the job's own work: the kernel ends the sampler with the
    thread that started it.

    Args:
        folder: where its file goes; made if it is not there.
        interval_s: seconds between samples; 0 starts none.
        ids: what the header should say beside Slurm's own variables: `run_id`, `job_id`,
            `restart`, `host`.

    Returns:
        None if it is off or cannot be started, which is logged.
    """
    if interval_s <= 0:
        return None
    pid = str(os.getpid())
    numbers = ["--interval", f"{interval_s:g}", "--root-pid", pid, "--parent-pid", pid]
    words = [word for name, value in ids.items() for word in ("--id", f"{name}={value}")]
    argv = [*own_python(), "-m", "hpckit.stats.sampler", "--dir", str(folder)]
    command = [*argv, *numbers, *words]
    try:
        with Path(os.devnull).open("wb") as quiet:
            return shell.spawn(command, stdout=quiet, stderr=quiet, new_session=True)
    except CommandError as error:
        _log.warning("No GPU samples: %s", error)
        return None


def stop_sampler(process: "Popen[bytes] | None") -> None:
    """Let a sampler take its last sample and end; waits 1.5 s at most. None is nothing to stop."""
    if process is None:
        return
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if process.poll() is not None:
        return
    process.kill()
    _log.warning("The GPU sampler did not end within %g s and was killed.", _STOP_S)
