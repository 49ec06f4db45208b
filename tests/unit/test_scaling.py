"""The arithmetic of a scaling study, with known answers: intervals, laws, sizes, times."""

import math
from fractions import Fraction
from typing import Any

import pytest

from hpckit.errors import RequestError
from hpckit.job_spec.spec import JobSpec
from hpckit.scaling.document import as_csv, document
from hpckit.scaling.intervals import mean_of, ratio_of, t_quantile
from hpckit.scaling.laws import AMDAHL, GUSTAFSON, fit_amdahl, fit_gustafson
from hpckit.scaling.sizes import grown, order_of_runs, read_sizes
from hpckit.scaling.study import About, Outcome, Scaling, Shape, Wanted, evaluate
from hpckit.scaling.timing import Source, Timing, timing_of
from hpckit.scaling.writing import _percent, text
from hpckit.workloads import Parameter, Workload

ABOUT = About(
    study="s", name="n", weak=False, grow=(), sizes=3, repeats=2, in_turn=False, submitted_at=1.0
)


# Of any table of Student's t.
@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (30, 2.0423), (1e6, 1.96)],
)
def test_t_is_that_of_the_tables(freedom: float, expected: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(expected, abs=1e-4)


def test_t_of_a_fraction_of_a_degree_of_freedom_is_scipys() -> None:
    assert t_quantile(0.975, 2.5) == pytest.approx(3.5746548420036817)
    assert t_quantile(0.95, 0.7) == pytest.approx(13.587121347511157)


def test_a_mean_has_the_interval_that_a_hand_finds() -> None:
    # s = 1, n = 3: 4.3027 x 1 / sqrt(3).
    found = mean_of([9.0, 10.0, 11.0])
    assert (found.value, found.low, found.high) == pytest.approx((10, 7.51586, 12.48414), abs=1e-5)
    assert mean_of([3.0]) == mean_of([3.0]).scaled(1)
    assert mean_of([3.0]).low is None
    assert mean_of([1.0, 9.0]).low == 0.0  # -45.8 s: times are positive


def test_a_ratio_has_the_interval_that_a_hand_finds() -> None:
    # Relative variances 0.01/3 and 0.04/3; Welch: (0.05/3)^2 / ((0.01/3)^2/2 + (0.04/3)^2/2)
    # = 25 / 8.5 = 2.9412 degrees of freedom, t = 3.2188, half = t sqrt(0.05/3).
    found = ratio_of([9.0, 10.0, 11.0], [4.0, 5.0, 6.0])
    half = 2 * t_quantile(0.975, 50 / 17) * math.sqrt(0.05 / 3)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - half, 2 + half))
    assert t_quantile(0.975, 50 / 17) == pytest.approx(3.218758614532882)
    assert ratio_of([9.0], [4.0, 5.0]).high is None
    assert ratio_of([4.0, 4.0], [2.0, 2.0]).low == 2.0  # no spread at all


@pytest.mark.parametrize("serial", [0.0, 0.03, 0.5, 1.0])
def test_amdahls_law_finds_the_serial_fraction_of_exact_times(serial: float) -> None:
    law = fit_amdahl([(count, 7 * (serial + (1 - serial) / count)) for count in (1, 2, 4, 8)])
    assert law is not None
    assert law.serial_fraction == pytest.approx(serial, abs=1e-12)
    assert law.standard_error == pytest.approx(0, abs=1e-12)
    assert law.time_s == pytest.approx(7)
    assert law.speed_up(8, 2) == pytest.approx(
        (serial + (1 - serial) / 2) / (serial + (1 - serial) / 8)
    )


def test_amdahls_law_says_its_limits() -> None:
    law = fit_amdahl([(count, 0.1 + 0.9 / count) for count in (1, 2, 4)])
    assert law is not None
    assert law.most == pytest.approx(10)
    # E(N) = 1 / (0.1 N + 0.9) = 0.5 at N = 11.
    assert law.largest(0.5, 1) == pytest.approx(11)
    assert law.speed_up(11, 1) / 11 == pytest.approx(0.5)
    at = law.largest(0.7, 2)
    assert at is not None
    assert law.speed_up(at, 2) / (at / 2) == pytest.approx(0.7)


def test_the_error_of_a_fit_is_that_of_linear_least_squares() -> None:
    # Times whose deviations from 1 + 1 / N are relative +2 %, -2 %, +2 %: scipy's
    # curve_fit with sigma = the times gives the same.
    law = fit_amdahl([(1, 2 * 1.02), (2, 1.5 * 0.98), (4, 1.25 * 1.02)])
    assert law is not None
    assert law.serial_fraction == pytest.approx(0.49742813918305556)
    assert law.standard_error == pytest.approx(0.038987655500066505)


@pytest.mark.parametrize("serial", [0.0, 0.2, 1.0])
def test_gustafsons_law_finds_the_serial_fraction_of_exact_speeds(serial: float) -> None:
    law = fit_gustafson([(ratio, ratio - serial * (ratio - 1)) for ratio in (1, 2, 4)])
    assert law is not None
    assert law.serial_fraction == pytest.approx(serial)
    assert law.standard_error == pytest.approx(0, abs=1e-12)
    assert law.speed_up(12, 3) == pytest.approx(4 - 3 * serial)
    if serial == 0.2:  # never below 1 - 0.2
        assert law.largest(0.7, 1) is None
        assert law.largest(0.85, 3) == pytest.approx(12)


def test_two_sizes_have_a_law_and_no_error_of_it() -> None:
    for law in (fit_amdahl([(1, 2.0), (2, 1.2)]), fit_gustafson([(1, 1.0), (2, 1.8)])):
        assert law is not None
        assert law.standard_error is None
        assert law.serial_fraction == pytest.approx(0.2)
    assert fit_amdahl([(1, 2.0)]) is None
    assert fit_amdahl([(4, 1.0), (8, 2.0)]) is None  # one device would take less than no time


def test_rounds_go_there_and_back() -> None:
    sizes = [size for size, _ in order_of_runs(3, 3)]
    assert sizes == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    # What grows steadily meanwhile adds the same to each size, where rounds come in pairs.
    means = [
        sum(at for at, (size, _) in enumerate(order_of_runs(3, 2)) if size == one)
        for one in range(3)
    ]
    assert len(set(means)) == 1


def test_sizes_are_read() -> None:
    found = read_sizes({"gpus": "A100:1,2,4,2x4"})
    assert [(row.nodes, row.gpus, row.gpu_type) for row in found] == [
        (None, 1, "A100"), (None, 2, "A100"), (None, 4, "A100"), (2, 4, "A100")
    ]  # fmt: skip
    found = read_sizes({"gpus": 4, "nodes": [1, 2]})
    assert [(row.nodes, row.gpus) for row in found] == [(1, 4), (2, 4)]
    found = read_sizes({"gpus": 0, "tasks_per_node": "1,2x8"})
    assert [(row.nodes, row.gpus, row.tasks_per_node) for row in found] == [(None, 0, 1), (2, 0, 8)]


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"gpus": "2"}, "needs two sizes or more"),
        ({}, "needs two sizes or more"),
        ({"gpus": "1,2", "nodes": "1,2"}, "--gpus and --nodes have several values each"),
        ({"gpus": "1,two"}, "--gpus 'two' must be whole numbers"),
        ({"gpus": "1,-2"}, "--gpus '-2' must be"),
        ({"nodes": "1,0"}, "--nodes 0 must be at least 1"),
        ({"nodes": "1,2x4"}, "--nodes '2x4' must be"),
        ({"gpus": "1,2x4", "nodes": "2"}, "says how many nodes, and so does --nodes"),
        ({"gpus": "A100:1,H100:1"}, "GPUs of one type, not A100 and H100"),
    ],
)
def test_what_is_no_list_of_sizes_is_refused(lists: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_sizes(lists)


WORK = Workload(
    name="w", description="d", strategy="mpi", weak_scaling=("n-samples",),
    parameters={"n-samples": Parameter(name="n-samples", type="int", default=6, help="h")},
)  # fmt: skip


def test_arguments_grow_where_they_stand() -> None:
    own = JobSpec(target="ddp", program="p", args=("-v", "--n_samples", "10", "--lr=1"))
    assert grown(own, None, ("n-samples",), Fraction(3)).args == (
        "-v",
        "--n_samples",
        "30",
        "--lr=1",
    )
    own = JobSpec(target="ddp", program="p", args=("--samples=10",))
    assert grown(own, None, ("samples",), Fraction(3, 2)).args == ("--samples=15",)
    assert grown(JobSpec(target="w"), WORK, ("n-samples",), Fraction(2)).settings == (
        "n-samples=12",
    )
    asked = JobSpec(target="w", settings=("n_samples=5",))
    assert grown(asked, WORK, ("n-samples",), Fraction(2)).settings == ("n-samples=10",)
    asked = JobSpec(target="w", args=("--n-samples", "4"))
    assert grown(asked, WORK, ("n-samples",), Fraction(2)).args == ("--n-samples", "8")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "have no --samples. Give it after"),
        (("--samples", "many"), "its value is 'many'"),
        (("--samples", "0.5"), "its value is '0.5'"),
        (("--samples", "5"), "5 x 3/2 is not a whole number. Choose a value that 2 divides"),
    ],
)
def test_what_cannot_grow_is_refused(args: tuple[str, ...], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        grown(JobSpec(target="ddp", program="p", args=args), None, ("samples",), Fraction(3, 2))


def test_the_programs_own_times_leave_its_first_lines_out() -> None:
    rows = [
        {"step": at, "s_per_step": 9.0 if at == 1 else 2.0, "communication_s": 0.5}
        for at in range(1, 5)
    ]
    found = timing_of(rows, 100.0)
    assert found.seconds == {Source.PROGRAM: 2.0, Source.WALL: 100.0}
    assert (found.steps, found.parts) == ({Source.PROGRAM: 3}, {"communication_s": 0.5})
    # A mean over ten steps weighs ten times as much as one over one.
    rows = [
        {"step": 10, "s_per_step": 9},
        {"step": 20, "s_per_step": 1.0},
        {"step": 21, "s_per_step": 12.0},
    ]
    assert timing_of(rows, None).seconds == {Source.PROGRAM: 2.0}
    # The journal's one line at its end is of all steps after the warm-up.
    rows = [
        {"step": 10, "time": 5.0},
        {"step": 30, "s_per_step": 0.25, "time": 10.0, "total_steps": 30, "epochs": 3},
    ]
    found = timing_of(rows, None)
    assert found.seconds == {Source.PROGRAM: 0.25, Source.LINES: 0.25}
    assert (found.total_steps, found.epochs) == (30, 3)


def test_without_them_the_moments_of_lines_tell() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 5, "time": 100.0, "s_per_step": "?"},
        {"loss": 1},
        {"step": 25, "time": 110.0},
    ]
    assert timing_of(rows, 30.0).seconds == {Source.LINES: 0.5, Source.WALL: 30.0}


@pytest.mark.parametrize(
    "row",
    [
        {"step": 1, "s_per_step": 5.0},  # the first step alone: the start is in it
        {"step": 3, "s_per_step": math.nan},
        {"step": 3, "s_per_step": -1.0},
        {"step": 3, "s_per_step": True},
        {"step": "3", "s_per_step": 1.0},
        {"step": 3, "s_per_step": 1e300},
        {"step": 3, "s_per_step": 10**400, "time": 10**400},
        {"step": -3, "s_per_step": 1.0},
    ],
)
def test_what_is_no_time_is_passed_over(row: dict[str, Any]) -> None:
    assert timing_of([row], None).seconds == {}


def outcome(gpus: int, repeat: int, seconds: float, left_out: str = "", **parts: float) -> Outcome:
    times = {Source.PROGRAM: seconds, Source.WALL: seconds + 60}
    timing = Timing(
        seconds=times, steps={Source.PROGRAM: 9}, parts=parts, total_steps=100, epochs=10
    )
    return Outcome(
        run_id=f"r{gpus}{repeat}", job_id=f"{gpus}{repeat}", repeat=repeat, left_out=left_out,
        shape=Shape(nodes=1, gpus=gpus, ranks=gpus), state="COMPLETED",
        timing=Timing() if left_out else timing,
    )  # fmt: skip


def studied(*outcomes: Outcome, about: About = ABOUT, **wanted: Any) -> Scaling:
    return evaluate(about, outcomes, Wanted(**wanted))


EXACT = [
    outcome(gpus, repeat, 10 * (0.1 + 0.9 / gpus), communication_s=0.1)
    for gpus in (4, 1, 2)
    for repeat in (1, 2)
]


def test_a_study_has_speed_up_efficiency_law_and_cost() -> None:
    found = document(studied(*EXACT, efficiency=0.8))
    sizes = found["sizes"]
    assert [row["size"] for row in sizes] == [1, 2, 4]
    assert [row["time_s"]["value"] for row in sizes] == pytest.approx([10, 5.5, 3.25])
    assert [row["speed_up"]["value"] for row in sizes] == pytest.approx([1, 20 / 11, 40 / 13])
    assert [row["efficiency"]["value"] for row in sizes] == pytest.approx([1, 10 / 11, 10 / 13])
    assert sizes[0]["speed_up"] == {"value": 1.0, "low": None, "high": None}
    assert found["law"]["name"] == AMDAHL
    assert found["law"]["serial_fraction"] == pytest.approx(0.1)
    assert (found["largest"], found["largest_is_certain"]) == (2, True)
    # 100 steps of 3.25 s on 4 GPUs.
    assert sizes[2]["full_s"]["value"] == pytest.approx(325)
    assert sizes[2]["device_hours"]["value"] == pytest.approx(4 * 325 / 3600)
    assert (sizes[2]["communication_s"], sizes[2]["compute_s"]) == (0.1, None)
    assert (found["timed"], found["full"]) == (
        "program", {"steps": 100, "from": "the runs' own number of steps"}
    )  # fmt: skip
    assert found["notes"] == []


def test_the_full_training_is_as_long_as_it_is_said_to_be() -> None:
    assert studied(*EXACT, steps=1000).sizes[0].full_s == mean_of([10, 10]).scaled(1000)
    assert studied(*EXACT, epochs=50).steps == 500


def test_weak_scaling_has_gustafsons_law_and_its_own_speed_up() -> None:
    about = About(
        study="s", name="n", weak=True, grow=("batch",), sizes=3, repeats=1, in_turn=False,
        submitted_at=1.0,
    )  # fmt: skip
    # S(p) = p - 0.2 (p - 1), T(p) = 10 p / S(p).
    rows = [outcome(p, 1, 10 * p / (p - 0.2 * (p - 1))) for p in (1, 2, 4)]
    found = studied(*rows, about=about)
    assert [row.speed_up.value for row in found.sizes if row.speed_up] == pytest.approx(
        [1, 1.8, 3.4]
    )
    assert [row.efficiency.value for row in found.sizes if row.efficiency] == pytest.approx(
        [1, 0.9, 0.85]
    )
    assert found.law is not None
    assert (found.law.name, found.law.serial_fraction) == (GUSTAFSON, pytest.approx(0.2))
    last = found.sizes[2]
    assert last.full_s
    assert last.time_s
    assert last.full_s.value == pytest.approx(
        last.time_s.value * 25
    )  # each step is four steps' work
    assert "batch grows with the GPUs" in text(found)


def test_a_run_that_failed_is_left_out_and_said() -> None:
    rows = [*EXACT[:5], outcome(2, 2, 0, "it is FAILED")]
    found = studied(*rows)
    assert [(row.runs, row.of) for row in found.sizes] == [(2, 2), (1, 2), (2, 2)]
    assert found.sizes[1].speed_up == ratio_of([10, 10], [5.5])  # one run: no interval
    assert found.notes == ("job 22 (2, round 2) does not count: it is FAILED",)


def test_without_the_smallest_size_the_next_one_is_compared_with() -> None:
    rows = [row for row in EXACT if row.shape.gpus > 1] + [outcome(1, 1, 0, "it is TIMEOUT")]
    found = studied(*rows)
    assert found.smallest == Shape(nodes=1, gpus=2, ranks=2)
    assert found.sizes[0].time_s is None
    assert any("compared with 2" in line for line in found.notes)
    assert any("1 of 6 runs are not found" in line for line in found.notes)
    assert "-" in text(found)


def test_times_of_two_kinds_are_not_compared() -> None:
    odd = outcome(1, 1, 10.0)
    odd = Outcome(run_id="o", job_id="o", repeat=1, shape=odd.shape, state="COMPLETED",
                  timing=Timing(seconds={Source.WALL: 70.0}))  # fmt: skip
    found = studied(odd, *(row for row in EXACT if row.shape.gpus > 1))
    assert found.source is Source.WALL
    assert found.sizes[0].parts["communication_s"] is None
    assert "the whole run" in text(found)
    assert found.steps is None


def test_one_run_of_each_size_has_no_interval_and_says_so() -> None:
    found = studied(*(row for row in EXACT if row.repeat == 1))
    assert found.sizes[1].efficiency == mean_of([10 / 11])
    assert any("so no intervals" in line for line in found.notes)
    assert "±" not in text(found).partition("Amdahl")[0]
    assert document(found)["largest_is_certain"] is None


def test_no_run_at_all_is_no_figure() -> None:
    found = studied(outcome(1, 1, 0, "it is FAILED"), outcome(2, 1, 0, "it is PENDING"))
    assert (found.source, found.law, found.largest) == (None, None, None)
    assert "No run counts" in text(found)
    assert document(found)["sizes"][0]["time_s"]["value"] is None


def test_the_csv_has_a_row_of_figures_for_each_size() -> None:
    lines = as_csv(studied(*EXACT)).splitlines()
    heads = lines[0].split(",")
    assert {"size", "time_s", "time_s_low", "speed_up", "efficiency", "communication_s"} <= {*heads}
    assert len(lines) == 4
    assert dict(zip(heads, lines[2].split(","), strict=True))["time_s"] == "5.5"


def test_no_text_in_the_csv_is_a_formula_or_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"label": "=1+1", "size": 2}, {"label": "\x1b[2J", "size": -1}]
    monkeypatch.setattr("hpckit.scaling.document.document", lambda _found: {"sizes": rows})
    assert as_csv(studied(*EXACT)) == "label,size\n'=1+1,2\n\\x1b[2J,-1\n"


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        *((3.37, "337 %"), (0.996, "100 %"), (0.1, "10 %"), (0.01234, "1.2 %"), (-0.5, "-50 %")),
        *((0.0000123, "0.0012 %"), (3e-17, "0 %"), (-1e-9, "0 %")),
    ],
)
def test_a_share_of_serial_work_has_no_exponent(share: float, shown: str) -> None:
    assert _percent(share) == shown
