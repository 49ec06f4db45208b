"""What Python 3.10 lacks of what is used here."""

import sys

__all__ = ["StrEnum", "add_note"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """A text by its name."""

        __str__ = str.__str__


def add_note(error: BaseException, note: str) -> None:
    """Add a line to an error, which Python 3.10 keeps and does not print."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), note]
