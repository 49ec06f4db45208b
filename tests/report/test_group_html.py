"""The page of `hpckit report --html` as a file, and the schema of `--json`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import hpckit
from hpckit.group_report.totals import KINDS
from tests.conftest import Answer, write_files
from tests.report.groups import HOUR, NOW, accounts, js1, row, summary
from tests.report.html import addresses, allowed, at, data_of, figures, hash_of, read_html
from tests.report.made import REPORT_SCHEMA_FILE
from tests.unit.made import make_run

pytestmark = pytest.mark.long
__all__ = ["accounts"]
Cli = Callable[..., Answer]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e"
COSTS = {"gpu_hour": 1.5, "currency": "EUR", "pue": 1.5, "co2_g_per_kwh": 100}


@pytest.fixture
def lab(accounts, here: Path) -> Path:
    """Jobs of two users over three weeks: measured, not measured, failed, with hostile names."""
    start = NOW - 300 * HOUR
    site = yaml.safe_dump({"description": "ours", "costs": COSTS})
    write_files(here, {"templates/sites/ours.yaml": site})
    run = make_run(here / "runs", job_id="71", submitted_at=start - 61, workload={"name": "ddp"})
    (run.dir / "summary.json").write_text(json.dumps(summary(start, 25)))
    accounts(
        row("71", start, 2, JobName=HOSTILE),
        row("72", start + 150 * HOUR, 4, AdminComment=js1(10, 30, hours=4), User="trent"),
        row("73", start + 200 * HOUR, 1, State="FAILED", User=HOSTILE, Account=HOSTILE),
        row("74", NOW - HOUR, 0, State="RUNNING", End="Unknown"),
    )
    return here


WORDS = ("report", "--all", "--site", "ours")


def test_every_number_is_that_of_json(lab: Path, cli: Cli) -> None:
    document = json.loads(cli(*WORDS, "--by", "user", "--json").out)
    answer = cli(*WORDS, "--by", "user", "--html", "page.html")
    assert (answer.status, answer.out) == (0, "")
    assert "The page is in" in answer.err
    page = read_html(Path("page.html"))
    found = figures(page)
    assert {name: at(document, name) for name in found} == found
    assert found.keys() >= {
        "total.gpu_hours", "total.utilization_percent", "total.energy_kwh", "money", "co2_kg",
        "groups.1.gpu_hours", "groups.0.wait_median_s", "wasteful.2.gpu_hours_wasted",
    }  # fmt: skip
    assert data_of(page, "document") == document
    charts = data_of(page, "page-data")["charts"]
    assert charts["utilization"]["rows"][0]["values"] == document["total"]["utilization_hours"]
    assert charts["waits"]["rows"][0]["values"] == document["total"]["wait_attempts"]
    weeks = [one["name"] for one in document["weeks"]]
    assert charts["weeks"]["names"] == charts["trend"]["names"] == weeks
    assert sum(charts["weeks"]["rows"][0]["values"]) == pytest.approx(
        document["total"]["gpu_hours"]
    )
    written = hpckit.report(everyone=True, by="user", site="ours").html("two.html")
    assert written.read_bytes() == Path("page.html").read_bytes()


def test_what_was_not_measured_is_not_said_to_have_worked(accounts, cli: Cli, here: Path) -> None:
    week = 7 * 24 * HOUR
    accounts(
        row("1", NOW - HOUR, 0.5, User="ann"),
        row("2", NOW - week, 1, User="bob", AdminComment=js1(100, 100)),
        row("3", NOW - HOUR, 0.5, User="carl", AllocTRES="cpu=1,node=1"),
    )
    cli("report", "--all", "--html", "page.html")
    page = read_html(here / "page.html")
    rows = [
        [cell.text for cell in line.every("td")]
        for line in page.one("table", id="table-groups").every("tr")
    ]
    assert [line[5] for line in rows if line] == ["0", "unknown", "0"]
    held, used, _ = data_of(page, "page-data")["charts"]["weeks"]["rows"]
    assert (held["values"], used["values"]) == ([2.0, 1.0], [2.0, None])


def test_why_a_job_wasted_much_is_what_makes_its_figure(accounts, cli: Cli, here: Path) -> None:
    """A job that ended well but did nothing wasted all of it; others' failed attempts count."""
    begin = NOW - 9 * HOUR
    accounts(
        row("1", begin, 1, AdminComment=js1(0, 0)),
        row("2", begin, 1, State="FAILED"),
        row("3", begin, 1, State="NODE_FAIL", AdminComment=js1(50, 50)),
        row("3", begin + 2 * HOUR, 1, AdminComment=js1(50, 50)),
        row("4", begin, 1, State="TIMEOUT"),
        row("4", begin + 2 * HOUR, 0, State="CANCELLED by 0"),
        row("5", begin, 1, AdminComment=js1(75, 25)),
    )
    cli("report", "--html", "page.html")
    rows = read_html(here / "page.html").one("table", id="table-wasteful").every("tr")
    half = "without work for 50 % of the time."
    assert {line.every("th")[0].text: line.every("td")[-1].text for line in rows[1:]} == {
        "1": "Its GPUs were without work for 100 % of the time.",
        "2": "All of it was held by attempts that failed.",
        "3": f"Attempts of it failed, and its GPUs were {half}",
        "4": "All of it was held by attempts that failed.",
        "5": f"Its GPUs were {half}",
    }


def test_waits_are_said_to_be_those_of_attempts(accounts, cli: Cli, here: Path) -> None:
    """One job waited for five minutes; the other one's two attempts for 30 s each."""
    begin = NOW - 9 * HOUR
    accounts(
        row("1", begin, 1, Eligible=str(begin - 300)),
        row("2", begin, 1, State="PREEMPTED"),
        row("2", begin + 2 * HOUR, 1),
    )
    text = cli("report").out
    assert "queue: half of the attempts waited at most 30 s, nine of ten at most 5 min" in text
    cli("report", "--html", "page.html")
    assert "half of the attempts waited at most" in read_html(here / "page.html").text


def test_one_job_is_said_to_be_one(accounts, cli: Cli, here: Path) -> None:
    accounts(row("1", NOW - HOUR, 0.5, State="FAILED"))
    text = cli("report").out
    assert "  1 job, 1 failed; 1.0 GPU-hours held" in text
    # Others may have samples, and a job's own may not be enough.
    assert "utilization unknown: no job has it in samples that this report may read" in text
    cli("report", "--html", "page.html")
    verdict = read_html(here / "page.html").one("section", id="verdict").text
    assert "1 job, 1 failed. 1.0 GPU-hours were held." in verdict
    accounts(*(row(str(at), NOW - HOUR, 0.5) for at in range(3)))
    assert "  3 jobs, 0 failed; " in cli("report").out


def test_the_page_says_what_is_not_known_and_where_factors_stand(lab: Path, cli: Cli) -> None:
    cli(*WORDS, "--html", "page.html")
    page = read_html(Path("page.html"))
    unknown = page.one("section", id="unknown").text
    assert "Of 4.0 of 16.0 GPU-hours (25 %) nobody knows how well they were used: it is" in unknown
    assert "4 from Slurm's accounting" in unknown
    assert f"The factors stand in {lab / 'templates/sites/ours.yaml'}." in page.text
    assert "energy × 1.5 (PUE) × 100 g/kWh" in page.text
    assert "Ask for one GPU." in page.text
    assert "Its GPUs were without work for 80 % of the time." in page.text
    cli("report", "--all", "--since", "1h", "--html", "empty.html")


def test_what_others_wrote_stays_text(lab: Path, cli: Cli) -> None:
    assert cli(*WORDS, "--by", "name", "--html", "page.html").status == 0
    page = read_html(Path("page.html"))
    scripts = page.every("script")
    assert [node.attributes.get("type") for node in scripts] == ["application/json"] * 2 + [None]
    assert allowed(page, "script-src") == {hash_of(scripts[-1].text)}
    assert not page.every("img")
    assert addresses(page) == []
    shown = HOSTILE.replace("\u202e", "\\u202e")
    cells = [cell.text for cell in page.every("td") + page.every("th")]
    assert cells.count(shown) == 3
    assert "\u202e" not in Path("page.html").read_text()


def test_hidden_names_are_not_in_the_page(lab: Path, cli: Cli) -> None:
    for by in KINDS:
        answer = cli(*WORDS, "--hide-names", "--by", by, "--html", "page.html")
        assert answer.status == 0
        text = Path("page.html").read_text()
        assert not any(word in text for word in ("alice", "trent", str(lab), "Ask for one"))
        page = read_html(Path("page.html"))
        assert {"job 1", "user 1"} <= {cell.text for cell in page.every("td") + page.every("th")}


@pytest.mark.parametrize("by", KINDS)
def test_each_document_is_as_its_schema_says(lab: Path, cli: Cli, by: str) -> None:
    schema: dict[str, Any] = json.loads(REPORT_SCHEMA_FILE.read_text())
    for words in ((), ("--hide-names",), ("--since", "1h")):
        said = json.loads(cli(*WORDS, "--by", by, "--json", *words).out)
        jsonschema.validate(said, schema)
        assert said["by"] == by
        assert set(said) == set(schema["properties"])
        names = {name for one in said["groups"] for name in one}
        assert names <= {"name", *schema["$defs"]["Totals"]["properties"]}
    assert cli("report", "--schema").out == REPORT_SCHEMA_FILE.read_text()


def test_waits_stand_in_classes(accounts, cli: Cli) -> None:
    waits = (0, 59, 60, 599, 3599, 3600, 86_400, 900_000)
    accounts(*(
        row(str(at), NOW - HOUR, 0.5, Eligible=str(NOW - HOUR - wait), Submit="1")
        for at, wait in enumerate(waits)
    ))  # fmt: skip
    whole = json.loads(cli("report", "--json").out)["total"]
    assert whole["wait_attempts"] == [2, 2, 1, 1, 0, 2]


def test_a_page_that_cannot_be_written_is_one_error(lab: Path, cli: Cli) -> None:
    answer = cli(*WORDS, "--html", "nowhere/page.html")
    assert answer.status == 3
    assert "nowhere/page.html' cannot be written: No such file or directory" in answer.err
