"""The wave_inversion workload, run as users run it: real ranks, killed ones, resumed runs."""

import re
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("deepwave")
pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

import numpy as np
import torch

from tests.workloads.processes import (
    complaint,
    cut,
    finish,
    losses,
    records,
    start,
    start_ranks,
    wait_for_steps,
)

pytestmark = pytest.mark.torch
NAME = "wave_inversion"
GRID = ("--shape", "60,40", "--nt", 80, "--taper", 20, "--receivers", 20, "--smooth", 5)
EIGHT = (*GRID, "--shots", 8, "--gradient")
DESCENT = (*GRID, "--shots", 3, "--frequencies", "10,20", "--iterations", 2)
LONG = (*GRID, "--shots", 4, "--steps", 200)


@pytest.fixture(scope="module")
def gradient(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The gradient of one process on one device."""
    out = tmp_path_factory.mktemp("gradient")
    finish(start(NAME, *EIGHT, "--out", out, OMP_NUM_THREADS=1))
    return np.load(out / "gradient.npy")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of an inversion by one process, and what it printed."""
    out = tmp_path_factory.mktemp("alone")
    return out, finish(start(NAME, *DESCENT, "--out", out, OMP_NUM_THREADS=1))


@pytest.mark.parametrize(("ranks", "devices"), [(1, "cpu:2"), (2, "auto"), (3, "cpu:2")])
def test_gradient_of_ranks_and_replicas(
    ranks: int, devices: str, gradient: np.ndarray, tmp_path: Path
) -> None:
    words = (*EIGHT, "--devices", devices, "--out", tmp_path)
    finish(*(start_ranks(ranks, *words, workload=NAME) if ranks > 1 else [start(NAME, *words)]))
    found = np.load(tmp_path / "gradient.npy")
    assert found.shape == (60, 40)
    assert np.linalg.norm(found - gradient) < 1e-6 * np.linalg.norm(gradient)
    assert (tmp_path / "gradient.png").read_bytes().startswith(b"\x89PNG")


def test_inversion_explains_the_traces_and_comes_nearer_to_the_truth(
    alone: tuple[Path, str],
) -> None:
    out, printed = alone
    first, *steps = records(out, "model_error")
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert all(row["loss"] < row["loss_before"] for row in steps)
    assert steps[-1]["model_error"] < 0.95 * first["model_error"]
    said = f"{first['model_error']:.1f} -> {steps[-1]['model_error']:.1f} m/s after 4 steps"
    assert printed.splitlines()[-1] == f"model error {said}, 1 replica in one process (cpu)"
    assert "inverse crime" in printed
    assert np.load(out / "model.npy").shape == (60, 40)
    assert {"models.png", "misfit.png", "metrics.jsonl"} <= {path.name for path in out.iterdir()}


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_take_the_same_way_also_those_without_shots(
    ranks: int, alone: tuple[Path, str], tmp_path: Path
) -> None:
    printed = finish(*start_ranks(ranks, *DESCENT, "--out", tmp_path, workload=NAME))
    assert records(tmp_path, "devices")[-1]["devices"] == f"{ranks}xCPU"
    assert f"{ranks} ranks on 1 host (cpu, gloo), {3 // ranks} or {3 // ranks + 1} shots" in printed
    assert losses(tmp_path) == [(at, pytest.approx(x, rel=1e-9)) for at, x in losses(alone[0])]
    one, other = (np.load(folder / "model.npy") for folder in (alone[0], tmp_path))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_a_signal_stops_it_and_other_ranks_go_on(alone: tuple[Path, str], tmp_path: Path) -> None:
    told = (*DESCENT, "--checkpoint-every", 0, "--out", tmp_path)
    printed = cut(lambda: [start(NAME, *told)], tmp_path, signal.SIGUSR2, after=1, of=4)
    said = re.search(r"^stopped at step (\d), checkpoint saved$", printed, re.MULTILINE)
    assert said
    assert losses(tmp_path)[-1][0] == int(said[1]) < 4
    more = ("--devices", "cpu:2", "--out", tmp_path)
    printed = finish(*start_ranks(2, *DESCENT, *more, workload=NAME))
    assert records(tmp_path, "devices")[-1]["devices"] == "4xCPU", "two ranks of two replicas"
    assert f"resuming after step {said[1]} of 4" in printed
    assert losses(tmp_path) == [(at, pytest.approx(x, rel=1e-9)) for at, x in losses(alone[0])]


def test_a_run_goes_on_only_with_the_same_words(alone: tuple[Path, str]) -> None:
    said = complaint(start(NAME, *DESCENT, "--noise", 0.1, "--out", alone[0]))
    assert "checkpoints/last.pt was made with --noise 0.0, not 0.1" in said


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_ends_the_other_with_one_line(killed: int, tmp_path: Path) -> None:
    ranks = start_ranks(2, *LONG, "--out", tmp_path, workload=NAME)
    wait_for_steps(tmp_path, 1)
    ranks[killed].kill()
    said = complaint(ranks[1 - killed])
    expected = f"train.py: error: rank {1 - killed}: the ranks have lost each other: one has ended"
    assert said.startswith(expected)
    ranks[killed].communicate()


def test_what_one_rank_finds_wrong_is_said_once(tmp_path: Path) -> None:
    traces = np.ones((4, 20, 80), np.float32)
    traces[3, 5, 7] = np.inf  # the second rank's
    np.save(tmp_path / "traces.npy", traces)
    np.save(tmp_path / "start.npy", np.full((60, 40), 1800.0))
    words = ("--observed", tmp_path / "traces.npy", "--start", tmp_path / "start.npy")
    ranks = start_ranks(2, *GRID, "--shots", 4, *words, "--out", tmp_path / "o", workload=NAME)
    said = complaint(ranks[1])
    assert said.startswith("train.py: error: rank 1: --observed: shot 3 ")
    assert (ranks[0].communicate(timeout=280)[1], ranks[0].returncode) == ("", 1)


@pytest.mark.parametrize(
    ("of_rank_1", "fault"),
    [
        (("--velocity", "other.npy"), "the digest of --velocity is [0-9a-f]+, but for rank 0 it"),
        (("--observed", "recorded.npy"), "the digest of some traces of --observed is "),
        (("--nt", 90), "nt is 90, but for rank 0 it is 80"),
        # As where a node has the same file at another place.
        (("--velocity", "copy.npy"), None),
    ],
)
def test_a_rank_that_would_invert_something_else_is_named(
    of_rank_1: tuple[object, ...], fault: str | None, tmp_path: Path
) -> None:
    """Its shots' gradients would be of another model, and the misfits would not tell."""
    for name, speed in (("velocity", 1800.0), ("copy", 1800.0), ("other", 1900.0)):
        np.save(tmp_path / f"{name}.npy", np.full((60, 40), speed))
    traces = np.random.default_rng(0).normal(size=(2, 20, 80)).astype(np.float32)
    np.save(tmp_path / "traces.npy", traces)
    np.save(tmp_path / "recorded.npy", traces[::-1])
    flag, value = of_rank_1
    more = (flag, tmp_path / value if isinstance(value, str) else value)
    words = (*GRID, "--shots", 2, "--gradient", "--velocity", tmp_path / "velocity.npy")
    if flag == "--observed":
        words += ("--observed", tmp_path / "traces.npy")
    ranks = start_ranks(
        2, *words, "--out", tmp_path / "o", workload=NAME, of_each=lambda rank: more if rank else ()
    )
    if fault is None:
        assert "2 ranks on 1 host" in finish(*ranks)
        return
    said = complaint(ranks[1])
    assert re.match(rf"train\.py: error: rank 1: on \S+, {fault}.*give all ranks the same", said)
    assert (ranks[0].communicate(timeout=280)[1], ranks[0].returncode) == ("", 1)


def test_recorded_traces_without_a_known_truth(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.save(tmp_path / "traces.npy", random.normal(size=(2, 20, 80)).astype(np.float32))
    np.save(tmp_path / "start.npy", np.full((60, 40), 1800.0))
    files = ("--observed", tmp_path / "traces.npy", "--start", tmp_path / "start.npy")
    few = ("--shots", 2, "--frequencies", 20, "--steps", 1, "--iterations", 1)
    printed = finish(start(NAME, *GRID, *files, *few, "--out", tmp_path / "out"))
    assert "model error" not in printed
    assert printed.splitlines()[-1] == "1 step done, 1 replica in one process (cpu)"
    assert not records(tmp_path / "out", "model_error")


@pytest.mark.parametrize(
    ("words", "variables", "what"),
    [
        (("--devices", "cuda"), {}, "No device matches 'cuda'. Available: cpu"),
        ((), {"HPCKIT_DEVICE": "cuda"}, "HPCKIT_DEVICE is cuda but torch sees no GPU"),
        (("--shape", "60"), {}, "--shape: must be two numbers NX,NZ, such as 600,250, not 60"),
        (("--shape", "a"), {}, "--shape: must be two numbers NX,NZ, such as 600,250, not a"),
        (("--frequencies", "abc"), {}, "--frequencies: must be numbers such as 10,15,20, not abc"),
        (("--seed", "-1"), {}, "--seed: must be at least 0, not -1"),
        (("--v-max", "inf"), {}, "--v-max: must be a finite number, not inf"),
    ],
)
def test_a_mistake_gets_one_line(
    words: tuple[str, ...], variables: dict[str, str], what: str, tmp_path: Path
) -> None:
    if torch.cuda.is_available() and "cuda" in (*words, *variables.values()):
        pytest.skip("this machine has a GPU")
    said = complaint(start(NAME, *words, "--out", tmp_path / "out", **variables))
    assert said.startswith("train.py: error: ")
    assert what in said
