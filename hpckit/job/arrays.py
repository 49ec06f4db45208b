"""What the tasks of an array are given: the lists of `--array`."""

import itertools
import re

from hpckit.documents import Scalar
from hpckit.errors import RequestError
from hpckit.job_spec.option_words import NUMBERS, array_values, written_out
from hpckit.job_spec.spec import JobSpec
from hpckit.workloads import Workload


def array_settings(spec: JobSpec, workload: Workload | None) -> tuple[dict[str, Scalar], ...]:
    """Return one mapping per array task: the product of the `--array` lists, last one fastest.

    With `--zip`, task N has item N of each list.

    Raises:
        RequestError: a name or value is wrong, or the lists do not fit together.
    """
    axes: list[list[tuple[str, Scalar]]] = []
    for text in spec.array:
        key, words = array_values(text)
        name = workload.parameter(key).name if workload else _option_name(key)
        if any(name == axis[0][0] for axis in axes):
            raise RequestError(f"--array {name!r} is given twice; write its values in one list.")
        parse = workload.parameter(key).parse if workload else str
        axes.append([(name, parse(word)) for word in words])
    if spec.parallel and not axes:
        raise RequestError("--parallel limits an array; give --array key=a,b,c too.")
    if not spec.zip:
        return tuple(dict(point) for point in itertools.product(*axes))
    if len({len(axis) for axis in axes}) != 1:
        counts = ", ".join(f"{axis[0][0]} has {len(axis)}" for axis in axes) or "there is none"
        raise RequestError(f"--zip pairs --array lists of equal length: {counts}.")
    return tuple(map(dict, zip(*axes, strict=True)))


def headers(task_settings: tuple[dict[str, Scalar], ...]) -> tuple[str, ...]:
    """Say that a list may begin with the head of a table's column, which a script gets as well."""
    first = task_settings[0] if len(task_settings) > 1 else {}
    return tuple(
        f"the first value of --array {name} is {str(value)!r}: if that is a table's header, "
        "take it out, because it is a task like the others."
        for name, value in first.items()
        if name in re.split(r"[,;\t]", str(value))
    )


def ranges(task_settings: tuple[dict[str, Scalar], ...]) -> tuple[str, ...]:
    """Say that a value such as 1-10, of which sbatch makes ten tasks, is one value here."""
    said = {}
    for name, value in (pair for task in task_settings for pair in task.items()):
        found = re.fullmatch(NUMBERS, str(value)) if "-" in str(value) else None
        if found and name not in said:
            wanted = f"--array {name}={written_out(found)}"
            said[name] = f"{str(value)!r} is one value of --array {name}. For its numbers: {wanted}"
    return tuple(said.values())


def _option_name(key: str) -> str:
    """Check that a key can be passed to a user's own script as `--key`, and return it."""
    if "," in key:
        raise RequestError(
            f"--array {key!r} names several options at once. Give each its own list, and --zip to "
            "pair their items: --array lr=0.1,0.2 --array seed=1,2 --zip."
        )
    if key.startswith("-") or not key.isprintable() or " " in key:
        raise RequestError(
            f"--array {key!r} is not the name of an option: your script gets it as --NAME VALUE."
        )
    return key
