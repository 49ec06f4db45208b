"""Elements of a page. Every text in them is text: the serializer escapes it, no one else has to.

Names, log lines and parameters are others' words. Control and format characters in them are spelt
out, as on a terminal; `<` and `&` stay what they are. Nothing here takes HTML.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.report.terminal import duration, energy, hours, with_unit
from hpckit.text import spelt

Content = Element | str | None | Iterable["Content"]


def e(tag: str, *content: Content, **attributes: str | float | bool | None) -> Element:
    """Make an element; None and False leave an attribute out, `_` in its name stands for `-`."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None and value is not False:
            text = "" if value is True else str(value)
            made.set(name.rstrip("_").replace("_", "-"), spelt(text))
    for part in content:
        _append(made, part)
    return made


def with_code(text: str) -> list[Content]:
    """Return a text whose commands stand between backticks."""
    parts = text.split("`")
    return [e("code", part) if at % 2 else part for at, part in enumerate(parts)]


def _append(parent: Element, part: Content) -> None:
    if isinstance(part, Element):
        parent.append(part)
    elif isinstance(part, str):
        _add_text(parent, spelt(part))
    elif part is not None:
        for inner in part:
            _append(parent, inner)


def _add_text(parent: Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


_SHOWN: Mapping[str, Callable[[float], str]] = {
    "hours": hours,
    "joules": energy,
    "s": duration,
    "watts": lambda value: f"{value:.0f} W",
}


def figure(name: str, value: float | None) -> Element:
    """Show a figure: for people with its unit, and as `--json` has it for programs.

    `name` is its path in the document of `--json`; its ending says the unit.
    """
    if value is None:
        return e("span", "unknown", class_="unknown", data_figure=name)
    ending = name.rpartition(".")[2].split("_")
    show = next((_SHOWN[word] for word in reversed(ending) if word in _SHOWN), None)
    text = show(value) if show else with_unit(name, value)
    return e("data", text, value=repr(value), class_="figure", data_figure=name)


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    sortable: bool = False,
    **attributes: str | None,
) -> Element:
    """Make a table; the first cell of a row is its head. The page's script sorts sortable ones."""
    head = e("tr", (e("th", word, scope="col") for word in heads))
    body = (
        e("tr", e("th", first, scope="row"), (e("td", cell) for cell in rest))
        for first, *rest in rows
    )
    return e(
        "div",
        e(
            "table",
            e("caption", caption),
            e("thead", head),
            e("tbody", body),
            data_sortable=sortable,
            **attributes,
        ),
        class_="scroll",
        tabindex="0" if sortable else None,
        role="region" if sortable else None,
        aria_label=caption if sortable else None,
    )


def pairs(rows: Mapping[str, Content]) -> Element:
    """Make a list of names and what they are; what is None or "" is left out."""
    known = ((name, value) for name, value in rows.items() if value not in (None, ""))
    return e("dl", (e("div", e("dt", name), e("dd", value)) for name, value in known))


def section(title: str, *content: Content, **attributes: str | None) -> Element | None:
    """Make a section with a heading; None if nothing is in it."""
    inside: list[Any] = [part for part in content if part is not None]
    return e("section", e("h2", title), inside, **attributes) if inside else None
