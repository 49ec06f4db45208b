"""The parts of wave_inversion in this process: filter, models, gradients, what is refused."""

import sys
from argparse import Namespace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("deepwave")
pytest.importorskip("scipy")

import deepwave
import torch
from scipy import signal

from hpckit.parallel.devices import find_replicas
from hpckit.parallel.errors import SetupError
from hpckit.parallel.ranks import Rank
from tests.workloads.processes import WORKLOADS

sys.path.insert(0, str(WORKLOADS / "wave_inversion"))
from fwi.filters import LowPass, end_taper
from fwi.inversion import Inversion, Objective, Plan
from fwi.shots import Replicas, Solver
from fwi.survey import Survey, share, some_traces
from fwi.team import Team
from fwi.velocity import Bounds, layered, rms_difference, smoothed

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
SURVEY = Survey(
    nx=40, nz=30, dx=4.0, dt=0.004, nt=80, shots=8, receivers=20, frequency=25.0, taper=20
)
BOUNDS = Bounds(1000.0, 2500.0)
TRUTH = layered((40, 30), seed=1)
START = torch.from_numpy(smoothed(TRUTH, 4))


def solver(dtype: torch.dtype = torch.float32, at_once: int = 0) -> Solver:
    return Solver(SURVEY, BOUNDS.high, at_once, dtype)


def working(numbers: range = range(8), devices: str = "cpu", how: Solver | None = None) -> Replicas:
    """Shots that know what the true model sounds like."""
    replicas = Replicas(how or solver(), numbers, find_replicas(devices))
    replicas.simulate(torch.from_numpy(TRUTH), noise=0.1, seed=3)
    return replicas


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("cutoff", [5.0, 10.0, 30.0, 124.0])
@pytest.mark.parametrize("nt", [2, 199, 300])
def test_the_filter_is_scipys(cutoff: float, nt: int) -> None:
    traces = np.random.default_rng(0).normal(size=(3, 4, nt))
    sections = signal.butter(6, cutoff, fs=250, output="sos")
    found = LowPass(cutoff, 0.004, nt, CPU)(torch.from_numpy(traces)).numpy()
    np.testing.assert_allclose(found, signal.sosfilt(sections, traces), rtol=0, atol=1e-12)


def test_the_filter_can_be_differentiated() -> None:
    traces = torch.randn(2, 40, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LowPass(12.0, 0.004, 40, CPU), (traces,))


def test_no_cutoff_is_no_filter_and_no_taper_is_none() -> None:
    traces = torch.randn(2, 40, dtype=torch.float64)
    assert torch.equal(LowPass(0, 0.004, 40, CPU)(traces), traces)
    assert LowPass(10.0, 0.004, 40, CPU)(traces[:0]).shape == (0, 40)
    assert torch.equal(end_taper(40, 0, CPU), torch.ones(40, dtype=torch.float64))
    weights = end_taper(40, 10, CPU)
    assert torch.equal(weights[:30], torch.ones(30, dtype=torch.float64))
    assert bool((weights.diff()[29:] < 0).all())
    assert float(weights[-1]) == pytest.approx(0, abs=1e-30)


def test_velocities_stay_in_their_bounds_and_have_the_slope_autograd_finds() -> None:
    parameters = torch.linspace(-50, 50, 101, dtype=torch.float64, requires_grad=True)
    velocity = BOUNDS.velocity(parameters)
    assert float(velocity.detach().min()) >= 1000
    assert float(velocity.detach().max()) <= 2500
    (slope,) = torch.autograd.grad(velocity.sum(), parameters)
    torch.testing.assert_close(BOUNDS.slope(parameters.detach()), slope)
    torch.testing.assert_close(BOUNDS.velocity(BOUNDS.parameters(START)), START)


@pytest.mark.parametrize("shots", [0, 1, 5, 8, 17])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 20])
def test_each_shot_belongs_to_one_part(shots: int, parts: int) -> None:
    shares = [share(range(shots), parts, part) for part in range(parts)]
    assert [number for one in shares for number in one] == list(range(shots))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    cut = torch.arange(shots).tensor_split(parts)
    assert [list(one) for one in shares] == [part.tolist() for part in cut]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-11), (torch.float32, 5e-6)])
def test_the_gradient_is_deepwaves_own(dtype: torch.dtype, bound: float) -> None:
    """Of all shots with one model, as one would write it without this workload."""
    shots = working(how=solver(dtype))
    sums, gradient = shots.misfit(START, 20.0)
    model = START.to(dtype).clone().requires_grad_()
    wavelet = deepwave.wavelets.ricker(25, 80, 0.004, 1.5 / 25).to(dtype)
    traces = deepwave.scalar(
        model,
        4.0,
        0.004,
        source_amplitudes=wavelet.repeat(8, 1, 1),
        source_locations=SURVEY.sources_at(range(8)),
        receiver_locations=SURVEY.receivers_at(range(8)),
        max_vel=2500,
        pml_freq=25,
        time_pad_frac=0.2,
    ).receiver_amplitudes
    tapered = (traces - shots.shots[0].observed).double() * end_taper(80, 20, CPU)
    # The filter as a matrix: row k is what an impulse at sample k becomes.
    filtered = signal.sosfilt(signal.butter(6, 20.0, fs=250, output="sos"), np.eye(80))
    loss = (tapered @ torch.from_numpy(filtered)).square().sum()
    (expected,) = torch.autograd.grad(loss, model)
    assert float(sums.sum()) == pytest.approx(float(loss.detach()), rel=bound)
    assert relative(gradient, expected.double()) < bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cuts", [(4,), (3, 6), (0, 1, 8), (1, 2, 3, 4, 5, 6, 7)])
def test_any_cut_of_the_shots_has_the_same_gradient(
    dtype: torch.dtype, cuts: tuple[int, ...]
) -> None:
    sums, gradient = working(how=solver(dtype)).misfit(START, 15.0)
    parts = [
        working(range(begin, end), how=solver(dtype)).misfit(START, 15.0)
        for begin, end in pairwise((0, *cuts, 8))
    ]
    exact = dtype == torch.float64
    assert relative(sum(part for part, _ in parts), sums) < (1e-14 if exact else 1e-7)
    assert relative(sum(part for _, part in parts), gradient) < (1e-13 if exact else 1e-6)


@pytest.mark.parametrize("devices", ["cpu:2", "cpu:3", "cpu:9"])
def test_replicas_and_small_portions_have_the_same_gradient(devices: str) -> None:
    sums, gradient = working().misfit(START, 15.0)
    again, split = working(devices=devices, how=solver(at_once=2)).misfit(START, 15.0)
    assert relative(again, sums) < 1e-7
    assert relative(split, gradient) < 1e-6


def test_the_gradient_is_that_of_the_misfit() -> None:
    """Nearly: deepwave's integral over time takes every sample, not every one of its own steps."""
    shots = working(how=solver(torch.float64))
    way = torch.randn(START.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    above, _ = shots.misfit(START + 0.01 * way, 15.0)
    below, _ = shots.misfit(START - 0.01 * way, 15.0)
    _, gradient = shots.misfit(START, 15.0)
    assert float((above - below).sum() / 0.02) == pytest.approx(
        float((gradient * way).sum()), rel=0.05
    )


def inversion(shots: Replicas, plan: Plan) -> Inversion:
    team = Team(Rank(0, 1, CPU, "here"), shots, (8, 40, 30))
    return Inversion(plan, BOUNDS, START, Objective(team))


def test_inversion_comes_nearer_to_the_truth_and_resumes_to_the_bit() -> None:
    plan = Plan((10.0, 25.0), steps=2, iterations=3)
    one = inversion(working(), plan)
    misfits, halfway = [], None
    while one.step < plan.total_steps:
        misfits.append(one.advance())
        if one.step == 3:
            halfway = one.state()
    assert all(after < before for before, after in misfits)
    start = rms_difference(START.numpy(), TRUTH)
    assert rms_difference(one.velocity.numpy(), TRUTH) < 0.95 * start

    other = inversion(working(), plan)
    other.load_state(halfway)
    other.advance()
    assert torch.equal(other.velocity, one.velocity)


def test_a_misfit_that_is_no_number_is_an_error() -> None:
    shots = Replicas(solver(), range(8), find_replicas("cpu"))
    shots.observe(np.full((8, 20, 80), 3e38, dtype=np.float32))
    with pytest.raises(
        SetupError, match=r"misfit is .* at gradient 1, or its gradient is not finite"
    ):
        inversion(shots, Plan((0.0,), 1, 1)).advance()


def test_silence_is_an_error() -> None:
    shots = Replicas(solver(), range(8), find_replicas("cpu"))
    with pytest.raises(SetupError, match="observed traces have the energy 0 below 10 Hz"):
        inversion(shots, Plan((10.0,), 1, 1)).advance()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    bad = TRUTH.copy()
    bad[3, 4] = np.nan
    np.save(tmp_path / "nan.npy", bad)
    np.save(tmp_path / "good.npy", TRUTH)
    np.save(tmp_path / "kms.npy", TRUTH / 1000)
    np.save(tmp_path / "cube.npy", TRUTH[None])
    np.save(tmp_path / "empty.npy", np.zeros((0, 24)))
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "traces.npy", np.zeros((8, 50, 199), np.float32))
    (tmp_path / "words.npy").write_text("no array")
    TRUTH.astype("<f4").tofile(tmp_path / "good.bin")
    (tmp_path / "torn.bin").write_bytes(b"\0" * 4799)
    return tmp_path


def arguments(*words: str) -> Namespace:
    import train

    return train.make_parser().parse_args([*words])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--velocity nan.npy", "1 of 1200 velocities are not finite numbers"),
        ("--velocity kms.npy", "to 2.* m/s, are not inside --v-min 1000 .*km/s"),
        ("--velocity cube.npy", "of shape .1, 40, 30., not NX,NZ numbers"),
        ("--velocity empty.npy", "of shape .0, 24., not NX,NZ numbers"),
        ("--velocity text.npy", "not NX,NZ numbers"),
        ("--velocity pickle.npy", "pickle.npy cannot be read: Object arrays cannot be loaded"),
        ("--velocity none.npy", "none.npy cannot be read: .*No such file"),
        ("--velocity words.npy", "words.npy cannot be read: it is not a .npy file"),
        ("--observed words.npy --start good.npy --receivers 9", "words.npy cannot be read: it is"),
        ("--window 20,10", "--window cuts the files of --velocity and --start: give one, or --sh"),
        ("--smooth 1e9", "--smooth 1e[+]09 is far more than the 150,80 cells .* at most 1500"),
        ("--velocity good.bin", "give its --shape NX,NZ, or a .npy file"),
        ("--velocity torn.bin --shape 40,30", "4799 bytes; --shape 40,30 needs 4800 of float32"),
        ("--velocity good.npy --shape 30,40", "has 40,30 cells, not --shape 30,40"),
        ("--velocity good.npy --window 41,30", "--window 41,30 is larger than the 40,30 cells"),
        ("--velocity good.npy --start good.bin --shape 40,30 --v-max 1800", "are not inside"),
        ("--v-min 3000", "--v-min 3000 is not below --v-max 2500"),
        ("--observed traces.npy", "--observed without --velocity needs a --start model"),
        (
            "--observed traces.npy --start good.npy --receivers 40",
            "--receivers, --nt. = .8, 40, 200",
        ),
        ("--receivers 151", "--receivers 151 do not fit into 150 cells"),
        ("--nt 50", "--taper 50 leaves nothing of --nt 50 samples"),
        *(
            (f"--frequencies {word}", "each must be at least 0 .no filter. and below 125 Hz")
            for word in ("10,125", "nan", "-5")
        ),
        ("--dx 10", "1500 m/s at 50 Hz, are 30 m long and need 4 cells"),
        ("--dt 0.02 --frequencies 10", "--dt 0.02 is too long for --frequency 25: at most 0.01"),
        ("--shape 9,2 --receivers 5", "2 cells deep is too shallow"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    words: str, what: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import train

    monkeypatch.chdir(files)
    with pytest.raises(SetupError, match=what) as refused:
        train.make_task(arguments(*words.split()))
    assert "\n" not in str(refused.value)


def test_the_check_of_the_grid_can_be_switched_off() -> None:
    import train

    assert train.make_task(arguments("--dx", "10", "--skip-grid-check")).survey.dx == 10


@pytest.mark.parametrize(("shots", "receivers", "count"), [(1, 1, 1), (2, 5, 5), (100, 40, 16)])
def test_some_traces_are_from_all_over_a_recording(shots: int, receivers: int, count: int) -> None:
    numbers = np.arange(shots * receivers, dtype=np.float32).reshape(shots, receivers, 1)
    found = some_traces(numbers)[:, 0].tolist()
    assert len(found) == len(set(found)) == count
    assert (found[0], found[-1]) == (0, shots * receivers - 1)


def test_raw_and_npy_files_are_the_same_model(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import train

    monkeypatch.chdir(files)
    words = ["--receivers", "9", "--smooth", "0", "--window", "20,10"]
    raw = train.make_task(arguments("--velocity", "good.bin", "--shape", "40,30", *words))
    npy = train.make_task(arguments("--velocity", "good.npy", *words))
    assert npy.start.shape == (20, 10)
    np.testing.assert_allclose(raw.truth, TRUTH[:20, :10], rtol=1e-7)
    np.testing.assert_array_equal(npy.truth, TRUTH[:20, :10])


def test_several_ranks_cannot_name_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    import train

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(SetupError, match="each of 2 ranks has a GPU of its own already"):
        train.find_devices(["GPU:*"], Rank(0, 2, torch.device("cuda", 0), "here"))
