"""Options of sbatch's that are typed as hpckit's: what to write instead."""

import shlex
from collections.abc import Mapping

from hpckit.errors import RequestError
from hpckit.option_words import OWN, read_sbatch, read_sbatch_texts

# sbatch(1) of Slurm 22.05 to 25.05: what `--sbatch` passes on. `OWN` has the others.
_PASSED = frozenset((
    "bb", "bbf", "begin", "cluster-constraint", "comment", "consolidate-segments", "container",
    "container-id", "contiguous", "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu",
    "deadline", "delay-boot", "distribution", "exclusive", "extra", "extra-node-info", "gpu-bind",
    "gpu-freq", "gres", "gres-flags", "hint", "hold", "licenses", "mail-type", "mail-user",
    "mcs-label", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice",
    "no-kill", "nodefile", "nodelist", "oom-kill-step", "overcommit", "oversubscribe", "power",
    "prefer", "priority", "profile", "propagate", "reboot", "resv-ports", "segment",
    "sockets-per-node", "stepmgr", "switches", "thread-spec", "threads-per-core", "time-min",
    "tmp", "tres-bind", "tres-per-task", "wckey",
))  # fmt: skip
_SHORT: Mapping[str, str] = {
    "-a": "array", "-B": "extra-node-info", "-b": "begin", "-D": "chdir", "-d": "dependency",
    "-e": "error", "-F": "nodefile", "-G": "gpus", "-H": "hold", "-i": "input", "-k": "no-kill",
    "-L": "licenses", "-M": "clusters", "-m": "distribution", "-O": "overcommit", "-o": "output",
    "-S": "core-spec", "-s": "oversubscribe", "-W": "wait", "-w": "nodelist",
}  # fmt: skip


def instead_of(option: str, value: object = None, *, python: bool = False) -> str | None:
    """Say what to write for an option that sbatch has, and hpckit has not; None: nor has sbatch.

    Args:
        option: as typed, `-b` or `--begin`.
        value: what was given as its value; None if nothing.
        python: say it in Python's words.
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
    if python:
        return f"As an option of sbatch: sbatch={{{name!r}: {value!r}}}."
    return f"As an option of sbatch: --sbatch {shlex.quote(texts[0])}."
