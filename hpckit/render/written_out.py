"""A template that extends the one it shadows, written out: that one's text, with what it changes.

For people who compare the two. Only statements `block` and calls of `super()` are looked for, also
where Jinja would not run them.
"""

import re
from collections.abc import Collection as Names
from collections.abc import Iterator

# Comments and raw text first: what looks like a statement in them is none.
_NONE = r"(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}"
_EXTENDS = _NONE + r"|\{%[-+]?\s*extends\s+([\"'])(?P<name>[^\"']+)\1\s*[-+]?%\}"
_PARTS = _NONE + r"|\{%[-+]?\s*(?P<word>block|endblock)\b\s*(?P<name>\w*)[^%]*%\}"
_SUPER = r"\{\{[-+]?\s*super\(\)\s*[-+]?\}\}\n?"
# A block: its name, where its statements begin and end, and where what it holds does.
_Block = tuple[str, int, int, int, int]


def written_out(own: str, below: str, names: Names[str]) -> str:
    """Return what a template amounts to that extends another one; else its own text.

    Args:
        own: its text.
        below: the text of the other one.
        names: how `own` may call the other one.
    """
    found = (part for part in re.finditer(_EXTENDS, own) if part["name"])
    extends = next(found, None)
    if extends is None or extends["name"] not in names:
        return own
    try:
        return _written_out(own, extends, below)
    except RecursionError:  # blocks in blocks, thousands deep
        return own


def _written_out(own: str, extends: re.Match[str], below: str) -> str:
    own = own[: extends.start()] + own[extends.end() :]
    changed, outside, at = {}, [], 0
    for name, begin, start, stop, end in _blocks(own):
        changed[name] = own[start:stop]
        outside.append(own[at:begin])
        at = end
    beside = "".join([*outside, own[at:]]).strip()
    text = _filled(below, changed)
    # Blocks that only a template further down has.
    lost = "".join(
        f"{{% block {name} %}}{text}{{% endblock %}}\n" for name, text in changed.items()
    )
    return (f"{beside}\n" if beside else "") + text + lost


def _filled(text: str, changed: dict[str, str]) -> str:
    """Return a text with the blocks that were changed, which are taken out of `changed`."""
    parts, at = [], 0
    for name, _, start, stop, _ in _blocks(text):
        held = text[start:stop]
        if name in changed:
            own = changed.pop(name)
            above = _filled(held, changed).removeprefix("\n")
            held = re.sub(_SUPER, lambda _, above=above: above, own)  # type: ignore[misc]
        else:
            held = _filled(held, changed)
        parts += [text[at:start], held]
        at = stop
    return "".join([*parts, text[at:]])


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of a text that stand in no other block, in order."""
    opened: list[re.Match[str]] = []
    for part in re.finditer(_PARTS, text):
        if part["word"] == "block":
            opened.append(part)
        elif part["word"] == "endblock" and opened:
            begun = opened.pop()
            if not opened:
                yield begun["name"], begun.start(), begun.end(), part.start(), part.end()
