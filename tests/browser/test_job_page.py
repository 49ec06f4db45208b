"""The page of one job in a real Chromium: drawn, zoomed, read by mouse and by keyboard."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import PROGRAM, Chromium
from tests.report.made import START, make_run, write_samples

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        PROGRAM is None, reason="NOT RUN: needs Debian's chromium (tests/setup_system.sh)"
    ),
]
HOSTILE = "</script><script>window.caught=1</script><img src=x onerror=window.caught=2>"
BUSY, IDLE = [90.0], [0.0]
CHART = '.plot[data-chart="gpu-utilization_permille"]'
OVER = f"{CHART} .u-over"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of two attempts: its second GPU idle in the end, its third not used at all."""
    import hpckit

    root = tmp_path_factory.mktemp("page")
    folder = make_run(root, seconds=7300, parameters={"lr": HOSTILE})
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"name": HOSTILE}))
    attempts = [
        {"rank": 0, "restart": 0, "host": "n1", "device": "cuda", "pid": 1, "started": START,
         "ended": START + 3600, "exit_code": 1, "error": HOSTILE},
        {"rank": 0, "restart": 1, "host": "n1", "device": "cuda", "pid": 1,
         "started": START + 3700, "ended": START + 7300, "exit_code": 0},
    ]  # fmt: skip
    for path in (folder / "ranks").iterdir():
        number = int(path.stem)
        rows = [row | {"rank": number} for row in attempts]
        path.write_text(json.dumps({"rank": number, "attempts": rows}))
    first = [BUSY * 361, BUSY * 361, IDLE * 361]
    second = [BUSY * 361, [*BUSY * 161, *IDLE * 200], IDLE * 361]
    write_samples(folder / "samples", first, power=True)
    write_samples(folder / "samples", second, power=True, restart=1, late_s=3700)
    steps = ({"step": at, "time": START + at, "loss": 2 / (at + 1)} for at in range(3600))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    found = hpckit.stats(folder.name, runs=root)
    found.html(root / "page.html")
    return {"path": root / "page.html", **found.document()}


@pytest.fixture
def page(browser: Chromium, document: dict[str, Any]) -> Iterator[Chromium]:
    browser.look()
    browser.open(document["path"])
    yield browser
    assert browser.console == []
    assert browser.requests == [document["path"].as_uri()]


def view(page: Chromium) -> list[tuple[float, float]]:
    rows = page.js(
        "[...document.querySelectorAll('.plot')].map((it) => [it.dataset.min, it.dataset.max])"
    )
    return [(float(low), float(high)) for low, high in rows]


def legend(page: Chromium, chart: str = CHART) -> list[str]:
    found: list[str] = page.js(
        f"[...document.querySelector('{chart}').nextElementSibling.querySelectorAll('.value')]"
        ".map((it) => it.textContent)"
    )
    return found


def test_it_is_drawn_and_names_stay_text(page: Chromium, document: dict[str, Any]) -> None:
    assert page.js("document.documentElement.dataset.ready") == "7"
    assert page.js("document.querySelectorAll('.plot canvas').length") == 7
    assert page.js("window.caught ?? null") is None
    assert page.js("document.images.length") == 0
    assert HOSTILE in page.js("document.querySelector('h1').textContent")
    shown = page.js(
        "Object.fromEntries([...document.querySelectorAll('data')]"
        ".map((it) => [it.dataset.figure, Number(it.value)]))"
    )
    assert (
        shown["summary.gpu_utilization_percent"] == document["summary"]["gpu_utilization_percent"]
    )
    assert shown["per_gpu.1.idle_percent"] == document["per_gpu"][1]["idle_percent"]
    # What is drawn has colour: the canvas is not empty, light or dark.
    assert coloured(page) > 500
    page.look(dark=True)
    assert coloured(page) > 500


def coloured(page: Chromium) -> int:
    """Return how many pixels of the first picture are neither clear nor grey."""
    count: int = page.js(
        f"(() => {{ const it = document.querySelector('{CHART} canvas');"
        " const pixels = it.getContext('2d').getImageData(0, 0, it.width, it.height).data;"
        " let found = 0; for (let at = 0; at < pixels.length; at += 4)"
        " found += pixels[at + 3] > 0 && Math.abs(pixels[at] - pixels[at + 2]) > 60;"
        " return found; })()"
    )
    return count


def test_the_pointer_is_in_all_pictures_at_once(page: Chromium) -> None:
    x, y = page.middle(OVER)
    page.mouse("mouseMoved", x - 100, y)
    page.painted()
    assert legend(page)[:3] == ["90 %", "90 %", "0 %"]
    assert legend(page, '.plot[data-chart="gpu-power_mw"]') == ["550 W", "550 W", "100 W"]
    assert page.js("document.getElementById('moment').textContent").startswith("20")
    (loss,) = legend(page, '.plot[data-chart="run-loss"]')
    assert float(loss.split()[0]) < 0.01
    # After the second attempt's idle tail began.
    page.mouse("mouseMoved", x + page.box(OVER)["width"] * 0.45, y)
    page.painted()
    assert legend(page) == ["90 %", "0 %", "0 %"]


def test_a_drag_zooms_all_pictures(page: Chromium) -> None:
    whole = view(page)
    assert len(set(whole)) == 1
    assert whole[0] == (START, START + 7300)
    page.drag(OVER, 0.25, 0.75)
    ((low, high),) = set(view(page))
    assert low == pytest.approx(START + 0.25 * 7300, abs=100)
    assert high == pytest.approx(START + 0.75 * 7300, abs=100)
    page.click('button[data-tool="in"]')
    ((closer, less),) = set(view(page))
    assert less - closer == pytest.approx((high - low) / 2, abs=1)
    page.click('button[data-tool="all"]')
    assert view(page) == whole


def test_the_keyboard_does_all_of_it(page: Chromium) -> None:
    page.js(f"document.querySelector('{CHART}').focus()")
    page.key("Home")
    assert page.js(f"document.querySelector('{CHART}').dataset.at") == "0"
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert page.js(f"document.querySelector('{CHART}').dataset.at") == "2"
    page.key("ArrowLeft")
    spoken = page.js("document.getElementById('spoken').textContent")
    assert "GPU 0 90 %, GPU 1 90 %, GPU 2 0 %" in spoken
    whole = view(page)
    page.key("+", "+")
    ((low, high),) = set(view(page))
    assert high - low == pytest.approx(3650, abs=1)
    page.key("0", "0")
    assert view(page) == whole
    # Every picture, button and table of figures is reached with Tab.
    reached = page.js(
        "[...document.querySelectorAll('.plot, button')].every((it) => it.tabIndex === 0)"
    )
    assert reached
    tables = page.js(
        "[...document.querySelectorAll('figure')]"
        ".map((it) => it.querySelectorAll('tbody tr').length)"
    )
    assert tables == [3, 3, 3, 3, 1, 1, 1]


def test_advice_marks_its_time_and_devices(page: Chromium, document: dict[str, Any]) -> None:
    number = next(at for at, item in enumerate(document["advice"]) if item["id"] == "idle-tail")
    (stretch,) = document["advice"][number]["stretches"]
    button = f'button[data-advice="{number}"]'
    page.click(button)
    marked = page.js(f"({{...document.querySelector('{CHART}').dataset}})")
    assert [float(part) for part in marked["marked"].split("-")] == [
        stretch["start"],
        stretch["end"],
    ]
    assert marked["pale"] == "2"
    assert page.js(f"document.querySelector('{button}').ariaPressed") == "true"
    page.click(button)
    marked = page.js(f"({{...document.querySelector('{CHART}').dataset}})")
    assert (marked["marked"], marked["pale"]) == ("", "0")


def test_a_device_is_hidden_in_all_pictures(page: Chromium) -> None:
    page.click(f"{CHART} + .legend button:nth-child(2)")
    pressed = page.js(
        "[...document.querySelectorAll('.legend')].map((it) => [...it.querySelectorAll('button')]"
        ".map((one) => one.ariaPressed).join())"
    )
    assert pressed == ["true,false,true"] * 4 + ["true"] * 3


def test_tables_are_sorted_by_their_heads(page: Chromium) -> None:
    def rows() -> list[str]:
        found: list[str] = page.js(
            "[...document.querySelectorAll('#table-per_gpu tbody tr')]"
            ".map((it) => it.cells[0].textContent)"
        )
        return found

    assert rows() == ["n1 0", "n1 1", "n1 2"]
    head = "#table-per_gpu th:nth-child(3)"
    page.click(f"{head} button")
    assert rows() == ["n1 2", "n1 1", "n1 0"]
    assert page.js(f"document.querySelector('{head}').ariaSort") == "ascending"
    page.click(f"{head} button")
    assert rows() == ["n1 0", "n1 1", "n1 2"]


def test_it_can_be_printed_and_read_on_a_telephone(page: Chromium) -> None:
    assert page.printed().startswith(b"%PDF")
    page.look(width=400, height=800)
    wide = page.js("document.documentElement.scrollWidth")
    assert wide <= 400
    widths = page.js("[...document.querySelectorAll('.plot canvas')].map((it) => it.clientWidth)")
    assert max(widths) <= 400
