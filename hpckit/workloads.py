"""Workloads: folders `workloads/NAME/` with a `workload.yaml` and a program; their parameters."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path

from hpckit.collections import Collection, Found, find_all
from hpckit.documents import Fields, Scalar, nearest, read_document
from hpckit.errors import ConfigError, RequestError
from hpckit.frozen import frozen
from hpckit.job_spec.option_words import split_setting
from hpckit.job_spec.sbatch_words import merge_sbatch
from hpckit.paths import is_file, typed_path
from hpckit.strategies import STRATEGIES
from hpckit.units import is_ascii_number

_NAME = r"[A-Za-z0-9][A-Za-z0-9-]*"
TYPES = ("int", "float", "str", "bool", "path")
_INFINITE = (float("inf"), float("-inf"))
_TRUE = {"true": True, "yes": True, "on": True, "1": True}
_FALSE = {"false": False, "no": False, "off": False, "0": False}


@frozen(kw_only=True)
class Parameter:
    """One parameter of a workload, as `--set name=value` and the script's `--name value`.

    `written` is the name as the workload's file has it, where that is with `_`: so is the script's
    option.
    """

    name: str
    type: str
    default: Scalar
    help: str
    choices: tuple[Scalar, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    written: str | None = None

    def parse(self, text: str) -> Scalar:
        """Turn command-line text into a value of the parameter's type.

        Raises:
            RequestError: not of the type, not among the choices, or out of range.
        """
        try:
            if self.type in ("int", "float") and not is_ascii_number(text):
                raise ValueError(text)
            value = _CONVERT[self.type](text)
        except (ValueError, KeyError) as error:
            raise RequestError(
                f"Parameter {self.name}={text!r} is not of type {self.type}. ({self.help})"
            ) from error
        if value in _INFINITE and "inf" not in text.lower():
            raise RequestError(
                f"Parameter {self.name}={text!r} is too large for a number of type float, which "
                f"ends at 1.8e308. ({self.help})"
            )
        self._check(value)
        return value

    def _check(self, value: Scalar) -> None:
        if self.choices and value not in self.choices:
            raise RequestError(
                f"Parameter {self.name}={value!r} is not one of "
                f"{', '.join(str(choice) for choice in self.choices)}."
            )
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.minimum, self.maximum
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                raise RequestError(f"Parameter {self.name}={value} {self._range()}.")

    def _range(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f"must be between {self.minimum:g} and {self.maximum:g}"
        if self.minimum is not None:
            return f"must be at least {self.minimum:g}"
        return f"must be at most {self.maximum:g}"

    def as_arguments(self, value: Scalar) -> tuple[str, ...]:
        """Return the script's arguments for a value: a flag for true, nothing for false or null."""
        if value is None or value is False:
            return ()
        option = f"--{self.written or self.name}"
        return (option,) if value is True else (option, str(value))


_CONVERT: Mapping[str, Callable[[str], Scalar]] = {
    "int": int,
    "float": float,
    "str": str,
    "path": lambda text: str(typed_path(text)),
    "bool": lambda text: (_TRUE | _FALSE)[text.lower()],
}


@frozen(kw_only=True)
class Workload:
    """A program that hpckit can submit: what it is, how its ranks share the work, its parameters.

    Either `script` is given, a file, or `program`, which is the path of a file or a bare word.
    `weak_scaling` names the parameters that set the amount of work of all ranks together.
    """

    name: str
    description: str
    strategy: str
    script: Path | None = None
    program: str | None = None
    environment: str | None = None
    launcher: str | None = None
    handles_stop_signal: bool = False
    gpus: int = 1
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    time_min: int | None = None
    sbatch: tuple[str, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    weak_scaling: tuple[str, ...] = ()
    found: Found | None = None

    @property
    def started(self) -> str:
        """What its job runs: the path of a file, or the name of a program."""
        return str(self.script) if self.script else self.program or ""

    @property
    def multi_node(self) -> bool:
        """Whether its ranks may be on several nodes."""
        return STRATEGIES[self.strategy].multi_node

    def parse_settings(self, settings: Iterable[str]) -> dict[str, Scalar]:
        """Turn `key=value` texts into typed values; `-` and `_` are the same in keys.

        Raises:
            RequestError: no `=`, unknown key, a key twice, or a value that does not fit.
        """
        values: dict[str, Scalar] = {}
        for setting in settings:
            key, text = split_setting(setting, "--set")
            parameter = self.parameter(key)
            if parameter.name in values:
                raise RequestError(f"Parameter {parameter.name!r} is set twice.")
            values[parameter.name] = parameter.parse(text)
        return values

    def parameter(self, key: str) -> Parameter:
        """Return the parameter called `key`.

        Raises:
            RequestError: the workload has none of that name.
        """
        name = key.replace("_", "-")
        if name not in self.parameters:
            raise RequestError(
                f"Workload {self.name!r} has no parameter {key!r}. "
                f"{nearest(name, self.parameters)} See `hpckit workloads show {self.name}`."
            )
        return self.parameters[name]

    def arguments(self, values: Mapping[str, Scalar]) -> tuple[str, ...]:
        """Return the script's arguments for the given values, in the file's order."""
        given = (self.parameters[name] for name in self.parameters if name in values)
        return tuple(part for row in given for part in row.as_arguments(values[row.name]))


def list_workloads(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return the workload files on the search path by workload name."""
    found = find_all("*/workload.yaml", "workloads", collections)
    return {Path(name).parent.name: place for name, place in found.items()}


def load_workload(name: str, collections: tuple[Collection, ...]) -> Workload:
    """Read the workload `name`, the first on the search path; `-` and `_` are the same.

    Raises:
        RequestError: no such workload. ConfigError: its file is wrong.
    """
    return known_workload(name, list_workloads(collections))


def known_workload(name: str, known: Mapping[str, Found]) -> Workload:
    """Read one of the workloads that `list_workloads` found; see `load_workload`."""
    found = find_workload(name, known)
    if found is None:
        raise RequestError(_unknown(name, known))
    return read_workload(found)


def find_workload(name: str, known: Mapping[str, Found]) -> Found | None:
    """Return the workload that is meant, or None if there is none of that name."""
    by_key = {folder.replace("-", "_"): found for folder, found in known.items()}
    return by_key.get(name.replace("-", "_"))


def _unknown(name: str, known: Iterable[str]) -> str:
    strategies = ", ".join(STRATEGIES)
    words = name.split()
    if len(words) > 1 and not is_file(typed_path(name)):
        line = f"serial {shlex.quote(words[0])} -- {shlex.join(words[1:])}"
        return (
            f"{name!r} is not a workload. A program needs a strategy before it, one of "
            f"{strategies}, and its arguments go after `--`: hpckit submit {line}"
        )
    if "." in name or "/" in name:
        first = "ddp" if name.endswith(".py") else "serial"
        return (
            f"{name!r} is not a workload. A script of your own needs a strategy before it, one of "
            f"{strategies}: hpckit submit {first} {shlex.quote(name)}"
        )
    return (
        f"Unknown workload {name!r}. {nearest(name, known)} See `hpckit workloads list`; "
        f"your own script needs a strategy: hpckit submit ddp train.py"
    )


def read_workload(found: Found) -> Workload:
    """Read one workload file.

    Raises:
        ConfigError: unknown key, wrong type, unknown strategy, missing script; with file and line.
    """
    path = found.path
    fields = read_document(path, "a workload")
    resources = fields.mapping("resources", "resources")
    strategy = fields.required_text("strategy")
    if strategy not in STRATEGIES:
        raise ConfigError(
            f"unknown strategy {strategy!r}. {nearest(strategy, STRATEGIES)}",
            at=fields.at("strategy"),
        )
    gpus = resources.integer("gpus")
    parameters = _parameters(fields)
    workload = Workload(
        name=path.parent.name,
        description=fields.required_text("description"),
        strategy=strategy,
        script=_script(fields, path.parent),
        program=_program(fields, path.parent),
        environment=fields.text("environment"),
        launcher=fields.text("launcher"),
        handles_stop_signal=fields.flag("handles_stop_signal"),
        gpus=1 if gpus is None else gpus,
        cpus_per_task=resources.integer("cpus_per_task", minimum=1),
        mem_gb=resources.integer("mem_gb", minimum=1),
        time_min=resources.integer("time_min", minimum=1),
        sbatch=_sbatch(fields),
        parameters=parameters,
        weak_scaling=_weak_scaling(fields, parameters),
        found=found,
    )
    resources.refuse_unknown()
    fields.refuse_unknown()
    return workload


def _script(fields: Fields, folder: Path) -> Path | None:
    """Return the file that `script:` names; None if there is `program:` in its place."""
    if fields.text("program") is not None and fields.text("script") is None:
        return None
    script = folder / fields.required_text("script")
    if not script.is_file():
        raise ConfigError(f"script {script} does not exist.", at=fields.at("script"))
    return script


def _program(fields: Fields, folder: Path) -> str | None:
    """Return what `program:` names: a file of the workload's folder, or a bare word."""
    word = fields.text("program")
    if word is None:
        return None
    if fields.text("script") is not None:
        raise ConfigError("give 'script:' or 'program:', not both.", at=fields.at("program"))
    file = folder / word
    if file.is_file():
        return str(file)
    if "/" in word or file.suffix or word.startswith("~"):
        raise ConfigError(f"program {file} does not exist.", at=fields.at("program"))
    return word


def _sbatch(fields: Fields) -> tuple[str, ...]:
    texts = fields.texts("sbatch")
    try:
        return merge_sbatch(texts)
    except RequestError as error:
        raise ConfigError(str(error), at=fields.at("sbatch")) from error


def _weak_scaling(fields: Fields, parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    """Return which parameters grow with the ranks; whole numbers alone can."""
    names = tuple(name.replace("_", "-") for name in fields.texts("weak_scaling"))
    for name in names:
        if name not in parameters or parameters[name].type != "int":
            raise ConfigError(
                f"weak_scaling: {name!r} is not a parameter of type int.",
                at=fields.at("weak_scaling"),
            )
    return names


def _parameters(fields: Fields) -> dict[str, Parameter]:
    parameters = {}
    for key, entry in fields.mappings("parameters", "parameter").items():
        name = key.replace("_", "-")
        if name in parameters:
            raise ConfigError(
                f"parameter {name!r} is given twice (- and _ are the same).", at=entry.mark
            )
        if not re.fullmatch(_NAME, name):
            raise ConfigError(
                f"parameter {key!r} cannot be an option: use letters, digits, - and _.",
                at=entry.mark,
            )
        made = _parameter(name, entry)
        parameters[name] = replace(made, written=key) if key != name else made
        entry.refuse_unknown()
    return parameters


def _limit(entry: Fields, key: str) -> float | None:
    value = entry.scalar(key)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ConfigError(f"'{key}' is {value!r}, must be a number.", at=entry.at(key))


def _parameter(name: str, entry: Fields) -> Parameter:
    default = entry.scalar("default")
    parameter = Parameter(
        name=name,
        type=entry.choice("type", TYPES, "str"),
        default=default,
        help=entry.required_text("help"),
        choices=entry.scalars("choices"),
        minimum=_limit(entry, "minimum"),
        maximum=_limit(entry, "maximum"),
    )
    if default is not None and parameter.type != "path":
        try:
            parameter.parse(str(default))
        except RequestError as error:
            raise ConfigError(f"default of {name!r}: {error}", at=entry.at("default")) from error
    return parameter
