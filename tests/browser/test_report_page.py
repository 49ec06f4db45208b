"""The page of `hpckit report` in a real Chromium: pictures, tables, keyboard."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.group_report.result import Report, WastefulJob
from hpckit.group_report.totals import Totals
from hpckit.sites import Costs
from tests.browser.chromium import PROGRAM, Chromium

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        PROGRAM is None, reason="NOT RUN: needs Debian's chromium (tests/setup_system.sh)"
    ),
]
HOSTILE = "</td><script>window.caught=1</script><img src=x onerror=window.caught=2>"
WEEK = Totals(
    jobs=3, gpu_hours=30.0, gpu_hours_measured=20.0, gpu_hours_used=12.0, gpu_hours_unused=8.0,
    utilization_percent=60.0, utilization_hours=(0, 5.0, 0, 15.0, 0), wait_median_s=90.0,
    wait_attempts=(1, 1, 1, 0, 0, 0), gpu_hours_failed=5.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Report:
    """Twelve users over four weeks; one week without a measured job."""
    groups = {f"user{at}": replace(WEEK, gpu_hours=float(at)) for at in range(11)}
    jobs = [
        WastefulJob(job_id=str(at), user=HOSTILE, name="n", state="FAILED", gpus=2, gpu_hours=9.0,
                    gpu_hours_wasted=float(at), utilization_percent=None)
        for at in range(10)
    ]  # fmt: skip
    return Report(
        who=HOSTILE, since=1_790_000_000, until=1_792_419_200, by="user",
        groups=groups | {HOSTILE: WEEK}, total=WEEK, wasteful=tuple(jobs),
        weeks={f"2026-W4{at}": replace(WEEK, utilization_percent=None if at == 2 else 60.0)
               for at in range(4)},
        costs=Costs(gpu_hour=1.5, currency="EUR"), cost_source="ours", sources={"accounting": 3},
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.html(tmp_path_factory.mktemp("report") / "page.html")


@pytest.fixture
def page(browser: Chromium, path: Path) -> Iterator[Chromium]:
    browser.look(height=700)
    browser.open(path)
    yield browser
    assert browser.console == []
    assert browser.requests == [path.as_uri()]


def column(page: Chromium, table: str, number: int) -> list[str]:
    """Return the texts of a table's column, of the rows that are shown, in their order."""
    found: list[str] = page.js(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => !row.hidden)"
        f".map((row) => row.cells[{number}].textContent)"
    )
    return found


def test_it_draws_and_reads_each_bar_by_mouse_and_keyboard(page: Chromium) -> None:
    assert page.js("window.caught ?? null") is None
    assert page.js("document.documentElement.dataset.ready") == "4"
    said = "document.querySelector('#chart-{} output').textContent"
    assert page.js(said.format("weeks")) == ""
    page.js("document.querySelector('#chart-weeks .plot').focus()")
    page.key("Home")
    first = "2026-W40: held 30 GPU-hours, used 12 GPU-hours, lost to failures 5 GPU-hours"
    assert page.js(said.format("weeks")) == first
    page.key("End")
    page.key("ArrowLeft")
    assert page.js(said.format("weeks")).startswith("2026-W42: ")
    page.js("document.querySelector('#chart-trend .plot').focus()")
    page.key("End")
    page.key("ArrowLeft")
    assert page.js(said.format("trend")) == "2026-W42: unknown"
    page.mouse("mouseMoved", *page.middle("#chart-utilization .u-over"))
    page.painted()
    assert page.js(said.format("utilization")) == "25–50 %: 0 GPU-hours"


def test_tables_sort_and_filter(page: Chromium) -> None:
    page.click("#table-groups thead th:nth-child(4) button")
    hours = [float(text) for text in column(page, "table-groups", 3)]
    assert hours == sorted(hours)
    page.click("input[type=search]")
    for letter in "user1":
        page.key(letter, letter)
    assert sorted(column(page, "table-groups", 0)) == ["user1", "user10"]
    page.click("#table-wasteful thead th:nth-child(6) button")
    assert column(page, "table-wasteful", 0) == [str(at) for at in range(10)]
    assert set(column(page, "table-wasteful", 1)) == {HOSTILE}


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (420, False)])
def test_it_fits_any_window(page: Chromium, width: int, dark: bool) -> None:
    page.look(width=width, dark=dark)
    assert page.js("document.documentElement.scrollWidth") == width
    wide = "Math.max(...[...document.querySelectorAll('.plot canvas')].map((it) => it.clientWidth))"
    assert 100 < page.js(wide) < width
    assert page.picture().startswith(b"\x89PNG")


def test_it_is_whole_in_print(page: Chromium) -> None:
    assert page.printed().startswith(b"%PDF")
    assert page.js("document.documentElement.dataset.print ?? null") is None
