"""YAML documents read strictly: unknown keys, wrong types and doubled keys are errors with a line.

The only module that reads YAML. Values are built from the node tree of the safe loader, so that an
error can name the file and the line, and no tag can build an object.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import Any

from hpckit.errors import ConfigError, Location, MissingKeyError
from hpckit.files import DamagedFileError, read_text
from hpckit.frozen import changeable
from hpckit.kept import kept, makers
from hpckit.owners import way_in

Scalar = str | int | float | bool | None
_SMALL = 10_000
# Tenfold the largest site file; Python's own parser takes seconds for so many.
_MOST_BYTES = 256 * 1024
_LARGEST = 2**64
# Lines whose keys are not read, for `every_problem`.
_LEFT_OUT: ContextVar[frozenset[int]] = ContextVar("left_out", default=frozenset())


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `Did you mean 'x'?` or the list of what is known, as the end of an error message."""
    names = sorted(known)
    import difflib  # noqa: PLC0415  # only errors need it

    folded = {name.casefold(): name for name in names}  # A100 is a100 before it is h100
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {folded[close[0]]!r}?"
    return f"Known: {', '.join(names)}." if names else "No names are known."


@changeable()
class Fields:
    """One mapping of a document: take each known key once, then `refuse_unknown()`."""

    mark: Location
    values: Mapping[str, tuple[Any, Location]]
    what: str
    asked: set[str] = field(default_factory=set)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Take a string; numbers are accepted as written (`python: 3.11` is a name, not 3.11)."""
        value = self._take(key, (str, int, float), "a text")
        return default if value is None else _text(value, self.at(key))

    def required_text(self, key: str) -> str:
        """Take a string that must be there and not empty."""
        value = self.text(key)
        if not value:
            raise MissingKeyError(f"{self.what} needs '{key}:'.{self._meant(key)}", at=self.mark)
        return value

    def integer(self, key: str, *, minimum: int = 0) -> int | None:
        """Take a whole number not below `minimum`."""
        value = self._take(key, (int,), "a whole number")
        if value is not None and value < minimum:
            raise ConfigError(f"'{key}' is {value}, must be at least {minimum}.", at=self.at(key))
        return None if value is None else int(value)

    def number(self, key: str, *, minimum: float = 0.0) -> float | None:
        """Take a number not below `minimum`."""
        value = self._take(key, (int, float), "a number")
        if value is not None and not minimum <= value < math.inf:
            raise ConfigError(f"'{key}' is {value}, must be at least {minimum:g}.", at=self.at(key))
        return None if value is None else float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """Take true or false."""
        value = self._take(key, (bool,), "true or false")
        return default if value is None else bool(value)

    def scalar(self, key: str) -> Scalar:
        """Take a text, number, truth value or null, as YAML reads it."""
        value: Scalar = self._take(key, (str, int, float, bool), "a single value")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of texts; a single text stands for a list of one."""
        value = self._take(key, (list, str, int, float), "a list")
        items = value if isinstance(value, list) else []
        if value is not None and not isinstance(value, list):
            items = [(value, self.at(key))]
        for item, mark in items:
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                raise ConfigError(
                    f"'{key}' holds {_shown(item)}, must be a list of texts.", at=mark
                )
        return tuple(_text(item, mark) for item, mark in items)

    def scalars(self, key: str) -> tuple[Scalar, ...]:
        """Take a list of single values."""
        items = self._take(key, (list,), "a list") or []
        for item, mark in items:
            if isinstance(item, list | dict):
                raise ConfigError(f"'{key}' must be a list of single values.", at=mark)
        return tuple(item for item, _ in items)

    def mapping(self, key: str, what: str) -> "Fields":
        """Take a nested mapping; absent reads as empty."""
        value = self._take(key, (dict,), "a mapping (key: value)")
        return Fields(mark=self.at(key), values=value or {}, what=what)

    def mappings(self, key: str, what: str) -> dict[str, "Fields"]:
        """Take a mapping of names to mappings: partitions, parameters, environments."""
        outer = self.mapping(key, what)
        return {name: outer.mapping(name, f"{what} {name!r}") for name in outer.values}

    def text_mapping(self, key: str) -> dict[str, str]:
        """Take a mapping of names to texts."""
        inner = self.mapping(key, key)
        return {name: inner.text(name) or "" for name in inner.values}

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Take one of a few words."""
        value = self.text(key)
        if value is None:
            return default
        if value not in choices:
            raise ConfigError(
                f"'{key}' is {value!r}, must be one of {', '.join(choices)}.", at=self.at(key)
            )
        return value

    def has(self, key: str) -> bool:
        """Say whether a key is there, for another reader to take; it is a known one."""
        self.asked.add(key)
        return key in self.values

    def at(self, key: str) -> Location:
        """Return where `key` stands, or the mapping itself when it is absent."""
        return self.values[key][1] if key in self.values else self.mark

    def refuse_unknown(self) -> None:
        """Refuse every key nobody asked for, with the nearest known one."""
        for key, (_, mark) in self.values.items():
            if key not in self.asked:
                raise ConfigError(
                    f"unknown key {key!r} in {self.what}. {nearest(key, self.asked)}", at=mark
                )

    def _meant(self, key: str) -> str:
        """Name the key that may be a misspelling of one that is missing."""
        import difflib  # noqa: PLC0415  # only errors need it

        others = {name.casefold(): name for name in self.values if name not in self.asked}
        near = difflib.get_close_matches(key, others, n=1, cutoff=0.75)
        return f" It has {others[near[0]]!r}: is that meant?" if near else ""

    def _take(self, key: str, types: tuple[type, ...], wanted: str) -> Any:  # noqa: ANN401
        self.asked.add(key)
        value, mark = self.values.get(key, (None, self.mark))
        if value is None:
            return None
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            is_word = isinstance(value, bool) and wanted == "a text"  # yes, no, on, off
            quotes = f' Put it in quotes: "{mark.written}".' if is_word else ""
            raise ConfigError(f"'{key}' is {_shown(value)}, must be {wanted}.{quotes}", at=mark)
        return value


def read_document(path: Path, what: str, *, secret: bool = False) -> Fields:
    """Read one YAML file whose top is a mapping; nothing is kept of a `secret` one.

    Raises:
        ConfigError: unreadable, not YAML, not a mapping, a key twice; with file and line.
    """
    return parse_document(text_of(path), path, what, secret=secret)


def text_of(path: Path) -> str:
    """Read the text of a YAML file.

    Raises:
        ConfigError: unreadable, or no text.
    """
    try:
        return read_text(path, most=_MOST_BYTES)
    except OSError as error:
        let = way_in(path, error)
        raise ConfigError(f"cannot be read: {error.strerror}.{let}", at=path) from error
    except DamagedFileError as error:
        utf = isinstance(error.__cause__, UnicodeDecodeError)
        raise ConfigError(f"{'is not UTF-8 text' if utf else error}.", at=path) from error


def parse_document(text: str, path: Path, what: str, *, secret: bool = False) -> Fields:
    """Parse the text of a YAML file; see `read_document`.

    Raises:
        ConfigError: not YAML, not a mapping, a key twice; with file and line.
    """
    if secret or _LEFT_OUT.get():
        values = _parsed(text, path)
    else:
        plain = kept(lambda: _plain(_parsed(text, path)), text, *makers(__name__, "yaml"))
        values = _placed(plain, path)
    if not isinstance(values[0], dict):
        raise ConfigError(
            f"must be a mapping (key: value) that describes {what}.", at=Location(path, 1)
        )
    return Fields(mark=values[1], values=values[0], what=what)


def _parsed(text: str, path: Path) -> tuple[Any, Location]:
    """Return a document's values, each with where it stands."""
    import yaml

    try:
        node = _compose(text)
        return _build(node, path, set()) if node else ({}, Location(path, 1))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(
            f"is not valid YAML: {error.problem}.", at=Location(path, line)
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not valid YAML: {str(error).splitlines()[0]}.", at=path) from error
    except RecursionError as error:
        raise ConfigError("is nested too deeply.", at=path) from error


def _plain(built: tuple[Any, Location]) -> tuple[Any, int, str]:
    """Return values and their places without the file's name, to be kept."""
    value, at = built
    if isinstance(value, dict):
        value = {key: _plain(inner) for key, inner in value.items()}
    elif isinstance(value, list):
        value = [_plain(inner) for inner in value]
    return value, at.line, at.written


def _placed(plain: tuple[Any, int, str], path: Path) -> tuple[Any, Location]:
    """Return the same with the file's name."""
    value, line, written = plain
    if isinstance(value, dict):
        value = {key: _placed(inner, path) for key, inner in value.items()}
    elif isinstance(value, list):
        value = [_placed(inner, path) for inner in value]
    return value, Location(path, line, written)


def every_problem(read: Callable[[], object]) -> Iterator[ConfigError]:
    """Yield each problem of one document: a key at fault is left out, and the rest read again.

    It ends at one that has no line of its own: a document that is no YAML, a key that is missing.
    """
    lines: set[int] = set()
    while True:
        before = _LEFT_OUT.set(frozenset(lines))
        try:
            read()
            return
        except ConfigError as error:
            problem = error
        finally:
            _LEFT_OUT.reset(before)
        line = problem.at.line if problem.at and not isinstance(problem, MissingKeyError) else 0
        if lines and not line:  # it may be missing because it was left out
            return
        yield problem
        if not line or line in lines:
            return
        lines.add(line)


def _compose(text: str) -> Any:  # noqa: ANN401
    """Parse with libyaml, ten times as fast; with Python's own where that fails or could crash.

    Python's says better what is wrong. libyaml's nests on the C stack: a long file of nothing but
    brackets would end the process.
    """
    import yaml

    if len(text) <= _SMALL and hasattr(yaml, "CSafeLoader"):
        with contextlib.suppress(yaml.YAMLError):
            return yaml.compose(text, Loader=yaml.CSafeLoader)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _build(node: Any, path: Path, seen: set[int]) -> tuple[Any, Location]:  # noqa: ANN401
    import yaml

    mark = Location(path, node.start_mark.line + 1)
    if id(node) in seen:  # an alias: a few lines of them can stand for gigabytes, or for a loop
        raise ConfigError("YAML aliases (&name, *name) are not supported; write it out.", at=mark)
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, seen), mark
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, path, seen) for item in node.value], mark
    return _scalar(node, mark), Location(path, mark.line, node.value)


def _scalar(node: Any, mark: Location) -> Scalar:  # noqa: ANN401
    import yaml

    if node.tag.endswith(":timestamp"):  # a date is a text here
        return str(node.value)
    try:
        value: Scalar = yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, LookupError, AttributeError) as error:  # `0x_`, `!!bool maybe`
        kind = node.tag.rpartition(":")[2]
        raise ConfigError(f"{node.value[:80]!r} cannot be read as {kind}.", at=mark) from error
    _refuse_nul(value, mark)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ConfigError("a number is too large.", at=mark)
    return value


def _refuse_nul(value: object, mark: Location) -> None:
    """Refuse the one sign that no command line, variable or path can contain."""
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{value[:80]!r} contains a NUL character: take it out.", at=mark)


def _build_mapping(node: Any, path: Path, seen: set[int]) -> dict[str, tuple[Any, Location]]:  # noqa: ANN401
    built: dict[str, tuple[Any, Location]] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = str(key_node.value)
        if line in _LEFT_OUT.get():
            continue
        _refuse_nul(key, Location(path, line))
        if key in built:
            raise ConfigError(f"key {key!r} is given twice.", at=Location(path, line))
        value, mark = _build(value_node, path, seen)
        built[key] = (value, Location(path, line, mark.written))
    return built


def _text(value: str | int | float, mark: Location) -> str:
    return value if isinstance(value, str) else mark.written


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)
