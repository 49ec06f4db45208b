"""Lines of a YAML file in which whatever others have named stands in quotes, on one line."""

from collections.abc import Iterator

from hpckit.spelling import in_line


def quoted(text: str) -> str:
    """Return a text as YAML in double quotes.

    Raises:
        ValueError: it is not printable; such names are left out before.
    """
    if not text.isprintable():
        raise ValueError(f"{text!r} is not printable")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def spelt_briefly(text: str) -> str:
    """Return a text for a comment: one printable line, not too long."""
    one = in_line(text)
    return one if len(one) <= 300 else f"{one[:300]}..."


def line(key: str, value: str | int | None, why: str, *, active: bool = True) -> str:
    """Return `key: value  # why`; a comment where there is no value, or it is not for us to set."""
    shown = "" if value is None else f" {value}"
    return f"{'' if active and value is not None else '# '}{key}:{shown}  # {spelt_briefly(why)}"


def section(name: str, lines: list[str]) -> Iterator[str]:
    """Yield a mapping; one of nothing but comments is a comment itself."""
    if all(row.startswith("#") for row in lines):
        yield f"# {name}:"
        yield from (f"#   {row.removeprefix('# ')}" for row in lines)
    else:
        yield f"{name}:"
        yield from (f"  {row}" for row in lines)
