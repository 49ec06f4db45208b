"""What one `hpckit submit` asks for. Each option is a field of `JobSpec`, declared only here.

The options of `submit` and `resubmit`, the keywords in Python, the `#SBATCH` lines, the defaults
that a site may give, `run.json`, the variables of templates and docs/options.md all follow from
the fields.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, get_type_hints

from hpckit.documents import nearest
from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.job_spec.arguments import argument
from hpckit.job_spec.option_words import (
    read_array,
    read_gpus,
    read_retry,
    read_settings,
    read_texts,
    split_array,
    split_setting,
)
from hpckit.job_spec.sbatch_words import (
    instead_of_word,
    read_sbatch,
    read_sbatch_texts,
    refuse_no_word,
    refuse_unprintable,
)
from hpckit.text import as_python
from hpckit.units import format_minutes, parse_minutes

# Without commas: `--gpus a100:1,shard:8:1` would ask Slurm for two things.
_TYPE = r"[A-Za-z0-9_.-]+"
_AROUND = 30  # characters shown on each side of one that is refused


@frozen(kw_only=True)
class Option:
    """What a field of `JobSpec` says of itself.

    Attributes:
        flags: as typed in a shell. Its name in Python is the first flag, without dashes.
        help: one line for people. metavar: the name of its value in the help.
        shown_default: the value if neither the user nor the site nor the workload gives one.
        sbatch: the option of sbatch that it becomes; None: it becomes none.
        written: makes the text of that option from the value.
        worked_out: whether the value is more than the user's or the site's: see `hpckit.job`.
        site: whether a site may give a default, under `defaults:` in its YAML.
        is_word: whether the value must be a word that Slurm accepts.
        least: the smallest number. read: makes the field's value from what was typed.
    """

    flags: tuple[str, ...]
    help: str
    metavar: str | None = None
    shown_default: str | None = None
    sbatch: str | None = None
    written: Callable[[Any], str] = str
    worked_out: bool = False
    site: bool = False
    is_word: bool = False
    least: float | None = None
    read: Callable[[Any], Any] | None = None

    @property
    def word(self) -> str:
        """Its name in Python and in a site's YAML; `set` is Python's own."""
        return (
            "settings" if self.flags[0] == "--set" else self.flags[0].lstrip("-").replace("-", "_")
        )


def option(*flags: str, default: Any = None, **declared: Any) -> Any:  # noqa: ANN401
    """Declare a field of `JobSpec` as an option."""
    return field(default=default, metadata={"option": Option(flags=flags, **declared)})


def _slurm_word(*flags: str, help: str, site: bool = False) -> Any:  # noqa: ANN401
    """Declare an option that is passed to Slurm as it is."""
    sbatch = flags[0].lstrip("-")
    return option(*flags, help=help, sbatch=sbatch, site=site, is_word=True)


@frozen(kw_only=True)
class JobSpec:
    """One job, or one array of jobs, before any arithmetic.

    None means that it was not asked for: the site and the workload decide. The `#SBATCH` lines have
    the fields' order.

    Attributes:
        target: a workload's name, or a strategy when `program` or `module` is given.
        program: a path, or a bare word that is looked up on the node. module: as of `python -m`.
        args: the program's own arguments.
        gpus: GPUs per node. time_min: minutes. mem_gb: GiB per node. sample_interval_s: 0 is off.
    """

    target: str
    program: str | None = None
    module: str | None = None
    args: tuple[str, ...] = ()

    name: str | None = option("--name", "-J", help="Job name.", sbatch="job-name", worked_out=True)
    partition: str | None = _slurm_word(
        "--partition", "-p", help="Slurm's partition (else the site's, else Slurm's).", site=True
    )
    account: str | None = _slurm_word(
        "--account", "-A", help="Account or project that the job's hours go to.", site=True
    )
    qos: str | None = _slurm_word(
        "--qos", help="Quality of service: Slurm's limits and priority.", site=True
    )
    nodes: int | None = option(
        "--nodes", "-N", help="Nodes.", sbatch="nodes", worked_out=True, least=1
    )
    tasks_per_node: int | None = option(
        "--tasks-per-node",
        help="Ranks per node, for ddp and mpi without GPUs.",
        # Always per node: with --ntasks alone Slurm may place ranks unevenly.
        sbatch="ntasks-per-node",
        worked_out=True,
        least=1,
    )
    cpus_per_task: int | None = option(
        "--cpus-per-task", help="CPUs per rank.", sbatch="cpus-per-task", worked_out=True, least=1
    )
    gpus: int | None = option(
        "--gpus", "--gpus-per-node", help="GPUs per node.", metavar="[TYPE:]N",
        sbatch="gpus-per-node", worked_out=True, least=0, read=read_gpus,
    )  # fmt: skip
    gpu_type: str | None = None
    mem_gb: int | None = option(
        "--mem-gb",
        help="Memory per node, in GiB (Slurm's G, counted by 1024).",
        sbatch="mem",
        worked_out=True,
        written="{}G".format,
        least=1,
    )
    time_min: int | None = option(
        "--time", "-t", help="Limit: minutes, 1h30m, HH:MM:SS, D-HH:MM:SS.", metavar="TIME",
        sbatch="time", worked_out=True, written=format_minutes, site=True, least=1,
        read=parse_minutes,
    )  # fmt: skip
    constraint: str | None = _slurm_word(
        "--constraint", "-C", help="Features that the nodes must have, as in 'a|b'.", site=True
    )
    reservation: str | None = _slurm_word("--reservation", help="Name of a reservation of nodes.")
    exclude: str | None = _slurm_word("--exclude", help="Nodes not to use.")
    exclude_bad: bool = option(
        "--exclude-bad", default=False, site=True,
        help="Leave nodes out on which jobs met a fault of the hardware (hpckit bad-nodes).",
    )  # fmt: skip
    array: tuple[str, ...] = option(
        "--array", default=(), metavar="KEY=A,B,C", sbatch="array", worked_out=True,
        read=read_array,
        help="One job per value, or per whole line of a file (KEY=@FILE); repeat for a product.",
    )  # fmt: skip
    zip: bool = option(
        "--zip", default=False, help="Pair the values of several --array instead of a product."
    )
    parallel: int | None = option("--parallel", help="Array tasks at once.", least=1)
    after: tuple[str, ...] = option(
        "--after", default=(), metavar="JOBID", sbatch="dependency", worked_out=True,
        read=read_texts,
        help="Start after this job has ended with status 0.",
    )  # fmt: skip
    sbatch: tuple[str, ...] = option(
        "--sbatch", default=(), metavar="KEY[=VALUE]", site=True, read=read_sbatch_texts,
        help="Any other option of sbatch, as in mail-type=END or exclusive; repeatable.",
    )  # fmt: skip
    site: str | None = option("--site", help="Site file (else detected).")
    template: str = option(
        "--template", default="base", shown_default="base", help="Script template."
    )
    env: str | None = option(
        "--env",
        help="Environment of the site; or a venv's path, uv:PROJECT, conda:NAME, spack:NAME, "
        "module:NAME, apptainer:IMAGE, pyxis:IMAGE.",
    )
    launcher: str | None = option(
        "--launcher", help="What starts the ranks: srun, torchrun or mpirun."
    )
    settings: tuple[str, ...] = option(
        "--set", default=(), metavar="KEY=VALUE", help="Workload parameter.", read=read_settings
    )
    max_requeues: int = option(
        "--max-requeues", default=0, shown_default="0", least=0,
        help="Restarts after time limit or preemption.",
    )  # fmt: skip
    chain: int = option(
        "--chain", default=0, shown_default="0", least=0,
        help="Follow-up jobs, each to go on after the one before, where Slurm may not requeue.",
    )  # fmt: skip
    retry: tuple[str, ...] = option(
        "--retry", default=(), metavar="KIND:CHANGE", read=read_retry,
        help="Submit a failed job again with more, as in oom:mem*2,timeout:time*2.",
    )  # fmt: skip
    retries: int = option(
        "--retries", default=1, shown_default="1", least=1, help="How often --retry may do so."
    )
    checkpoint: str | None = option(
        "--checkpoint", metavar="PATTERN",
        help="Restart only if this, or the run's checkpoints/, is newer than the attempt.",
    )  # fmt: skip
    executor: str = option(
        "--executor", default="auto", shown_default="auto",
        help="auto, slurm or local (this machine).",
    )  # fmt: skip
    sample_interval_s: float = option(
        "--sample-interval", default=10.0, metavar="S", shown_default="10", least=0,
        help="Seconds between GPU samples; 0 = off.",
    )  # fmt: skip
    no_code: bool = option(
        "--no-code", default=False, site=True,
        help="Keep no copy of the code: the job runs what the files hold when it starts.",
    )  # fmt: skip
    skip_checks: tuple[str, ...] = option(
        "--skip-check", default=(), metavar="CHECK", read=read_texts,
        help="Switch a check off: {checks}.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse values that no script can have."""
        if self.program is not None and self.module is not None:
            raise RequestError(
                f"Both a program, {self.program!r}, and -m {self.module} are given. Arguments go "
                "after `--`."
            )
        for name in TYPES:
            _refuse_nul(OPTIONS[name].flags[0] if name in OPTIONS else name, getattr(self, name))
        for name, row in OPTIONS.items():
            value, flag = getattr(self, name), row.flags[0]
            if row.is_word and value is not None:
                refuse_no_word(flag, value)
            if row.least is not None and value is not None and not row.least <= value < math.inf:
                raise RequestError(f"{flag} {value} must be at least {row.least}.")
        if self.gpu_type is not None and not re.fullmatch(_TYPE, self.gpu_type):
            raise RequestError(f"--gpus {self.gpu_type!r}: a GPU type is one word, as in A100:4.")
        if self.checkpoint is not None and not self.checkpoint.strip():
            raise RequestError(
                "--checkpoint is empty. Give a path or a pattern of the script's checkpoints."
            )
        if self.name is not None:
            refuse_unprintable("--name", self.name)
        for text in self.settings:
            split_setting(text, "--set")
        for text in self.array:
            split_array(text)
        for text in self.sbatch:
            read_sbatch(text)

    @property
    def of_workload(self) -> bool:
        """Whether `target` is a workload, not a strategy."""
        return self.program is None and self.module is None


def _refuse_nul(what: str, value: object) -> None:
    """Refuse the one sign that no command line, variable or path can contain."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and (at := text.find("\0")) >= 0:
            shown = text[max(at - _AROUND, 0) : at + _AROUND]
            raise RequestError(f"{what} {shown!r} contains a NUL byte: take it out.")


OPTIONS: Mapping[str, Option] = {
    row.name: row.metadata["option"] for row in fields(JobSpec) if "option" in row.metadata
}
"""The options by the names of their fields, in order."""
_BY_WORD = {
    flag.removeprefix("--").replace("-", "_"): name
    for name, row in OPTIONS.items()
    for flag in row.flags
    if flag.startswith("--")
} | {row.word: name for name, row in OPTIONS.items()}
TYPES: Mapping[str, Any] = get_type_hints(JobSpec, include_extras=True)
"""The fields' types, by their names."""


def option_values(words: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options as in Python, `{"time": "2h"}`, into values of fields; leave out those of None.

    Raises:
        RequestError: there is no such option, or a value does not fit.
    """
    values: dict[str, Any] = {}
    by_name: dict[str, str] = {}
    for word, given in words.items():
        name = field_of(word, instead=None if word in _BY_WORD else instead_of_word(word, given))
        if (other := by_name.setdefault(name, word)) != word:
            raise RequestError(f"{other} and {word} are the same option. Give one of them.")
        if given is not None:
            values |= _value(name, given)
    return values


def field_of(word: str, *, instead: str | None = None) -> str:
    """Return the field that an option sets, of its name in Python; `instead` ends the error.

    Raises:
        RequestError: there is no such option.
    """
    if word not in _BY_WORD:
        raise RequestError(f"There is no option {word!r}. {instead or nearest(word, _BY_WORD)}")
    return _BY_WORD[word]


def _value(name: str, given: Any) -> dict[str, Any]:  # noqa: ANN401
    row = OPTIONS[name]
    try:
        found = row.read(given) if row.read else given
    except ValueError as error:
        one = given[0] if isinstance(given, list | tuple) and len(given) == 1 else given
        raise RequestError(f"{row.flags[0]} {as_python(one)}: {error}.") from error
    # A reader may give several fields; what no reader has read is this one's value alone.
    values = found if row.read and isinstance(found, dict) else {name: found}
    for field_name, value in values.items():
        # By their types first: an array of numpy's compares each of its numbers.
        rows = value if isinstance(value, tuple) else (value,)
        if any(isinstance(row, str) and not row for row in rows):
            raise RequestError(
                f"{row.flags[0]} is empty, as of a variable that the shell has not set."
            )
        argument(TYPES[field_name], value, row.flags[0])
    return values
