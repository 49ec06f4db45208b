"""What users' programs log oddly, through the commands that show it: times, losses, steps."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Answer, examples
from tests.report.html import data_of, read_html
from tests.report.made import START, make_run, write_samples
from tests.report.test_main_picture import read_svg, texts

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
MUST = '"time" must be seconds since 1970-01-01, as time.time() gives.'
FILES = ("--html", "a.html", "--png", "a.png", "--svg", "a.svg")
SECONDS, MILLISECONDS = (lambda at: float(at)), (lambda at: (START + at) * 1000)


def log(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def picture_words() -> str:
    return " ".join(texts(read_svg("a.svg")))


@pytest.mark.parametrize("unit", [SECONDS, MILLISECONDS])
def test_lines_with_odd_times_are_said_once_and_move_no_axis(
    here: Path, cli: Cli, unit: Callable[[int], float]
) -> None:
    folder = make_run(here / "runs", seconds=600)
    write_samples(folder / "samples", [[90.0] * 61])
    log(folder, ({"step": at, "loss": 1.0, "time": unit(at)} for at in range(60)))
    assert cli("stats", str(folder), *FILES).status == 0
    page = read_html(Path("a.html"))
    said = (
        '60 lines of metrics.jsonl have a "time" that cannot be of the run '
        f"(first {json.dumps(unit(0))}), so they are not drawn. {MUST}"
    )
    assert page.text.count(said) == 1
    assert picture_words().count(said) == 1
    data = data_of(page, "page-data")
    assert data["range"] == [START, START + 600]
    assert [chart for chart in data["charts"] if chart["moments"] == "training"] == []


def test_lines_with_good_times_are_drawn_beside_them(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=600)
    rows = [{"step": at, "loss": 1.0, "time": START + at} for at in range(60)]
    log(folder, [*rows, {"step": 60, "loss": 2.0, "time": 60}])
    assert cli("stats", str(folder), *FILES).status == 0
    page = read_html(Path("a.html"))
    assert "1 line of metrics.jsonl has a" in page.text
    assert "1 line of metrics.jsonl has a" in picture_words()
    assert len(data_of(page, "page-data")["moments"]["training"]) == 60
    log(folder, rows)
    assert cli("stats", str(folder), *FILES).status == 0
    assert "metrics.jsonl" not in read_html(Path("a.html")).text + picture_words()


def test_where_nothing_is_left_to_draw_both_say_why(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=600)
    log(folder, [{"step": 1, "loss": 1.0, "time": 1e308}])
    answer = cli("stats", str(folder), "--png", "a.png")
    assert answer.status == 2
    assert "logged nothing that can be drawn" in answer.err
    assert "(1e+308), so it is not drawn." in answer.err
    assert cli("stats", str(folder), "--html", "a.html").status == 0
    text = read_html(Path("a.html")).text
    assert "so there are no pictures" in text
    assert MUST in text


def test_losses_that_no_axis_has_room_for_are_said(here: Path, cli: Cli) -> None:
    folder = make_run(here / "runs", seconds=600)
    losses = [1.0, 1e308, -1e308, 1e308, math.nan, 10**39 * 10.0**62, 2.0]
    log(folder, ({"step": n, "loss": it, "time": START + n} for n, it in enumerate(losses)))
    assert cli("stats", str(folder), *FILES).status == 0
    said = "5 values of training loss are not finite, or beyond 1e+100, and are not drawn."
    assert read_html(Path("a.html")).text.count(said) == 1
    assert picture_words().count(said) == 1


NUMBERS = (
    0, -1, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e100, -1e100, 2**63, 2**64 + 1, -(2**70), 10**18,
    10**39, math.nan, math.inf,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (True, False, None, "", "now", "1790000000", [], {})
ODD = st.one_of(st.sampled_from([*NUMBERS, *OTHERS]), st.floats(), st.integers())
TIMES = st.one_of(ODD, st.integers(0, 600).map(lambda at: START + at))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"time": TIMES, "step": st.one_of(ODD, st.integers(0, 50))},
        optional=dict.fromkeys(
            ("loss", "test_loss", "test_accuracy", "samples_per_s", "epoch", "epochs", "restart",
             "resumed", "total_steps", "s_per_step"), ODD,
        ),
    ),
    max_size=8,
)  # fmt: skip


@pytest.mark.parametrize("sampled", [True, False])
def test_whatever_is_logged_no_command_breaks(here: Path, cli: Cli, sampled: bool) -> None:
    folder = make_run(here / "runs", seconds=600)
    if sampled:
        write_samples(folder / "samples", [[90.0] * 61])

    @settings(
        max_examples=examples(15),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        log(folder, rows)
        # A PNG is the same drawing, and takes as long again.
        answer = cli("stats", str(folder), "--html", "a.html", "--svg", "a.svg")
        drawn = answer.status == 0
        assert drawn or "there is nothing to draw over time" in answer.err, answer.err
        if drawn:
            data = data_of(read_html(Path("a.html")), "page-data")
            assert START - 1800 <= data["range"][0] <= data["range"][1] <= START + 2400
        for command in (("stats", "--json"), ("status",), ("jobs",), ("top", "--once")):
            words = ["--runs", "runs"] if command[0] in ("jobs", "top") else [folder.name]
            answer = cli(command[0], *words, *command[1:])
            assert (answer.status, answer.err) == (0, ""), (command, answer)
            longest = max(map(len, answer.out.splitlines()), default=0)
            assert "--json" in command or longest < 300, answer.out

    check()
