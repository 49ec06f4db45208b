"""Where each line of a script comes from: marks put into templates' text, and taken out again."""

import re
from typing import Any

Origin = tuple[str, int]
# Characters for private use stand in no template; each mark is a file's number and a line.
_MARK = re.compile("\ue000(\\d+):(\\d+)\ue001")


def add_marks(environment: Any) -> list[str]:  # noqa: ANN401
    """Make an environment mark the end of each line of its templates; return their files."""
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream

    files: list[str] = []

    class Marks(Extension):
        def filter_stream(self, stream: TokenStream) -> Any:  # noqa: ANN401
            files.append(stream.filename or stream.name or "")
            number = len(files) - 1
            for token in stream:
                if token.type != "data":
                    yield token
                    continue
                lines = token.value.split("\n")
                marked = [
                    f"{text}\ue000{number}:{token.lineno + index}\ue001"
                    for index, text in enumerate(lines[:-1])
                ]
                yield Token(token.lineno, "data", "\n".join([*marked, lines[-1]]))

    environment.add_extension(Marks)
    return files


def take_marks(text: str, files: list[str]) -> tuple[str, tuple[Origin | None, ...]]:
    """Return the text without marks, and for each of its lines where it comes from."""
    origins: list[Origin | None] = []
    for line in text.split("\n"):
        mark = _MARK.search(line)
        origins.append((files[int(mark[1])], int(mark[2])) if mark else None)
    return _MARK.sub("", text), tuple(origins)
