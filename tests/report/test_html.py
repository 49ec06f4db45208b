"""The page of `hpckit stats --html`, as a file; tests/browser opens it in Chromium."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.pages.frame import ASSETS
from hpckit.pages.training import training
from hpckit.run_folders.runs import read_run
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.samples import collecting, reading
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.curves import Curves, make_curves
from hpckit.stats.summary.figures import Attempt
from hpckit.stats.summary.summarise import summarise
from tests.conftest import Answer
from tests.report.html import addresses, allowed, at, data_of, figures, hash_of, read_html
from tests.report.made import START, make_run, write_samples

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028&amp;\u202e"
BUSY, IDLE = [90.0], [0.0]


def run_with_samples(here: Path, **record: Any) -> Path:
    """A run whose second GPU was idle in the end, and whose third was not used."""
    folder = make_run(here / "runs", seconds=3600, **record)
    used = [BUSY * 361, [*BUSY * 161, *IDLE * 200], IDLE * 361]
    write_samples(folder / "samples", used, power=True)
    return folder


def drawn(files: list[Path], spans: list[Span], most: int = 3000) -> Curves:
    columns = [read_columns(path, at, drawn=True, figures=False) for at, path in enumerate(files)]
    found = make_curves([file for file in columns if file], spans, most)
    assert found
    return found


def test_no_line_begins_before_the_first_sample(here: Path, cli: Cli) -> None:
    """A sample stands for the time since the one before, and the first one for none."""
    folder = make_run(here / "runs", seconds=60, plan={"gpus_per_node": 1, "total_gpus": 1})
    path = write_samples(folder / "samples", [[50.0] * 55], period_s=1, late_s=6)
    assert cli("stats", str(folder), "--json").status == 0
    (attempt,) = json.loads((folder / "timeseries.json").read_text())["attempts"]
    assert attempt["width_s"] == 1
    begins = {}
    for name in ("gpu_utilization", "gpu_memory_bytes", "cores_used", "memory_bytes"):
        (line,) = attempt[name]
        begins[name] = next(n for n, value in enumerate(line["values"]) if value is not None)
    assert {*begins.values()} == {6}
    curves = drawn([path], [Span(restart=0, start=START, end=START + 60)])
    first = 6 // curves.width_s
    for chart in curves.charts:
        (curve,) = chart.curves
        assert (chart.name, curve.mean[:first]) == (chart.name, (None,) * first)
        assert curve.mean[first] is not None


def test_every_number_is_that_of_json(here: Path, cli: Cli) -> None:
    folder = run_with_samples(here)
    document = json.loads(cli("stats", str(folder), "--json").out)
    answer = cli("stats", str(folder), "--html", "page.html")
    assert (answer.status, answer.out) == (0, "")
    assert "page.html" in answer.err
    page = read_html(Path("page.html"))
    found = figures(page)
    assert {name: at(document, name) for name in found} == found
    assert {"summary.gpu_utilization_percent", "per_gpu.2.energy_joules"} <= found.keys()
    assert data_of(page, "document") == document


def test_python_writes_the_same_page(here: Path, cli: Cli) -> None:
    folder = run_with_samples(here)
    cli("stats", str(folder), "--html", "one.html")
    written = hpckit.stats(folder.name, runs=folder.parent).html("two.html")
    assert written == here / "two.html"
    assert Path("one.html").read_bytes() == Path("two.html").read_bytes()


def test_each_samples_file_is_read_once(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_with_samples(here)
    opened: list[Path] = []
    read = reading.read_blocks

    def counted(path: Path, *rest: Any, **more: Any) -> Any:
        opened.append(path)
        return read(path, *rest, **more)

    monkeypatch.setattr(collecting, "read_blocks", counted)
    files = ("--html", "a.html", "--png", "a.png", "--svg", "a.svg")
    assert cli("stats", str(folder), *files).status == 0
    assert [path.parent for path in opened] == [folder / "samples"]
    # What was asked for makes no difference to a file, nor to the figures.
    row = hpckit.stats(folder.name, runs=folder.parent)
    assert len(opened) == 2
    assert row.html("b.html").read_bytes() == Path("a.html").read_bytes()
    assert row.svg("b.svg").read_bytes() == Path("a.svg").read_bytes()
    assert len(opened) == 4


def test_minutes_with_reduced_clocks_are_marked(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=3600)
    # Two steps on one node, one after another: clocks were reduced in the second.
    write_samples(folder / "samples", [BUSY * 181])
    write_samples(folder / "samples", [BUSY * 180], pid=8, late_s=1810, reasons=0x40)
    advice = json.loads(cli("stats", str(folder), "--json").out)["advice"]
    (found,) = (item for item in advice if item["id"] == "throttling")
    assert [place["uuid"] for place in found["places"]] == ["GPU-n1-0"]
    (stretch,) = found["stretches"]
    # The first reading speaks for the minute before it, where no other one was.
    assert stretch["start"] == pytest.approx(START + 1810, abs=61)
    assert stretch["end"] == pytest.approx(START + 3600, abs=61)  # the last was before the end


def test_a_gpu_looks_the_same_in_all_pictures(here: Path, cli: Cli) -> None:
    """Also where another has nothing to show: an older model has no SM activity."""
    folder = make_run(here / "runs", seconds=3600)
    write_samples(folder / "samples", [BUSY * 361], host="n1", sm=None)
    write_samples(folder / "samples", [BUSY * 361], host="n2")
    assert cli("stats", str(folder), "--html", "page.html").status == 0
    charts = {it["id"]: it for it in data_of(read_html(Path("page.html")), "page-data")["charts"]}
    looks = {
        name: [(line["device"], line["look"]) for line in charts[f"gpu-{name}"]["lines"]]
        for name in ("utilization_permille", "sm_permille")
    }
    both = [("n1/GPU-n1-0", 0), ("n2/GPU-n2-0", 1)]
    assert looks == {"utilization_permille": both, "sm_permille": both[1:]}


def test_a_job_of_which_nothing_is_known_is_no_wall_of_unknowns(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=100)
    assert cli("stats", str(folder), "--html", "page.html").status == 0
    page = read_html(Path("page.html"))
    assert figures(page) == {}
    assert "No figure of this job is known." in page.text
    assert "It ended well" in page.one("section", id="verdict").text
    assert "so there are no pictures" in page.text


def test_what_others_wrote_stays_text(here: Path, cli: Cli) -> None:
    folder = run_with_samples(here, parameters={HOSTILE: HOSTILE}, command=["python", HOSTILE])
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"name": HOSTILE}))
    (folder / "job.sh").write_text(f"#!/bin/bash\necho '{HOSTILE}'\n")
    answer = cli("stats", str(folder), "--html", "page.html")
    assert answer.status == 0, answer.err
    path = Path("page.html")
    page = read_html(path)
    # Each element is one of ours, and the policy knows the only script that may run.
    scripts = page.every("script")
    assert [node.attributes.get("type") for node in scripts] == ["application/json"] * 2 + [None]
    assert allowed(page, "script-src") == {hash_of(scripts[-1].text)}
    assert allowed(page, "style-src") == {hash_of(page.one("style").text)}
    assert not page.every("img")
    assert addresses(page) == []
    # It is all there, to be read.
    shown = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\u2028&amp;\\u202e"
    assert shown in page.one("h1").text
    assert shown in page.one("title").text
    settings = next(row for row in page.every("tr") if row.text.startswith("</script>"))
    assert settings.text == shown * 2
    assert any(shown in node.text for node in page.every("pre"))
    assert data_of(page, "document")["name"] == HOSTILE
    for letters in ("\u2028", "\u202e"):
        assert letters not in path.read_text()


def test_a_failed_run_says_its_first_error_and_what_it_was(here: Path, cli: Cli) -> None:
    versions = {"name": "base", "collection": "lab", "revision": "9f8e7d6c5b4a3928", "hash": "aa"}
    folder = run_with_samples(
        here,
        state="FAILED",
        parameters={"lr": 0.1},
        templates=[versions],
        code={"commit": "1f3d9a7c", "dirty": True},
    )
    rank = json.loads((folder / "ranks" / "2.json").read_text())
    rank["attempts"][0] |= {"exit_code": 1, "error": f"ValueError: {HOSTILE}"}
    (folder / "ranks" / "2.json").write_text(json.dumps(rank))
    assert cli("stats", str(folder), "--html", "page.html").status == 0
    page = read_html(Path("page.html"))
    ended = page.one("section", **{"class": "ended"}).text
    assert "rank 2" in ended
    assert "ValueError: </script><script>alert(1)</script>" in ended
    assert "FAILED with exit status 1" in page.one("section", id="verdict").text
    submitted = page.one("section", **{"class": "submitted"}).text
    for words in ("lr0.1", "1f3d9a7c, with changes that are in no commit", "9f8e7d6c5b4a"):
        assert words in submitted
    assert len(page.every("script")) == 3


def test_a_page_is_written_whole_or_not_at_all(here: Path, cli: Cli) -> None:
    folder = run_with_samples(here)
    Path("precious").write_text("mine")
    Path("page.html").symlink_to("precious")
    assert cli("stats", str(folder), "--html", "page.html").status == 0
    assert Path("precious").read_text() == "mine"
    answer = cli("stats", str(folder), "--html", "nowhere/page.html")
    assert answer.status == 3
    assert "nowhere/page.html' cannot be written: No such file or directory" in answer.err
    answer = cli("stats", str(folder), "--html", "page.html", "--json")
    assert answer.status == 2


def test_pictures_and_units_are_those_of_the_table(here: Path, cli: Cli) -> None:
    folder = run_with_samples(here)
    cli("stats", str(folder), "--html", "page.html")
    charts = data_of(read_html(Path("page.html")), "page-data")["charts"]
    rows = [("gpu", row) for row in GPU if row.drawn] + [("node", row) for row in NODE if row.drawn]
    expected = {f"{kind}-{row.name}": row.drawn.unit for kind, row in rows if row.drawn}
    assert {chart["id"]: chart["unit"] for chart in charts} == expected
    assert [len(chart["lines"]) for chart in charts] == [3, 3, 3, 3, 1, 1]


def test_a_peak_of_one_sample_is_in_the_band(tmp_path: Path) -> None:
    used = [20.0] * 3601
    used[1801] = 100.0
    path = write_samples(tmp_path, [used], period_s=1, cores_used=2.0)
    found = drawn([path], [Span(restart=0, start=START, end=START + 3600)], most=60)
    utilization = next(c for c in found.charts if c.name == "utilization_permille")
    (curve,) = utilization.curves
    assert (found.width_s, len(found.times)) == (60, 60)
    assert curve.high[30] == 100
    assert curve.low[30] == 20
    assert curve.mean[30] == pytest.approx(20 + 80 / 60, abs=0.06)
    assert set(curve.mean[:30]) == {20.0}
    cores = next(c for c in found.charts if c.name == "cpu_us").curves[0]
    assert set(cores.mean) == {2.0}


def test_the_means_of_a_line_are_the_figure(tmp_path: Path) -> None:
    used = [50 + 40 * math.sin(at / 30) for at in range(3601)]
    path = write_samples(tmp_path, [used], period_s=1, power=True)
    span = Span(restart=0, start=START, end=START + 3600)
    file = read_columns(path, 0)
    assert file
    (gpu,) = summarise([file], [span]).per_gpu
    line = drawn([path], [span], most=120).charts[0].curves[0]
    means = [value for value in line.mean if value is not None]
    assert len(means) == 120
    assert sum(means) / 120 == pytest.approx(gpu.utilization_percent, abs=0.05)


def test_attempts_stand_on_one_axis_with_nothing_between(tmp_path: Path) -> None:
    first = write_samples(tmp_path, [BUSY * 361], cores_used=1.0)
    second = write_samples(tmp_path, [IDLE * 361], host="n2", restart=1, late_s=7200)
    spans = [
        Span(restart=0, start=START, end=START + 3600),
        Span(restart=1, start=START + 7200, end=START + 10800),
    ]
    found = drawn([first, second], spans)
    assert list(found.times) == sorted(found.times)
    lines = {curve.host: curve.mean for curve in found.charts[0].curves}
    count = len(found.times) // 2
    assert lines["n1"] == (*[90.0] * count, *[None] * (count + 1))
    assert lines["n2"] == (*[None] * (count + 1), *[0.0] * count)


def test_many_lines_are_drawn_in_fewer_bins_and_never_finer_than_samples(tmp_path: Path) -> None:
    path = write_samples(tmp_path, [BUSY * 2161] * 64, power=True)
    span = Span(restart=0, start=START, end=START + 21600)
    found = drawn([path], [span])
    values = sum(len(curve.mean) for chart in found.charts for curve in chart.curves)
    assert values <= 120_000
    short = write_samples(tmp_path / "short", [BUSY * 4])
    assert drawn([short], [Span(restart=0, start=START, end=START + 30)]).width_s == 10


def test_advice_knows_its_time_and_devices(here: Path, cli: Cli) -> None:
    folder = run_with_samples(here)
    advice = json.loads(cli("stats", str(folder), "--json").out)["advice"]
    tail = next(item for item in advice if item["id"] == "idle-tail")
    (stretch,) = tail["stretches"]
    assert (stretch["host"], stretch["uuid"]) == ("n1", "GPU-n1-1")
    assert stretch["start"] == pytest.approx(START + 1600, abs=1)
    assert stretch["end"] == START + 3600
    cli("stats", str(folder), "--html", "page.html")
    marked = data_of(read_html(Path("page.html")), "page-data")["advice"]
    number = advice.index(tail)
    assert marked[number]["devices"] == ["n1/GPU-n1-1"]
    assert marked[number]["stretches"][0]["device"] == "n1/GPU-n1-1"


def several(here: Path) -> list[str]:
    """Three jobs: one well used, one idle in the end and with a hostile name, one that failed."""
    names = []
    for number, used in enumerate(([BUSY * 361], [[*BUSY * 161, *IDLE * 200]], [IDLE * 361])):
        state = "FAILED" if number == 2 else "COMPLETED"
        folder = make_run(here / "runs", f"job{number}", job_id=f"local-{number:06d}", state=state)
        write_samples(folder / "samples", used, power=True)
        names.append(str(folder))
    record = json.loads(Path(names[1], "run.json").read_text())
    Path(names[1], "run.json").write_text(json.dumps(record | {"name": HOSTILE}))
    return names


def test_several_jobs_are_one_page_with_the_numbers_of_json(here: Path, cli: Cli) -> None:
    jobs = several(here)
    document = json.loads(cli("stats", *jobs, "--json").out)
    answer = cli("stats", *jobs, "--html", "page.html")
    assert answer.status == 0, answer.err
    page = read_html(Path("page.html"))
    found = figures(page)
    assert {name: at(document, name) for name in found} == found
    assert "jobs.2.summary.gpu_hours_idle" in found
    said = page.one("section", id="verdict").text
    assert "2 COMPLETED, 1 FAILED." in said
    assert f"{document['distribution']['gpu_hours']:.1f} GPU-hours" in said
    assert "1 of 3 jobs: Idle at the end. In local-000001" in page.text
    small = data_of(page, "page-data")["jobs"]
    assert [set(job["mean"]) for job in small] == [{90}, {90, 0, *small[1]["mean"]}, {0}]
    assert all(len(job["times"]) <= 121 for job in small)
    scripts = page.every("script")
    assert allowed(page, "script-src") == {hash_of(scripts[-1].text)}
    assert len(scripts) == 2
    assert addresses(page) == []


def test_a_job_without_samples_has_a_page_too(here: Path, cli: Cli) -> None:
    one, other = (str(make_run(here / "runs", name, job_id=f"local-{name}")) for name in "ab")
    for jobs in ([one], [one, other]):
        answer = cli("stats", *jobs, "--html", "page.html")
        assert answer.status == 0, answer.err
        assert "no samples" in read_html(Path("page.html")).text


def test_what_a_script_logged_is_drawn_as_far_as_it_is_numbers(here: Path) -> None:
    folder = make_run(here / "runs")
    rows: list[Any] = [
        {"time": START + at, "loss": 2 - at / 5000, "step": at} for at in range(9000)
    ]
    rows[10] |= {"loss": math.nan}
    rows[20] |= {"loss": HOSTILE, "test_loss": 0.5}
    rows += [{"loss": 3.0}, {"time": "now", "loss": 1.0}, [1]]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    logged = training(read_run(folder))
    assert [chart.name for chart in logged.charts] == ["loss", "test_loss"]
    assert (len(logged.times), logged.breaks, logged.repeated) == (3000, (), 0)
    loss = logged.charts[0].curves[0]
    assert (loss.low[0], loss.mean[0], loss.high[0]) == (1.9996, 1.9998, 2.0)


def test_each_attempts_lines_end_and_steps_taken_again_are_drawn_apart(here: Path) -> None:
    folder = make_run(here / "runs")
    rows: list[Any] = [{"time": START + at, "loss": 10 - at, "step": at} for at in range(5)]
    rows.append({"time": START + 100, "step": 2, "resumed": True})
    rows += [{"time": START + 98 + at, "loss": 10 - at, "step": at} for at in range(3, 6)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    logged = training(read_run(folder))
    assert [moment - START for moment in logged.times] == [0, 1, 2, 3, 4, 52.5, 101, 102, 103]
    assert (logged.breaks, logged.repeated) == ((5,), 2)
    counts, again = logged.charts[0].curves
    assert (counts.replaced, counts.mean) == (False, (10, 9, 8, None, None, None, 7, 6, 5))
    assert (again.replaced, again.mean) == (True, (None, None, 8, 7, 6, None, None, None, None))
    # A file of before, whose rows name no attempt: they are of the one at their time.
    del rows[3:6]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    attempts = [Attempt(restart=0, start=START - 1), Attempt(restart=1, start=START + 50)]
    old = training(read_run(folder), attempts)
    assert (old.charts[0].curves[0].mean, old.breaks) == ((10, 9, 8, None, 7, 6, 5), (3,))


def test_uplot_is_as_it_came_from_npm() -> None:
    """npm's `dist.integrity` is that of the whole package, from which these files were taken."""
    origin = json.loads((ASSETS / "uplot/origin.json").read_text())
    for name, expected in origin["sha256"].items():
        assert hashlib.sha256((ASSETS / "uplot" / name).read_bytes()).hexdigest() == expected, name
    assert {path.name for path in (ASSETS / "uplot").iterdir()} == {
        *origin["sha256"],
        "origin.json",
    }
    assert f"(v{origin['version']})" in (ASSETS / "uplot/uPlot.iife.min.js").read_text()[:200]
    assert "MIT License" in (ASSETS / "uplot/LICENSE").read_text()
