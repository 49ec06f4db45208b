"""The page of a scaling study in a real Chromium: pictures, legend, the figures of --json."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.pages.scaling import scaling_page
from hpckit.scaling.document import document
from hpckit.scaling.study import Scaling
from tests.browser.chromium import PROGRAM, Chromium
from tests.unit.test_scaling import ABOUT, outcome, studied

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        PROGRAM is None, reason="NOT RUN: needs Debian's chromium (tests/setup_system.sh)"
    ),
]
HOSTILE = "</title><script>window.caught=1</script><img src=x onerror=window.caught=2>"


@pytest.fixture(scope="module")
def study() -> Scaling:
    """Three sizes twice, of which one run failed; its name and its reasons are anybody's words."""
    rows = [
        outcome(gpus, repeat, 10 * (0.1 + 0.9 / gpus) + 0.1 * repeat, communication_s=0.1)
        for gpus in (1, 2, 4)
        for repeat in (1, 2)
    ]
    bad = outcome(4, 3, 0, HOSTILE)
    return studied(*rows, bad, about=replace(ABOUT, name=HOSTILE, study=HOSTILE))


@pytest.fixture(scope="module")
def path(study: Scaling, tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("study") / "page.html"
    page.write_text(scaling_page(study), encoding="utf-8")
    return page


@pytest.fixture
def page(browser: Chromium, path: Path) -> Iterator[Chromium]:
    browser.look()
    browser.open(path)
    yield browser
    assert browser.console == []
    assert browser.requests == [path.as_uri()]


def test_it_has_the_figures_of_the_json_and_hostile_words_stay_text(
    page: Chromium, study: Scaling
) -> None:
    assert page.js("window.caught ?? null") is None
    assert page.js("document.querySelector('h1').textContent") == f"Scaling of {HOSTILE}"
    found = document(study)["sizes"]
    shown = page.js(
        "Object.fromEntries([...document.querySelectorAll('[data-figure]')]"
        ".map((it) => [it.dataset.figure, Number(it.value)]))"
    )
    expected = {
        f"sizes.{at}.{name}.value": row[name]["value"]
        for at, row in enumerate(found)
        for name in ("time_s", "speed_up", "efficiency")
    }
    assert shown == expected


def test_pictures_are_drawn_and_a_line_can_be_switched_off(page: Chromium) -> None:
    names = "[...document.querySelectorAll('.plot[data-drawn]')].map((it) => it.dataset.chart)"
    assert page.js(names) == ["time", "speed", "efficiency", "split"]
    button = "figure:nth-of-type(1) .legend button:nth-of-type(2)"
    pressed = f"document.querySelector('{button}').getAttribute('aria-pressed')"
    assert page.js(f"document.querySelector('{button}').textContent").startswith("● Amdahl's law")
    page.click(button)
    assert page.js(pressed) == "false"
    page.key("Enter", "\r")  # it has the focus
    assert page.js(pressed) == "true"
    assert "to the largest: 10.15, 5.65, 3.4" in page.js(
        "document.querySelector('.plot').getAttribute('aria-label')"
    )
