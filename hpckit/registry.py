"""Tables of what has a name: a line each, `register()`, or an installed package.

A package brings one by an entry point (importlib.metadata), which is looked for only when a name
is asked for that no line has: reading the metadata of all packages takes time.
"""

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Generic, TypeVar

from hpckit.errors import RequestError

Row = TypeVar("Row")


class Registry(Generic[Row]):
    """Objects by name; those of `lines` (name: "module:attribute") are imported when asked for.

    `what` is the word for one of them, `group` that of the entry points.
    """

    def __init__(self, what: str, group: str, lines: Mapping[str, str]) -> None:
        self.what, self.group = what, group
        self._lines = dict(lines)
        self._rows: dict[str, Row] = {}

    def known(self) -> tuple[str, ...]:
        """Return all names, those that installed packages bring too."""
        return tuple(dict.fromkeys([*self, *installed(self.group)]))

    def __iter__(self) -> Iterator[str]:
        """Yield the known names; a package's once it has been asked for."""
        return iter(dict.fromkeys([*self._lines, *self._rows]))

    def register(self, name: str, row: Row) -> None:
        """Add an object, or put it in another's place."""
        self._rows[name] = row

    def forget(self, name: str) -> None:
        """Take out what was registered."""
        self._rows.pop(name, None)

    def find(self, name: str) -> Row:
        """Return what is called `name`.

        Raises:
            RequestError: there is none.
        """
        if name not in self._rows:
            self._rows[name] = self._load(name)
        return self._rows[name]

    def knows(self, name: str) -> bool:
        """Say whether there is one of this name."""
        return name in self._rows or name in self._lines or name in installed(self.group)

    def _load(self, name: str) -> Row:
        target = self._lines.get(name) or installed(self.group).get(name)
        if target is None:
            from hpckit.documents import nearest  # noqa: PLC0415  # no supervisor needs it

            raise RequestError(f"Unknown {self.what} {name!r}. {nearest(name, self.known())}")
        module, _, attribute = target.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
            row: Row = found() if isinstance(found, type) else found
        except Exception as error:  # somebody else's code: whatever it raises
            raise RequestError(
                f"{self.what.capitalize()} {name!r} ({target}) cannot be loaded: {error!r}."
            ) from error
        return row


@cache
def installed(group: str) -> Mapping[str, str]:
    """Return the "module:attribute" of each name that installed packages bring."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # 10 ms that few need

    return {point.name: point.value for point in entry_points(group=group)}
