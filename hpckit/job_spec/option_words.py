"""How options' values are written: texts of a shell, or values of Python that mean the same."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpckit.errors import RequestError
from hpckit.files import DamagedFileError, read_text
from hpckit.job_spec.arguments import is_several
from hpckit.paths import typed_path
from hpckit.text import as_python, plain

# Of a file with an array's values: 100,000 of them.
_VALUES_BYTES = 8 * 2**20
# What sbatch takes for --array: numbers and ranges with a step, and how many tasks at once.
_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9}(?::[0-9]{1,9})?)?"
NUMBERS = rf"({_RANGE}(?:,{_RANGE})*)(?:%([0-9]+))?"
_WRITTEN_OUT = 10
# What is no list of values, though it has some: of a mapping half is lost, of a set the order.
NO_LISTS = (str, bytes, Mapping, set, frozenset)


def read_gpus(given: str | int) -> dict[str, Any]:
    """Read `4` or `A100:4` as count and type.

    Raises:
        RequestError: it is neither.
    """
    kind, colon, count = str(given).rpartition(":")
    number = re.fullmatch(r"[0-9]{1,9}", count)
    if not number or isinstance(given, bool) or (colon and not kind):
        raise RequestError(f"--gpus {given!r} must be a number per node, or TYPE:N as in A100:4.")
    # Where only the number is changed, the type stays.
    return {"gpus": int(count), **({"gpu_type": kind} if kind else {})}


def read_retry(given: object) -> tuple[str, ...]:
    """Read the rules of `--retry`, as `oom:mem*2,timeout:time*2`.

    Raises:
        ValueError: one is no rule.
    """
    from hpckit.job_spec.retry_rules import read_rules  # noqa: PLC0415  # few requests have some

    return read_rules(read_texts(given))


def read_texts(given: object) -> tuple[str, ...]:
    """Read a list of texts, or one.

    Raises:
        ValueError: it is neither.
    """
    rows: tuple[Any, ...] = (given,)
    if isinstance(given, Iterable) and not isinstance(given, str | Mapping):
        rows = tuple(given)
    if not all(isinstance(row, str) for row in rows):
        raise ValueError("it must be a text, or a list of texts")
    return rows


def read_settings(given: object) -> tuple[str, ...]:
    """Read KEY=VALUE texts, or a mapping from Python.

    Raises:
        ValueError: it is neither, or a value cannot be typed in a shell.
    """
    if isinstance(given, Mapping):
        return tuple(f"{as_key(key)}={as_word(value)}" for key, value in given.items())
    return read_texts(given)


def read_array(given: object) -> tuple[str, ...]:
    """Read KEY=A,B,C and KEY=@FILE texts, or a mapping of sequences from Python.

    Raises:
        ValueError: it is neither, or a value cannot be typed in a shell.
    """
    if isinstance(given, Mapping):
        rows = ((as_key(key), _listed(key, row)) for key, row in given.items())
        return tuple(joined_values(key, map(as_word, row)) for key, row in rows)
    return tuple(map(_with_file, read_texts(given)))


def as_word(value: object) -> str:
    """Return a value of Python's as it is typed in a shell.

    Raises:
        ValueError: it cannot be. Python writes what has no text of its own as `<object at 0x7f>`.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else plain(value)
    own = isinstance(value, str) or not re.fullmatch(r"(?s)<.*>", text)
    if not own or value is None or isinstance(value, bytes) or "\0" in text:
        raise ValueError(f"{value!r} cannot be a word of a command line. Write it as text")
    return text


def as_key(key: object) -> str:
    """Return the key of a mapping from Python, which is to be a text.

    Raises:
        ValueError: it is not, or its end would count as a part of the value.
    """
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} must be a text")
    if "=" in key:
        raise ValueError(f"the key {key!r} must not contain '='")
    return key


def _listed(key: str, values: Any) -> Sequence[object]:  # noqa: ANN401  # users' own
    rows: tuple[object, ...] = ()
    if not isinstance(values, NO_LISTS) and is_several(values):
        rows = tuple(values)
    if not rows:
        raise RequestError(
            f"array={{{key!r}: {as_python(values)}}} must be a list of values, at least one."
        )
    return rows


def _with_file(text: str) -> str:
    """Put the lines of a file in the place of `@FILE`: what was asked does not change with it.

    A value is a line without its end (LF or CR LF), blanks and all. Empty lines do not count.
    """
    key, equals, values = text.partition("=")
    if not equals or not values.startswith("@"):
        return text
    path = typed_path(values[1:])
    try:
        lines = read_text(path, most=_VALUES_BYTES).removeprefix("\ufeff").split("\n")
    except (OSError, DamagedFileError) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"--array {text!r}: {str(path)!r} cannot be read: {why}.") from error
    found = [line.removesuffix("\r") for line in lines]
    for at, line in enumerate(found, 1):
        where = f"--array {text!r}: line {at} of {str(path)!r}"
        if "\0" in line:
            raise RequestError(f"{where} has a NUL byte: take it out.")
        if line and not line.strip():
            raise RequestError(
                f"{where} has nothing but blanks. Write a value, or leave the line empty: empty "
                "lines do not count."
            )
    found = [line for line in found if line]
    if not found:
        raise RequestError(f"--array {text!r}: {str(path)!r} has no line with a value.")
    return joined_values(key, found)


def joined_values(key: str, values: Iterable[str]) -> str:
    r"""Return `KEY=A,B,C`, as `array_values` reads it; a comma within a value is written `\,`.

    Raises:
        RequestError: a value cannot be written so.
    """
    words = list(values)
    if wrong := next((word for word in words if word.endswith("\\")), None):
        raise RequestError(f"--array {key}: value {wrong!r} ends with a backslash.")
    return f"{key}=" + ",".join(word.replace(",", "\\,") for word in words)


def array_values(text: str) -> tuple[str, list[str]]:
    r"""Return key and values of `KEY=A,B,C`; a comma within a value is written `\,`.

    Raises:
        RequestError: there is no key, or a value is empty.
    """
    key, values = split_array(text)
    words = [word.replace("\\,", ",") for word in re.split(r"(?<!\\),", values)]
    if "" in words:
        raise RequestError(f"--array {text!r} has an empty value.")
    return key, words


def split_array(text: str) -> tuple[str, str]:
    """Split `KEY=A,B,C` into key and values.

    Raises:
        RequestError: there is no key, as where it is written as sbatch takes it.
    """
    if found := re.fullmatch(NUMBERS, text):
        raise RequestError(f"--array {text!r} gives its values no name. {named_values(found)}")
    return split_setting(text, "--array", "key=a,b,c")


def named_values(found: re.Match[str]) -> str:
    """Say how to write here what sbatch takes as `--array=NUMBERS%PARALLEL`."""
    return (
        f"For tasks with these numbers: --array task={written_out(found)}. Each gets its "
        "own as --task N after its arguments, or in the place of {task} in them; "
        "SLURM_ARRAY_TASK_ID counts from 0."
    )


def written_out(found: re.Match[str]) -> str:
    """Return the values that sbatch makes of `NUMBERS%PARALLEL`, as they are written here."""
    words = []
    for part in found[1].split(","):
        first, last, step = ([int(word) for word in re.split("[-:]", part)] + [0, 0])[:3]
        values = range(first, max(first, last) + 1, step or 1)
        short = len(values) <= _WRITTEN_OUT
        words.append(
            ",".join(map(str, values)) if short else f"$(seq -s, {first} {step or 1} {last})"
        )
    return ",".join(words) + (f" --parallel {found[2]}" if found[2] else "")


def split_setting(setting: str, option: str, form: str = "key=value") -> tuple[str, str]:
    """Split `key=value`.

    Raises:
        RequestError: there is no `=` or no key.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise RequestError(f"{option} {setting!r} must be written {form}.")
    return key, text
