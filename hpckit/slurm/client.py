"""How Slurm's programs are asked: one environment, so that what they print can be parsed."""

import os
from collections.abc import Iterator, Mapping, Sequence

from hpckit import shell
from hpckit.errors import CommandError, RequestError

# A user's own defaults for these programs change columns, filters and sorting: squeue(1),
# "ENVIRONMENT VARIABLES", and the same section of sacct(1), sinfo(1) and scontrol(1).
_OWN_DEFAULTS = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_")
_FORCED = {
    "SLURM_TIME_FORMAT": "%s",  # epoch seconds: no time zone to guess
    "SLURM_BITSTR_LEN": "0",  # squeue cuts long array ranges to 64 characters otherwise
}
_ARGUMENT_BYTES = 100_000  # Linux refuses one argument above 128 KiB
_HINTS = {
    "Unable to contact slurm controller": "Its controller is down or restarting: try again soon.",
    "Connection refused": "The service is down or restarting: try again soon.",
    "accounting storage is disabled": "This cluster keeps no accounting: only squeue can answer.",
    "Could not establish a configuration source": "Set SLURM_CONF, or run this on a login node.",
}
_ID_CHARACTERS = frozenset("0123456789_+")


def ask(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout_s: float = 60,
) -> shell.Completed:
    """Run one of Slurm's programs; times it prints are epoch seconds.

    `env` is the environment to start from, None this process's.

    Raises:
        CommandError: The program is missing, hangs, or (with `check`) fails.
    """
    result = shell.run(
        argv, env=parsable(os.environ if env is None else env), check=False, timeout_s=timeout_s
    )
    if check and result.returncode != 0:
        raise refusal(result)
    return result


def parsable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Slurm prints all of what was asked and nothing cut."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OWN_DEFAULTS)}
    return kept | _FORCED


def refusal(result: shell.Completed) -> CommandError:
    """Describe a failure in Slurm's words, and say what to do where that is known."""
    error = shell.failed(result)
    hint = next((hint for words, hint in _HINTS.items() if words in result.stderr), None)
    if hint is None:
        return error
    return CommandError(
        f"{error}. {hint}", argv=result.argv, returncode=result.returncode, stderr=result.stderr
    )


def id_lists(job_ids: Sequence[str]) -> Iterator[str]:
    """Join job ids with commas into as few arguments as the system's limit allows.

    Raises:
        RequestError: Something is not a job id; Slurm would refuse all of them for it.
    """
    chunk: list[str] = []
    size = 0
    for job_id in dict.fromkeys(job_ids):
        size += len(checked_id(job_id)) + 1
        if size > _ARGUMENT_BYTES:
            yield ",".join(chunk)
            chunk, size = [], len(job_id) + 1
        chunk.append(job_id)
    if chunk:
        yield ",".join(chunk)


def checked_id(job_id: str) -> str:
    """Return a job id as it is.

    Raises:
        RequestError: It is not `123`, `123_4` (array task) or `123+1` (heterogeneous job).
    """
    if job_id[:1].isdigit() and _ID_CHARACTERS.issuperset(job_id) and job_id[-1:].isdigit():
        return job_id
    raise RequestError(f"'{job_id}' is not a Slurm job id. Give it like 123, 123_4 or 123+1.")
