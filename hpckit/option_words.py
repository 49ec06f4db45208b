"""Options of sbatch that hpckit has no word of its own for: `--sbatch KEY[=VALUE]`.

They become `#SBATCH` lines. What hpckit writes itself is refused, with the option to use instead:
sbatch takes the last of two lines, and a job that starts otherwise than planned has no ranks.
"""

import re
from collections.abc import Iterable, Mapping

from hpckit.errors import RequestError

_KEY = re.compile(r"[a-z][a-z-]*[a-z]", re.ASCII)
# Lists, feature expressions, node ranges and addresses are all in here; white space, quotes, `$`
# and control characters are not, whatever quoting would do with them.
WORD = re.compile(r"[A-Za-z0-9_.,:@%+=*&|()\[\]/-]+")

# sbatch(1): what is hpckit's own to say, and what to use or to know instead.
_OWN: Mapping[str, str] = {
    "array": "Use --array KEY=A,B,C.",
    "batch": "Use --constraint.",
    "chdir": "A job runs in the folder of submission.",
    "clusters": "hpckit asks one cluster for its jobs: submit from a login node of that one.",
    "cpus-per-task": "Use --cpus-per-task.",
    "dependency": "Use --after JOBID.",
    "error": "Output is in the run's folder: hpckit logs.",
    "export": "Use `env:` and `pass_env:` in the site's YAML.",
    "export-file": "Use `env:` and `pass_env:` in the site's YAML.",
    "get-user-env": "Use `env:` and `pass_env:` in the site's YAML.",
    "gid": "A job is its submitter's.",
    "gpus": "Use --gpus, per node.",
    "gpus-per-node": "Use --gpus.",
    "gpus-per-socket": "Use --gpus, per node.",
    "gpus-per-task": "Use --gpus, per node: it would hide a rank's neighbours from NCCL.",
    "help": "",
    "ignore-pbs": "",
    "input": "Ranks have no standard input.",
    "job-name": "Use --name.",
    "kill-on-invalid-dep": "Use --after JOBID.",
    "mem": "Use --mem-gb.",
    "no-requeue": "Use --max-requeues.",
    "nodes": "Use --nodes.",
    "ntasks": "Use --gpus or --tasks-per-node.",
    "ntasks-per-core": "Use --gpus or --tasks-per-node.",
    "ntasks-per-gpu": "Use --gpus or --tasks-per-node.",
    "ntasks-per-node": "Use --gpus or --tasks-per-node.",
    "ntasks-per-socket": "Use --gpus or --tasks-per-node.",
    "open-mode": "Logs are appended, so that restarts lose nothing.",
    "output": "Output is in the run's folder: hpckit logs.",
    "parsable": "",
    "quiet": "",
    "requeue": "Use --max-requeues.",
    "signal": "Use --max-requeues.",
    "spread-job": "Use --nodes.",
    "test-only": "Use --check.",
    "time": "Use --time.",
    "uid": "A job is its submitter's.",
    "usage": "",
    "use-min-nodes": "Use --nodes.",
    "verbose": "",
    "version": "",
    "wait": "Use --wait.",
    "wrap": "Use hpckit submit serial PROGRAM.",
    **{
        name: f"Use --{name}."
        for name in ("account", "constraint", "exclude", "partition", "qos", "reservation")
    },
}


# These can ask for GPUs, too.
_GRES = ("gres", "tres-per-task")


def read_sbatch(text: str, where: str = "--sbatch") -> tuple[str, str | None]:
    """Return an option of sbatch and its value, None for a bare flag, of `KEY` or `KEY=VALUE`.

    Raises:
        RequestError: no such option can be, hpckit has a word of its own for it, or the value
            holds what Slurm does not take.
    """
    key, equals, value = text.removeprefix("--").partition("=")
    if not _KEY.fullmatch(key):
        raise RequestError(
            f"{where} {text!r}: write a long option of sbatch as KEY or KEY=VALUE, as in "
            "mail-type=END."
        )
    if equals and not WORD.fullmatch(value):
        raise RequestError(f"{where} {text!r} holds a character Slurm does not take.")
    whole = next((name for name in _GRES if name.startswith(key)), None)
    if whole and whole != key:
        raise RequestError(f"{where} {text!r}: write --{whole} in full.")
    if whole and re.search(r"(^|[,/])gpu\b", value):
        raise RequestError(f"{where} {text!r}: hpckit asks for GPUs itself. Use --gpus.")
    # sbatch takes any unmistakable beginning of a name for the name.
    own = key if key in _OWN else next((name for name in _OWN if name.startswith(key)), None)
    if own:
        raise RequestError(f"{where} {text!r}: hpckit writes --{own} itself. {_OWN[own]}".strip())
    return key, value if equals else None


def merge_sbatch(*lists: Iterable[str]) -> tuple[str, ...]:
    """Return the options of several lists, each key once: the last list to name it wins."""
    merged = {read_sbatch(text)[0]: text.removeprefix("--") for texts in lists for text in texts}
    return tuple(merged.values())
