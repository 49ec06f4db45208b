"""`hpckit stats --png` and `--svg`: a job's main picture."""

import errno
import json
import os
import random
import re
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest

import hpckit
from tests.conftest import Answer
from tests.report.made import START, make_run, write_samples
from tests.unit.test_faulty_disk import refuse

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "$\\frac{</svg><script>alert(1)</script>\x1b[31m\u202e"
SPELT = r"$\frac{</svg><script>alert(1)</script>\x1b[31m\u202e"
BUSY, IDLE = [90.0], [0.0]


def read_svg(path: Path | str) -> Element:
    return fromstring(Path(path).read_bytes())


def texts(svg: Element) -> list[str]:
    return ["".join(found.itertext()) for found in svg.iter(f"{SVG}text")]


def made(here: Path, used: Sequence[Sequence[float]], called: str = "train", **record: str) -> Path:
    folder = make_run(here / "runs", called, job_id=f"local-{called}", seconds=3600)
    known = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(known | record))
    write_samples(folder / "samples", used, power=True)
    return folder


def requeued(here: Path, **record: str) -> Path:
    """A run of two attempts that logged its loss."""
    folder = made(here, [BUSY * 161, IDLE * 161], **record)
    write_samples(folder / "samples", [BUSY * 161, IDLE * 161], restart=1, late_s=1900, power=True)
    attempts = [
        {"rank": 0, "restart": 0, "host": "n1", "device": "cuda", "pid": 1, "started": START,
         "ended": START + 1600, "exit_code": 1},
        {"rank": 0, "restart": 1, "host": "n1", "device": "cuda", "pid": 1,
         "started": START + 1900, "ended": START + 3600, "exit_code": 0},
    ]  # fmt: skip
    for path in (folder / "ranks").iterdir():
        number = int(path.stem)
        rows = [row | {"rank": number} for row in attempts]
        path.write_text(json.dumps({"rank": number, "attempts": rows}))
    steps = ({"step": at, "time": START + at, "loss": 2 / (at + 1)} for at in range(3000))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    return folder


def test_all_that_the_page_shows_is_below_one_another(here: Path, cli: Cli) -> None:
    folder = requeued(here, name=HOSTILE)
    answer = cli("stats", str(folder), "--svg", "a.svg", "--png", "a.png", "--html", "a.html")
    assert (answer.status, answer.out) == (0, "")
    assert [re.sub(r" \(.*|/\S*/", "", line) for line in answer.err.splitlines()] == [
        "The page is in a.html",
        "The picture is in a.png",
        "The picture is in a.svg",
    ]
    found = texts(read_svg("a.svg"))
    titles = [text for text in found if text.startswith(("GPU ", "Training", "Node: "))]
    assert [text for text in titles if not re.fullmatch(r"GPU \d", text)] == [
        "GPU utilization", "GPU memory", "GPU power", "GPU SM activity", "Training loss",
        "Node: cores in use", "Node: memory",
    ]  # fmt: skip
    assert {"%", "GiB", "W", "cores", "GPU 0", "GPU 1"} <= set(found)
    named = [text for text in found if text.startswith("attempt ")]
    assert named == ["attempt 0", "attempt 1: COMPLETED"]
    assert "time since the job's start (min)" in found
    # What others wrote is text, and nothing of it is an order, an element or a formula.
    assert any(SPELT in text for text in found)
    assert {node.tag.removeprefix(SVG) for node in read_svg("a.svg").iter()}.isdisjoint(
        {"script", "image", "a", "foreignObject"}
    )
    content = Path("a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1440
    assert height > width


def test_the_same_job_gives_the_same_bytes_also_from_python(here: Path, cli: Cli) -> None:
    folder = requeued(here)
    cli("stats", str(folder), "--svg", "a.svg", "--png", "a.png")
    row = hpckit.stats(folder.name, runs=folder.parent)
    assert row.svg("b.svg") == here / "b.svg"
    row.png("b.png")
    for ending in ("svg", "png"):
        assert Path(f"a.{ending}").read_bytes() == Path(f"b.{ending}").read_bytes()


def test_a_peak_of_one_sample_is_seen_in_a_picture_that_is_too_narrow_for_it(
    here: Path, cli: Cli
) -> None:
    folder = make_run(here / "runs", seconds=4000)
    used = [[10.0] * 2000 + [100.0] + [10.0] * 2000]
    write_samples(folder / "samples", used, period_s=1.0)
    cli("stats", str(folder), "--svg", "a.svg")
    svg = read_svg("a.svg")
    first = next(node for node in svg.iter(f"{SVG}g") if node.get("id") == "axes_1")

    def top(kind: str) -> float:
        groups = [it for it in first.iter(f"{SVG}g") if (it.get("id") or "").startswith(kind)]
        paths = [path.get("d") or "" for it in groups for path in it.iter(f"{SVG}path")]
        return min(float(y) for path in paths for y in re.findall(r"[ML] \S+ (\S+)", path))

    # A band up to the top of the axes, which is 100 %; the mean over its bin is far below it.
    below = float(svg.get("viewBox", "").split()[3])  # bands are counted from the lower edge
    assert below + top("FillBetween") == pytest.approx(top("patch"), abs=0.01)
    assert "Lines: means over 10 s." in " ".join(texts(svg))


def test_of_many_gpus_it_shows_what_they_have_in_common(here: Path, cli: Cli) -> None:
    numbers = random.Random(0)
    used = [[numbers.uniform(60, 90) for _ in range(361)] for _ in range(20)]
    cli("stats", str(made(here, used)), "--svg", "a.svg")
    found = texts(read_svg("a.svg"))
    assert {"mean of 20 GPUs", "each of them"} <= set(found)
    assert "GPU 0" not in found


def test_without_anything_over_time_nothing_is_written(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=3600)
    answer = cli("stats", str(folder), "--png", "a.png")
    assert answer.status == 2
    assert "there is nothing to draw over time" in answer.err
    assert not Path("a.png").exists()


def test_samples_that_cannot_be_read_are_not_called_none(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(here, [BUSY * 361])
    refuse(monkeypatch, os, "open", errno.EIO, only=".jsonl")
    answer = cli("stats", str(folder), "--png", "a.png")
    assert (answer.status, answer.out) == (3, "")
    assert "cannot be read: Input/output error. So there is nothing to draw." in answer.err


def test_a_run_that_only_logged_has_a_picture_of_that(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=100)
    rows = ({"step": at, "time": START + at, "loss": 2.0} for at in range(100))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("stats", str(folder), "--svg", "a.svg").status == 0
    assert "Lines: what the script logged." in texts(read_svg("a.svg"))


def test_a_picture_is_of_one_job_and_no_other_output(here: Path, cli: Cli) -> None:
    jobs = [made(here, [BUSY * 361], name) for name in ("one", "two")]
    answer = cli("stats", *map(str, jobs), "--png", "a.png", "--html", "a.html")
    assert answer.status == 2
    assert "A picture is of one job, and these are 2." in answer.err
    answer = cli("stats", str(jobs[0]), "--png", "a.png", "--json")
    assert answer.status == 2
    assert (
        "Give one of --json, --jobstats, --grafana, --openmetrics and --template, or" in answer.err
    )
    assert list(here.glob("a.*")) == []


def test_without_matplotlib_nothing_is_written_and_it_says_what_to_install(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(here, [BUSY * 361])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    answer = cli("stats", str(folder), "--html", "a.html", "--png", "a.png")
    assert answer.status == 3
    assert f"Install it: {sys.executable} -m pip install 'matplotlib>=3.8'" in answer.err
    assert list(here.glob("a.*")) == []
