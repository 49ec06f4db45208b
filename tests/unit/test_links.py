"""Every link of every page leads somewhere: to a file of the repository, and to a heading in it.

The site is stricter, and slower: tests/browser/test_site.py.
"""

import posixpath
import re
from collections import Counter
from functools import cache

from tests.pages import ROOT

PAGES = tuple(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "examples/**/*.md")
    for path in sorted(ROOT.glob(pattern))
)
LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```.*?^```|    .*?$)|(`+)[^`].*?\2", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def anchors(page: str) -> frozenset[str]:
    """Return the names of a page's headings, as forges make them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(re.sub(r"^```.*?^```", "", text(page), flags=re.S | re.M)):
        plain = LINK.sub(lambda link: link[0].partition("](")[0].strip("!["), heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def links(page: str) -> list[str]:
    """Return where a page's links lead, but not to other hosts."""
    plain = CODE.sub("", text(page))
    return [to for to in LINK.findall(plain) if not re.match(r"[a-z]+:", to)]


def broken(page: str, link: str) -> bool:
    file, _, heading = link.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), file)) if file else page
    if not (ROOT / place).is_file():
        return True
    return bool(heading) and heading not in anchors(place)


def test_links_lead_to_files_and_headings() -> None:
    assert sum(len(links(page)) for page in PAGES) > 100
    assert [(page, to) for page in PAGES for to in links(page) if broken(page, to)] == []


def test_a_link_to_nowhere_is_seen() -> None:
    assert broken("README.md", "docs/nowhere.md")
    assert broken("README.md", "docs/sites.md#nowhere")
    assert not broken("README.md", "docs/sites.md#public-clusters")


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = {posixpath.normpath(f"docs/{to.partition('#')[0]}") for to in links("docs/index.md")}
    assert {page for page in PAGES if page != "docs/index.md"} - listed == set()
