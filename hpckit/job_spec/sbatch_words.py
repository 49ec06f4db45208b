"""Options of sbatch's: those passed on, those that hpckit writes, and what to type instead.

`--sbatch KEY[=VALUE]` is for options that hpckit has no word of its own for. They become `#SBATCH`
lines. What hpckit writes itself is refused, with the option to use instead: sbatch takes the last
of two lines, and a job that starts otherwise than planned has no ranks.
"""

import re
import shlex
from collections.abc import Iterable, Mapping

from hpckit.errors import RequestError
from hpckit.job_spec.option_words import NUMBERS, as_key, as_word, named_values, read_texts

_KEY = r"(?a)[a-z][a-z-]*[a-z]"
# These can ask for GPUs, too.
_GRES = ("gres", "tres-per-task")
# Names, lists of them, feature expressions and node ranges are all in here.
_WORD_SIGNS = "_.,:@%+=*&|()[]/-"
_VARIABLES = (
    "A job gets the variables of the shell: NAME=VALUE hpckit submit ... For all jobs, use `env:` "
    "and `pass_env:` in the site's YAML."
)

# sbatch(1): what is hpckit's own to say, and what to use or to know instead.
OWN: Mapping[str, str] = {
    "array": "Use --array KEY=A,B,C.",
    "batch": "Use --constraint.",
    "chdir": "A job runs in the folder of submission.",
    "clusters": "hpckit asks one cluster for its jobs: submit from a login node of that one.",
    "cpus-per-task": "Use --cpus-per-task.",
    "dependency": "Use --after JOBID.",
    "error": "Output is in the run's folder: hpckit logs.",
    "export": _VARIABLES,
    "export-file": _VARIABLES,
    "get-user-env": _VARIABLES,
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
    "parsable": "Use --json.",
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
    "wrap": "Use hpckit submit serial bash --gpus 0 -- -c 'COMMAND'.",
    **{
        name: f"Use --{name}."
        for name in ("account", "constraint", "exclude", "partition", "qos", "reservation")
    },
}
# sbatch(1) of Slurm 22.05 to 25.05: what `--sbatch` passes on. `OWN` has the others.
_PASSED = frozenset((
    "acctg-freq", "bb", "bbf", "begin", "cluster-constraint", "comment", "consolidate-segments",
    "container", "container-id", "contiguous", "core-spec", "cores-per-socket", "cpu-freq",
    "cpus-per-gpu", "deadline", "delay-boot", "distribution", "exclusive", "extra",
    "extra-node-info", "gpu-bind", "gpu-freq", "gres", "gres-flags", "hint", "hold", "licenses",
    "mail-type", "mail-user", "mcs-label", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus",
    "network", "nice", "no-kill", "nodefile", "nodelist", "oom-kill-step", "overcommit",
    "oversubscribe", "power", "prefer", "priority", "profile", "propagate", "reboot", "resv-ports",
    "segment", "sockets-per-node", "stepmgr", "switches", "thread-spec", "threads-per-core",
    "time-min", "tmp", "tres-bind", "tres-per-task", "wait-all-nodes", "wckey",
))  # fmt: skip
# What submitit's executors, or people, have for what hpckit's functions call otherwise.
_SUBMITIT: Mapping[str, str] = {
    "additional_parameters": "sbatch={...}",
    "array_parallelism": "parallel=",
    "cpus": "cpus_per_task=",
    "setup": "env=, or `setup:` in the site's YAML",
    "signal_delay_s": "max_requeues=",
    "timeout_min": "time=, in minutes or as '1h30m'",
}
_SHORT: Mapping[str, str] = {
    "-a": "array", "-B": "extra-node-info", "-b": "begin", "-D": "chdir", "-d": "dependency",
    "-e": "error", "-F": "nodefile", "-G": "gpus", "-H": "hold", "-i": "input", "-k": "no-kill",
    "-L": "licenses", "-M": "clusters", "-m": "distribution", "-O": "overcommit", "-o": "output",
    "-q": "qos", "-S": "core-spec", "-s": "oversubscribe", "-W": "wait", "-w": "nodelist",
    "-x": "exclude",
}  # fmt: skip


def read_sbatch(text: str) -> tuple[str, str | None]:
    """Return an option of sbatch and its value, None for a bare flag, of `KEY` or `KEY=VALUE`.

    Raises:
        RequestError: no such option can be, hpckit has a word of its own for it, or the value
            is empty or more than a printable line.
    """
    key, equals, value = text.removeprefix("--").partition("=")
    if not re.fullmatch(_KEY, key):
        raise RequestError(
            f"--sbatch {text!r}: write a long option of sbatch as KEY or KEY=VALUE, as in "
            "mail-type=END."
        )
    if equals:
        refuse_unprintable("--sbatch", text, value)
    whole = next((name for name in _GRES if name.startswith(key)), None)
    if whole and whole != key:
        raise RequestError(f"--sbatch {text!r}: write --{whole} in full.")
    if whole and re.search(r"(^|[,/\s])gpu\b", value):
        raise RequestError(f"--sbatch {text!r}: hpckit asks for GPUs itself. Use --gpus.")
    # sbatch takes any unmistakable beginning of a name for the name.
    own = key if key in OWN else next((name for name in OWN if name.startswith(key)), None)
    if own:
        numbers = re.fullmatch(NUMBERS, value) if own == "array" else None
        instead = named_values(numbers) if numbers else OWN[own]
        raise RequestError(f"--sbatch {text!r}: hpckit writes --{own} itself. {instead}".strip())
    return key, value if equals else None


def refuse_no_word(where: str, value: str) -> None:
    """Refuse a name of Slurm's that is empty, or holds white space, quotes, `$` and the like.

    Slurm takes some of them in names, but a name with one is mostly a slip.
    """
    odd = next((c for c in value if not (c.isascii() and c.isalnum()) and c not in _WORD_SIGNS), "")
    if not value:
        raise RequestError(f"{where} is empty.")
    if odd:
        raise RequestError(
            f"{where} {value!r} holds {odd!r}. hpckit takes letters, digits and {_WORD_SIGNS} here."
        )


def refuse_unprintable(where: str, given: str, value: str | None = None) -> None:
    """Refuse a value that no `#SBATCH` line can hold, however it is quoted, and an empty one.

    Args:
        where: the option.
        given: as it was typed.
        value: the part of it that is the value; None is all.
    """
    checked = given if value is None else value
    if not checked.strip() or not checked.isprintable():
        raise RequestError(f"{where} {given!r} must be printable text on one line.")


def merge_sbatch(*lists: Iterable[str]) -> tuple[str, ...]:
    """Return the options of several lists, each key once: the last list to name it wins."""
    merged = {read_sbatch(text)[0]: text.removeprefix("--") for texts in lists for text in texts}
    return tuple(merged.values())


def is_hold(text: str) -> bool:
    """Say whether an option of sbatch holds the job; sbatch takes the beginning of its name."""
    word = text.removeprefix("--")
    return len(word) > 1 and "hold".startswith(word)


def read_sbatch_texts(given: object) -> tuple[str, ...]:
    """Read KEY=VALUE and KEY texts, or a mapping from Python.

    There None or True means a flag, and a list is one value with commas: `["END", "FAIL"]`.

    Raises:
        ValueError: it is neither, or a value cannot be typed in a shell.
    """
    if not isinstance(given, Mapping):
        return read_texts(given)
    return tuple(
        as_key(key) if value is None or value is True else f"{as_key(key)}={_joined(value)}"
        for key, value in given.items()
        if value is not False
    )


def _joined(value: object) -> str:
    """Return a value as sbatch reads it, whose lists have commas."""
    rows = value if isinstance(value, list | tuple) else (value,)
    return ",".join(map(as_word, rows))


def instead_of_word(word: str, value: object) -> str | None:
    """Say what to write in Python for a word that sbatch or submitit has; None: neither has it.

    Args:
        word: as `mem` or `slurm_mem`, as submitit has sbatch's.
        value: what was given.
    """
    bare = word.removeprefix("slurm_")
    if bare in _SUBMITIT:
        return f"Use {_SUBMITIT[bare]}."
    key = bare.replace("_", "-")
    said = instead_of(f"--{key}", value)
    if said and key in OWN and said.startswith("Use --"):
        # `Use --after JOBID.` is `Use after=.`
        return re.sub(r"--([a-z-]+)( [A-Z]\S*\b)?", lambda at: f"{at[1].replace('-', '_')}=", said)
    if said and key in _PASSED and " --sbatch " in said:
        return f"As an option of sbatch: sbatch={{{key!r}: {value!r}}}."
    return said


def instead_of(option: str, value: object = None) -> str | None:
    """Say what to write for an option that sbatch has, and hpckit has not; None: nor has sbatch.

    Args:
        option: as typed, `-b` or `--begin`.
        value: what was given as its value; None if nothing.
    """
    name = _SHORT.get(option, option.removeprefix("--"))
    if name in OWN:
        return OWN[name] or None
    if name not in _PASSED:
        return None
    try:
        texts = read_sbatch_texts({name: value})
        for text in texts:
            read_sbatch(text)
    except RequestError as error:
        return str(error)
    except ValueError as error:
        return f"As an option of sbatch, {error}."
    return f"As an option of sbatch: --sbatch {shlex.quote(texts[0])}."
