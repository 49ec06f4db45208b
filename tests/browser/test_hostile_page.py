"""Every text that others write, as an attack on the reader's browser: it stays text."""

import json
from pathlib import Path
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


def attack(number: int) -> str:
    """Return a text that ends what it may stand in, and calls `caught`, each in its own way."""
    return (
        f"a{number}\"'></td></script></style></svg><script>caught({number})</script>"
        f"<img src=x onerror=caught({number})><a href='javascript:caught({number})'>b</a>"
        f"${{caught({number})}}]]>-->\u202e\x1b[31m"
    )


NAME, MODEL, LOG, TEMPLATE, COLLECTION, PROGRAM_PATH, PARAMETER, VALUE = map(attack, range(8))
USER, CODE, SITE, FOLDER, SCRIPT, METRIC = map(attack, range(8, 14))
# A node's name is in the names of its files.
HOST = "<img src=x onerror=caught(15)>\"'&amp;"
TEXTS = {
    "name": NAME, "model": MODEL, "log": LOG, "template": TEMPLATE, "collection": COLLECTION,
    "program": PROGRAM_PATH, "parameter": PARAMETER, "value": VALUE, "user": USER, "code": CODE,
    "folder": FOLDER, "script": SCRIPT, "host": HOST,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    version = {"name": TEMPLATE, "collection": COLLECTION, "revision": TEMPLATE, "hash": TEMPLATE}
    folder = make_run(
        root,
        state="FAILED",
        parameters={PARAMETER: VALUE},
        templates=[version],
        workload=version,
        command=["python", PROGRAM_PATH],
        command_line=["hpckit", "submit", PROGRAM_PATH],
        code={"commit": CODE, "dirty": True},
    )
    record = json.loads((folder / "run.json").read_text())
    more = {"name": NAME, "user": USER, "cwd": FOLDER}
    (folder / "run.json").write_text(json.dumps(record | more))
    (folder / "job.sh").write_text(f"#!/bin/bash\n# {SCRIPT}\n")
    for path in (folder / "ranks").iterdir():
        known = json.loads(path.read_text())
        known["attempts"][0] |= {"host": HOST, "exit_code": 1, "error": f"ValueError: {LOG}"}
        path.write_text(json.dumps(known))
    local = json.loads((folder / "local.json").read_text())
    (folder / "local.json").write_text(json.dumps(local | {"host": HOST}))
    used = [[90.0] * 361, [*[90.0] * 161, *[0.0] * 200]]
    write_samples(folder / "samples", used, host=HOST, model=MODEL, power=True)
    rows = ({"step": at, "time": START + at, "loss": 1.0, METRIC: 1.0} for at in range(100))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def opened_page(browser: Chromium, path: Path) -> None:
    browser.look()
    browser.open(path)


def assert_harmless(browser: Chromium, path: Path) -> None:
    assert browser.console == []  # `caught` is nowhere: to call it would be an error
    assert browser.requests == [path.as_uri()]
    count = "document.querySelectorAll('img, a, iframe, object, embed, form, base, link').length"
    assert browser.js(count) == 0
    # Ours, and no other: what a page has of data and script.
    kinds = "[...document.scripts].map((it) => it.type + it.id).sort()"
    assert browser.js(kinds)[0] == ""
    assert len([kind for kind in browser.js(kinds) if not kind]) == 1
    handlers = (
        "[...document.querySelectorAll('*')].flatMap((it) => it.getAttributeNames())"
        ".filter((name) => name.startsWith('on')).length"
    )
    assert browser.js(handlers) == 0


def spelt(text: str) -> str:
    return text.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")


def test_all_of_it_is_text_on_the_page_of_a_job(browser: Chromium, run: Path) -> None:
    import hpckit

    path = hpckit.stats(run.name, runs=run.parent).html(run.parent / "page.html")
    opened_page(browser, path)
    assert int(browser.js("document.documentElement.dataset.ready")) == 7
    shown: str = browser.js("document.querySelector('main').textContent")
    missing = [name for name, text in TEXTS.items() if spelt(text) not in shown]
    # The shell's quotes, and cuts, change what a command, a revision and a hash look like.
    assert set(missing) <= {"program"}
    assert "caught(5)" in shown
    # The script works with those names: what an advice marks, what a name hides, what is read out.
    advice: list[Any] = browser.js(
        "JSON.parse(document.getElementById('document').textContent).advice"
    )
    number = next(at for at, item in enumerate(advice) if item["id"] == "idle-tail")
    browser.click(f'button[data-advice="{number}"]')
    chart = '.plot[data-chart="gpu-utilization_permille"]'
    assert browser.js(f"document.querySelector('{chart}').dataset.pale") == "1"
    browser.click(f"{chart} + .legend button:nth-child(2)")
    browser.js(f"document.querySelector('{chart}').focus()")
    browser.key("End")
    assert_harmless(browser, path)


def test_all_of_it_is_text_on_the_page_of_several_jobs(browser: Chromium, run: Path) -> None:
    from hpckit.api.stats import stats_asked

    other = make_run(run.parent, "other", job_id="local-other0")
    found, _ = stats_asked([str(run), str(other)], run.parent)
    path = found.html(run.parent / "jobs.html")
    opened_page(browser, path)
    shown: str = browser.js("document.querySelector('main').textContent")
    assert spelt(NAME) in shown
    assert spelt(HOST) in shown
    browser.click("#table-jobs th:nth-child(2) button")
    browser.js(
        "(() => { const it = document.querySelector('input'); it.value = '<script>';"
        " it.dispatchEvent(new Event('input')); })()"
    )
    assert browser.js("document.querySelector('.filter output').textContent") == "1 of 2"
    assert_harmless(browser, path)
