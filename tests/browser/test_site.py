"""The documentation's site: built without a warning, searched, and no other host is asked."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import PROGRAM, Chromium, chromium
from tests.pages import PAGES, ROOT

pytestmark = pytest.mark.long
# What a browser fetches by itself, from a place that has a host.
FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*\b(?:src|href|data)=\"(?:\w+:)?//"
    r"|@import|url\(['\"]?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does: a warning, as a link to nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site") / "html"
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-c", "docs"]
    done = subprocess.run(
        [*words, "-d", str(folder.parent / "trees"), ".", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_none_asks_another_host(site: Path) -> None:
    for page in PAGES:
        assert (site / page).with_suffix(".html").is_file()
    assert "url=docs/index.html" in (site / "index.html").read_text()
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert FETCHED.search(path.read_text()) is None, path


@pytest.fixture
def browser() -> Iterator[Chromium]:
    if PROGRAM is None:
        pytest.skip("NOT RUN: needs Debian's chromium (tests/setup_system.sh)")
    yield from chromium()


RESULTS = "[...document.querySelectorAll('#search-results li a')].map((row) => row.href)"
SEARCHED = f"""new Promise((done) => {{
  const look = () => document.querySelector('#search-results .search-summary')
    ?.textContent.match(/found/) ? done({RESULTS}) : setTimeout(look, 20);
  look();
}})"""


def test_the_site_can_be_searched_from_a_folder(site: Path, browser: Chromium) -> None:
    browser.look()
    browser.open(site / "docs" / "index.html")
    assert {address.partition(":")[0] for address in browser.requests} <= {"file", "data"}
    browser.js("document.querySelector('.sidebar-search').value = 'requeue'")
    browser.leave("document.querySelector('.sidebar-search-container').submit()")
    found = browser.js(SEARCHED)
    page = (site / "docs" / "long-jobs.html").as_uri()
    assert page in {row.partition("#")[0] for row in found}
    assert {address.partition(":")[0] for address in browser.requests} <= {"file", "data"}
