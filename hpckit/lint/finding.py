"""One thing wrong with a file."""

import re
from dataclasses import dataclass

_PLACE = re.compile(r"(/[^\n]*?)(?::(\d+))?: (.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A file, a line of it (0: the file as a whole), what is wrong, and in which plan it showed."""

    path: str
    line: int
    message: str
    case: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}" + (f" [{self.case}]" if self.case else "")


def finding(text: str, path: str, case: str = "") -> Finding:
    """Read an error's `FILE:LINE: message`; `path` is the file where it names none."""
    place = _PLACE.fullmatch(text)
    if place is None:
        return Finding(path=path, line=0, message=text, case=case)
    return Finding(path=place[1], line=int(place[2] or 0), message=place[3], case=case)
