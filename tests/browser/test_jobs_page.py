"""The page of several jobs in a real Chromium: a table that sorts and filters, small pictures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import PROGRAM, Chromium
from tests.report.made import make_run, write_samples

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        PROGRAM is None, reason="NOT RUN: needs Debian's chromium (tests/setup_system.sh)"
    ),
]
HOSTILE = "</td><script>window.caught=1</script><img src=x onerror=window.caught=2>"
JOBS = 40


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty jobs, each used a little more than the one before; every tenth failed."""
    from hpckit.api.stats import stats_asked

    root = tmp_path_factory.mktemp("jobs")
    folders = []
    for number in range(JOBS):
        state = "FAILED" if number % 10 == 9 else "COMPLETED"
        folder = make_run(root, f"job{number}", job_id=f"local-{number:06d}", state=state)
        write_samples(folder / "samples", [[2.0 * number] * 37] * 2)
        folders.append(folder)
    record = json.loads((folders[3] / "run.json").read_text())
    (folders[3] / "run.json").write_text(json.dumps(record | {"name": HOSTILE}))
    found, missing = stats_asked([str(folder) for folder in folders], root)
    assert not missing
    return found.html(root / "page.html")


@pytest.fixture
def page(browser: Chromium, path: Path) -> Iterator[Chromium]:
    browser.look(height=500)
    browser.open(path)
    yield browser
    assert browser.console == []
    assert browser.requests == [path.as_uri()]


def ids(page: Chromium, rows: str) -> list[int]:
    """Return the numbers of the rows or pictures that are shown, in their order."""
    found = page.js(
        f"[...document.querySelectorAll('{rows}')].filter((it) => !it.hidden)"
        ".map((it) => Number(it.dataset.of))"
    )
    return [int(number) for number in found]


ROWS, PICTURES = "#table-jobs tbody tr", "#small figure"


def test_it_sorts_and_filters_with_its_pictures(page: Chromium) -> None:
    assert page.js("window.caught ?? null") is None
    assert ids(page, ROWS) == ids(page, PICTURES) == list(range(JOBS))
    # The fifth column: GPU utilization.
    head = "#table-jobs thead th:nth-child(5)"
    assert page.js(f"document.querySelector('{head}').textContent") == "GPU utilization"
    page.click(f"{head} button")
    page.click(f"{head} button")
    assert ids(page, ROWS) == ids(page, PICTURES) == list(range(JOBS))[::-1]
    page.click("input[type=search]")
    for letter in "failed":
        page.key(letter, letter)
    assert ids(page, ROWS) == ids(page, PICTURES) == [39, 29, 19, 9]
    assert page.js("document.querySelector('.filter output').textContent") == "4 of 40"


def test_pictures_are_drawn_when_they_come_into_view_and_all_in_print(page: Chromium) -> None:
    drawn = "document.querySelectorAll('#small .plot[data-drawn]').length"
    few = page.js(drawn)
    assert few < JOBS
    page.box("#small figure:last-child .plot")
    page.js(
        "new Promise((done) => {"
        " const last = document.querySelector('#small figure:last-child .plot');"
        " const look = () => 'drawn' in last.dataset ? done(true) : requestAnimationFrame(look);"
        " look(); })"
    )
    assert page.js(drawn) > few
    page.printed()
    assert page.js(drawn) == JOBS


def test_a_long_table_leaves_the_pictures_in_sight_but_is_printed_whole(page: Chromium) -> None:
    height = "document.querySelector('#table-jobs').closest('.scroll').clientHeight"
    whole = page.js("document.querySelector('#table-jobs').scrollHeight")
    assert page.js(height) < 600 < whole
    page.js("document.querySelector('.scroll').focus()")
    assert page.js("document.activeElement.className") == "scroll"
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.js(height) >= page.js("document.querySelector('#table-jobs').scrollHeight")
    page.call("Emulation.setEmulatedMedia", media="")
