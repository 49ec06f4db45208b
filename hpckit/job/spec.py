"""The request: what a user asked for, as it was asked. `make.py` turns it into numbers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpckit.errors import RequestError
from hpckit.files import DamagedFileError
from hpckit.values import rebuild
from hpckit.workloads import split_setting

# Words that land in Slurm options. Lists, feature expressions and node ranges are all in here;
# white space, quotes, `$` and control characters are not, whatever quoting would do with them.
_WORD = re.compile(r"[A-Za-z0-9_.,:@%+=*&|()\[\]/-]+")
_WORDS = ("partition", "account", "qos", "constraint", "reservation", "exclude")
# A comma would end the option's value: `--gpus a100:1,shard:8:1` asks for two things.
_TYPE = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """One `hpckit submit`, before any arithmetic. None means: not asked, let site and workload say.

    Attributes:
        target: a workload's name, or a strategy when `program` or `module` is given.
        program: a path, or a bare word that is looked up on the node. module: as of `python -m`.
        settings: `--set` texts; array: `--array` texts, in order.
        gpus: GPUs per node. time_min: minutes. mem_gb: GB per node. sample_interval_s: 0 is off.
    """

    target: str
    program: str | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    array: tuple[str, ...] = ()
    parallel: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    time_min: int | None = None
    site: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclude: str | None = None
    template: str = "base"
    env: str | None = None
    launcher: str | None = None
    executor: str = "auto"
    name: str | None = None
    after: tuple[str, ...] = ()
    max_requeues: int = 0
    sample_interval_s: float = 10.0
    skip_checks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that cannot stand in a script, once, at the door."""
        if self.program is not None and self.module is not None:
            raise RequestError(
                f"Both a program, {self.program!r}, and -m {self.module} are given. Arguments go "
                "after `--`."
            )
        for field in _WORDS:
            value = getattr(self, field)
            if value is not None and not _WORD.fullmatch(value):
                raise RequestError(
                    f"--{field.replace('_', '-')} {value!r} holds a character Slurm does not take."
                )
        if self.gpu_type is not None and not _TYPE.fullmatch(self.gpu_type):
            raise RequestError(f"--gpus {self.gpu_type!r}: a GPU type is one word, as in A100:4.")
        if self.name is not None and (not self.name.strip() or not self.name.isprintable()):
            raise RequestError(f"--name {self.name!r} must be printable text on one line.")
        for option, texts in (("--set", self.settings), ("--array", self.array)):
            for text in texts:
                split_setting(text, option)
        for field, least in _LEAST.items():
            value = getattr(self, field)
            if value is not None and not least <= value < math.inf:
                option = field.removesuffix("_min").removesuffix("_s").replace("_", "-")
                raise RequestError(f"--{option} {value} must be at least {least}.")

    @property
    def of_workload(self) -> bool:
        """Whether `target` is a workload, not a strategy."""
        return self.program is None and self.module is None


_LEAST = {
    "nodes": 1,
    "gpus": 0,
    "tasks_per_node": 1,
    "cpus_per_task": 1,
    "mem_gb": 1,
    "time_min": 1,
    "parallel": 1,
    "max_requeues": 0,
    "sample_interval_s": 0,
}


def spec_from_record(record: object) -> JobSpec:
    """Rebuild a request from `run.json`, which may be another user's.

    Raises:
        RequestError: the record has keys this version does not know, or values of other types.
    """
    if isinstance(record, Mapping) and "script" in record:  # as it was called in 0.1
        record = {"program": record["script"], **record}
        del record["script"]
    try:
        return rebuild(JobSpec, record)
    except DamagedFileError as error:
        raise RequestError(
            f"The recorded request was written by another version of hpckit: {error}."
        ) from error
