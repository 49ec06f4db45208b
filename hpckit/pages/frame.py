"""The frame of a page: one file with its style, script and data inside, and a policy that says so.

The browser runs the script whose hash the policy names, and fetches nothing: whatever got into the
page, it is neither run nor sent anywhere.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, tostring

from hpckit.files import read_text
from hpckit.pages.elements import Content, e
from hpckit.version import __version__

ASSETS = Path(__file__).parent / "assets"
_STYLES = ("uplot/uPlot.min.css", "page.css")
_SCRIPTS = ("uplot/uPlot.iife.min.js", "common.js")


def page(title: str, body: Content, data: Mapping[str, Any], own: str) -> str:
    """Return a page; its `own` script finds each part of `data` as JSON, by its name."""
    style = _joined(_STYLES)
    script = f"/*\n{read_text(ASSETS / 'uplot/LICENSE')}*/\n{_joined((*_SCRIPTS, own))}"
    head = e(
        "head",
        e("meta", charset="utf-8"),
        e("meta", **{"http-equiv": "Content-Security-Policy"}, content=_policy(style, script)),
        e("meta", name="viewport", content="width=device-width, initial-scale=1"),
        e("meta", name="color-scheme", content="light dark"),
        e("meta", name="referrer", content="no-referrer"),
        e("meta", name="generator", content=f"hpckit {__version__}"),
        e("title", title),
        _raw("style", style),
    )
    scripts = [
        *(
            _raw("script", _json(part), id=name, type="application/json")
            for name, part in data.items()
        ),
        _raw("script", script),
    ]
    whole = e("html", head, e("body", body, scripts), lang="en")
    return "<!DOCTYPE html>\n" + tostring(whole, encoding="unicode", method="html") + "\n"


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(read_text(ASSETS / name) for name in names)


def _policy(style: str, script: str) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _json(value: object) -> str:
    """Return JSON that no parser of HTML takes for anything else, in any place."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # all of it ASCII
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _raw(tag: str, text: str, **attributes: str) -> Element:
    """Make an element whose text is written as it is: our own, or JSON without a `<`."""
    made = e(tag, **attributes)
    made.text = text
    return made
