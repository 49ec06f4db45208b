"""Sphinx's configuration of the site: `make site`.

The pages are those that one reads on the forge, unchanged: Markdown with relative links, from the
whole repository. docs/index.md is their table of contents; what it lists, under which heading, is
the site's navigation. Nothing comes from another host, neither when it is built nor when it is read.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpckit.version import __version__  # noqa: E402

project = "hpckit"
version = release = __version__
copyright = "hpckit's authors, MIT licence"

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "examples/*.md", "examples/*/*.md"]
exclude_patterns = [
    f"{path.name}"
    for path in ROOT.iterdir()
    if path.name not in ("docs", "examples") and path.is_dir()
]
myst_heading_anchors = 4
# Two dashes are two dashes, and a quote can be copied.
smartquotes = False

html_theme = "furo"
html_title = f"hpckit {__version__}"
html_copy_source = False
html_show_sphinx = False
# The site's own address is the folder it is opened from; the first page lies in docs/.
html_additional_pages = {"index": "start.html"}
templates_path = ["site"]
html_static_path = ["site/static"]
html_css_files = ["wide.css"]
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_LISTED = re.compile(r"^- \[([^]]+)\]\(([^)#]+)\.md\)", re.MULTILINE)


def navigation(text: str, page: str) -> str:
    """Return the hidden tables of contents, in MyST, of a page that lists others under headings."""
    parts = _HEADING.split(text)
    tables = []
    for heading, part in zip(parts[1::2], parts[2::2], strict=True):
        here = posixpath.dirname(page)
        rows = "\n".join(
            f"{title.replace('`', '')} </{posixpath.normpath(posixpath.join(here, name))}>"
            for title, name in _LISTED.findall(part)
        )
        tables.append(f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{rows}\n```\n")
    return "".join(tables)


def setup(app: "Sphinx") -> None:
    """Add the navigation to the first page as it is read."""

    def read(_app: Any, page: str, source: list[str]) -> None:  # noqa: ANN401
        if page == root_doc:
            source[0] += navigation(source[0], page)

    app.connect("source-read", read)
