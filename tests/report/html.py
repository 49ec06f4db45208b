"""A page of `hpckit stats --html`, read as a program reads it."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

_EMPTY = {"meta", "link", "input", "br", "img"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.children)

    def every(self, tag: str = "", **wanted: str) -> list["Node"]:
        found = []
        for part in self.children:
            if isinstance(part, Node):
                fits = tag in ("", part.tag) and wanted.items() <= part.attributes.items()
                found += [part] * fits + part.every(tag, **wanted)
        return found

    def one(self, tag: str = "", **wanted: str) -> "Node":
        (found,) = self.every(tag, **wanted)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in _EMPTY:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, (self.open[-1].tag, tag)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_html(path: Path) -> Node:
    """Return what a page's elements are."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert len(reader.open) == 1, reader.open[-1]
    return reader.open[0]


def data_of(page: Node, name: str) -> dict[str, Any]:
    """Return the JSON in an element, as the page's script reads it."""
    found: dict[str, Any] = json.loads(page.one("script", id=name).text)
    return found


def figures(page: Node) -> dict[str, float | None]:
    """Return each figure of a page by its path in the document of `--json`."""
    known = {node.attributes["data-figure"]: float(node.attributes["value"])
             for node in page.every("data")}  # fmt: skip
    unknown = page.every("span", **{"class": "unknown"})
    return known | {node.attributes["data-figure"]: None for node in unknown}


def at(document: Any, path: str) -> Any:
    """Return what stands at a path such as `per_gpu.3.hours`."""
    for part in path.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def allowed(page: Node, what: str) -> set[str]:
    """Return what the page's policy allows of `script-src` or `style-src`."""
    (policy,) = (
        node.attributes["content"]
        for node in page.every("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    return set(rules[what].split())


def hash_of(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def addresses(page: Node) -> list[str]:
    """Return every address that a page's elements and style name."""
    names = ("src", "srcset", "href", "action", "data", "poster", "style", "onerror", "onload")
    named = [
        node.attributes[name] for node in page.every() for name in names if name in node.attributes
    ]
    return named + re.findall(r"url\(.*?\)|@import", page.one("style").text)
