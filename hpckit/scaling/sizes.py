"""The sizes of a study: how they are written, which runs they make, and what grows with them.

`--gpus 1,2,4,2x4`: one node with 1, 2 and 4 GPUs, then two nodes with 4 each. Repeats go round by
round, every other round backwards: what drifts on the cluster meanwhile meets all sizes alike.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hpckit.documents import Scalar
from hpckit.errors import RequestError
from hpckit.job_spec.recorded_spec import with_changes
from hpckit.job_spec.spec import JobSpec
from hpckit.workloads import Workload

MOST_RUNS = 1000
_ELEMENT = re.compile(r"(?:(\d{1,6})x)?(\d{1,6})", re.ASCII)
_OPTIONS = {"gpus": "--gpus", "nodes": "--nodes", "tasks_per_node": "--tasks-per-node"}
Lists = Mapping[str, Sequence[int | str] | int | str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """One size, as it is asked for; None leaves it to workload and site."""

    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    tasks_per_node: int | None = None

    def of(self, spec: JobSpec) -> JobSpec:
        """Return a request in this size."""
        return replace(
            spec,
            nodes=self.nodes,
            gpus=self.gpus,
            gpu_type=self.gpu_type,
            tasks_per_node=self.tasks_per_node,
        )


def read_sizes(lists: Lists) -> tuple[Size, ...]:
    """Read the values of --gpus, --nodes and --tasks-per-node, of which one may have several.

    Raises:
        RequestError: a value is no size, several have lists, or there is one size alone.
    """
    kind, words = _gpu_type(_words(lists.get("gpus")))
    rows = {
        "gpus": [_element("gpus", word) for word in words],
        "nodes": [_element("nodes", word) for word in _words(lists.get("nodes"))],
        "tasks_per_node": [
            _element("tasks_per_node", word) for word in _words(lists.get("tasks_per_node"))
        ],
    }
    several = [name for name, row in rows.items() if len(row) > 1]
    if len(several) != 1:
        raise RequestError(_which_list(several))
    axis = several[0]
    return tuple(_size(axis, at, rows, kind) for at in range(len(rows[axis])))


def _size(
    axis: str, at: int, rows: Mapping[str, Sequence[tuple[int | None, int]]], kind: str | None
) -> Size:
    found: dict[str, int] = {}
    for name, row in rows.items():
        if row:
            nodes, count = row[at if name == axis else 0]
            if nodes is not None and rows["nodes"]:
                raise RequestError(
                    f"{_OPTIONS[name]} {nodes}x{count} says how many nodes, and so does --nodes: "
                    "give one of them."
                )
            found[name] = count
            if nodes is not None:
                found["nodes"] = nodes
    return Size(gpu_type=kind, **found)


def _which_list(several: Sequence[str]) -> str:
    if several:
        names = " and ".join(_OPTIONS[name] for name in several)
        return (
            f"{names} have several values each: only one of them may. Sizes of several nodes are "
            "written as NODESxGPUS, as in --gpus 1,2,4,2x4."
        )
    return (
        "A study needs two sizes or more: give --gpus 1,2,4 (per node; 2x4 are two nodes of 4), "
        "--nodes 1,2 or --tasks-per-node 1,2."
    )


def _words(given: Sequence[int | str] | int | str | None) -> list[str]:
    if given is None:
        return []
    if isinstance(given, int | str):
        return str(given).split(",")
    return [str(word) for word in given]


def _gpu_type(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split the type off, as in `A100:1,2,4`.

    Raises:
        RequestError: there are two types.
    """
    parts = [word.strip().rpartition(":") for word in words]
    if empty := next((word for word in words if word.strip().startswith(":")), None):
        raise RequestError(f"--gpus {empty!r} names no type before the colon, as in A100:1,2,4.")
    kinds = list(dict.fromkeys(kind for kind, _, _ in parts if kind))
    if len(kinds) > 1:
        raise RequestError(
            f"--gpus {','.join(words)}: a study compares GPUs of one type, not {kinds[0]} and "
            f"{kinds[1]}."
        )
    return (kinds[0] if kinds else None), [count for _, _, count in parts]


def _element(name: str, word: str) -> tuple[int | None, int]:
    match = _ELEMENT.fullmatch(word.strip())
    if match is None or (match[1] and name == "nodes"):
        shape = "1,2,4" if name == "nodes" else "1,2,4 or 1,2,4,2x4"
        raise RequestError(f"{_OPTIONS[name]} {word!r} must be whole numbers with commas: {shape}.")
    nodes, count = (int(match[1]) if match[1] else None), int(match[2])
    if nodes == 0 or (count == 0 and name != "gpus"):
        raise RequestError(f"{_OPTIONS[name]} {word} must be at least 1.")
    return nodes, count


def order_of_runs(sizes: int, repeats: int) -> list[tuple[int, int]]:
    """Return which size runs in which round, both from 0: 1 2 4, 4 2 1, 1 2 4...

    Raises:
        RequestError: there are none, or more than anybody means.
    """
    if repeats < 1:
        raise RequestError(f"--repeat {repeats} must be at least 1.")
    if sizes * repeats > MOST_RUNS:
        raise RequestError(
            f"{sizes} sizes x {repeats} repeats are {sizes * repeats} jobs; a study may have "
            f"{MOST_RUNS}. Give fewer sizes, or a smaller --repeat."
        )
    there = list(range(sizes))
    return [
        (size, number)
        for number in range(repeats)
        for size in (reversed(there) if number % 2 else there)
    ]


def growing(names: Sequence[str], workload: Workload | None) -> tuple[str, ...]:
    """Return the names of the arguments that grow: as given, else as the workload says.

    Raises:
        RequestError: nobody says it.
    """
    if names:
        return tuple(name.lstrip("-") for name in names)
    if workload is None:
        raise RequestError(
            "--weak: hpckit does not know which argument of your program says how much work there "
            "is. Name it, as in --grow samples for `--samples 1000`; repeat --grow for several."
        )
    if not workload.weak_scaling:
        raise RequestError(
            f"--weak: workload {workload.name!r} does not say which of its parameters grow with "
            f"the ranks. Name one, as in --grow {next(iter(workload.parameters), 'NAME')}, or add "
            f"'weak_scaling: [NAME]' to its workload.yaml."
        )
    return workload.weak_scaling


def grown(
    spec: JobSpec, workload: Workload | None, names: Sequence[str], factor: Fraction
) -> JobSpec:
    """Return a request whose arguments `names` are so many times what was asked.

    Raises:
        RequestError: one is not given, is not a whole number, or does not stay one.
    """
    for name in names:
        spec = _one_grown(spec, workload, name, factor)
    return spec


def _one_grown(spec: JobSpec, workload: Workload | None, name: str, factor: Fraction) -> JobSpec:
    for at, word in enumerate(spec.args):
        key, equals, value = word.partition("=")
        if key.lstrip("-").replace("_", "-") != name.replace("_", "-") or key[:1] != "-":
            continue
        if not equals and at + 1 < len(spec.args):
            rest = (_times(name, spec.args[at + 1], factor), *spec.args[at + 2 :])
            return replace(spec, args=(*spec.args[: at + 1], *rest))
        changed = f"{key}={_times(name, value, factor)}"
        return replace(spec, args=(*spec.args[:at], changed, *spec.args[at + 1 :]))
    if workload is None:
        raise RequestError(
            f"--grow {name}: your program's arguments have no --{name}. Give it after `--`, as in "
            f"-- --{name} 1000: the value of the smallest size."
        )
    parameter = workload.parameter(name)
    values: Mapping[str, Scalar] = workload.parse_settings(spec.settings)
    asked = values.get(parameter.name, parameter.default)
    changed = f"{parameter.name}={_times(name, asked, factor)}"
    return with_changes(spec, {"settings": (changed,)})


def _times(name: str, value: Scalar, factor: Fraction) -> str:
    text = str(value)
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise RequestError(
            f"--grow {name}: its value is {text!r}, and only a whole number can grow. Give the "
            "value of the smallest size."
        )
    product = int(text) * factor
    if product.denominator != 1:
        raise RequestError(
            f"--grow {name}: {text} x {factor} is not a whole number. Choose a value that "
            f"{factor.denominator} divides, or sizes that are multiples of the smallest."
        )
    return str(product.numerator)
