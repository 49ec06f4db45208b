"""Frozen values to JSON and back: lists become tuples again."""

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


def rebuild(kind: type[Value], fields: Mapping[str, Any]) -> Value:
    """Make a value of its fields as JSON gave them.

    Raises:
        TypeError: a field is missing, or not one of the value's (another version wrote it).
    """
    return kind(
        **{key: tuple(item) if isinstance(item, list) else item for key, item in fields.items()}
    )
