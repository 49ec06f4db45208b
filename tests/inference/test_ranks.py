"""VI on several MPI ranks: the same numbers on any number of them, and no rank left waiting."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("mpi4py")
pytest.importorskip("networkx")

import numpy

from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks
from hpckit.run_folders.metrics import METRICS, all_rows, counted_rows
from tests.inference.ranks import WORKLOAD, alone, ended, environment, mpich, start

pytestmark = pytest.mark.torch
SMALL = ("--n_agents", 100, "--n_timesteps", 10, "--n-samples-regularisation", 2600,
         "--posterior-samples", 20, "--no-figures")  # fmt: skip


def losses(out: Path) -> list[tuple[float, float]]:
    rows = counted_rows(all_rows(out / METRICS))
    return [(row["loss"], row["regularisation"]) for row in rows]


def fitted(out: Path, ranks: int, *words: object, **options: object) -> list[tuple[float, float]]:
    given = (*SMALL, *words, "--out", out)
    process = alone(*given) if ranks == 1 else start(ranks, WORKLOAD, *given, **options)
    status, said, complaints = ended(process)
    assert (status, complaints) == (0, "")
    assert f"{ranks} rank{'s' if ranks > 1 else ''} (cpu)" in said
    return losses(out)


def test_losses_do_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    """Odd counts: 7 samples and 2 blocks of draws, on 1 to 3 ranks of two MPIs (4: on Slurm)."""
    words = ("--n_epochs", 6, "--n_samples_per_epoch", 7)
    expected = fitted(tmp_path / "1", 1, *words)
    assert len(expected) == 6
    assert fitted(tmp_path / "3", 3, *words) == [pytest.approx(row, rel=1e-6) for row in expected]
    other = {"launcher": (mpich() / "mpirun", "-n"), "python": mpich() / "python"}
    # MPICH waits busily: two ranks for two cores.
    found = fitted(tmp_path / "2", 2, *words, **other)
    assert found == [pytest.approx(row, rel=1e-6) for row in expected]


def test_a_fit_goes_on_with_another_number_of_ranks_and_stops_early_on_all(tmp_path: Path) -> None:
    words = ("--method", "score", "--estimator", "gaussian")
    whole = fitted(tmp_path / "whole", 1, "--n_epochs", 9, *words)
    fitted(tmp_path / "cut", 3, "--n_epochs", 500, *words, "--lr", 0.001, "--patience", 1)
    done = len(losses(tmp_path / "cut"))
    assert 1 < done < 9
    assert fitted(tmp_path / "cut", 2, "--n_epochs", 9, *words) == [
        pytest.approx(row, rel=1e-6) for row in whole
    ]


@pytest.mark.parametrize("how", ["raised", "killed"])
def test_a_rank_that_fails_ends_all(how: str) -> None:
    status, _, said = ended(start(3, Path(__file__).with_name("failing.py"), how))
    assert status != 0
    if how == "raised":
        assert said.count("ZeroDivisionError: the simulator of rank 1") == 1
        assert said.count("Traceback") == 1
        assert "rank 1 of 3:" in said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("raised", "step"), "ZeroDivisionError: the simulator of rank 1"),
        (("raised", "share"), "ZeroDivisionError: division by zero"),
        (("exited", "run"), "rank 1 of 3 ended alone: SystemExit('no luck')"),
        (("interrupted", "step"), "rank 1 of 3 ended alone: KeyboardInterrupt()"),
    ],
    ids=["step", "share", "exit", "interrupted"],
)
def test_whatever_ends_a_rank_ends_all(words: tuple[str, str], line: str) -> None:
    """Else the others would wait for it for ever, and it for them, in MPI_Finalize."""
    status, _, said = ended(start(3, Path(__file__).with_name("failing.py"), *words))
    assert status != 0
    assert said.count(line) == 1


@pytest.mark.parametrize(
    ("what", "how", "named"),
    [
        ("data", "compared", "the data"),
        ("graph", "compared", "the contacts of the simulator"),
        ("nothing", "compared", None),
        ("data", "as it is", None),
    ],
)
def test_ranks_with_data_of_their_own_are_one_clear_error(
    what: str, how: str, named: str | None
) -> None:
    status, _, said = ended(start(2, Path(__file__).with_name("unequal.py"), what, how))
    assert (status != 0) == (named is not None)
    assert "Traceback" not in said
    if named:
        assert said.count("error: rank") == 1
        assert f"error: rank 0: not the same on rank 1 as on rank 0: {named}. Make this" in said


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("gradient_clipping_norm", "gradient_clipping_norm"),  # their weights would part
        ("resume", "resume"),  # they would wait for different messages
        ("horizon", "the gradient horizon of the loss"),
    ],
)
def test_ranks_with_settings_of_their_own_are_one_clear_error(what: str, named: str) -> None:
    status, _, said = ended(start(2, Path(__file__).with_name("unequal.py"), what, "compared"))
    assert status != 0
    assert said.count("error: rank") == 1
    assert f"not the same on rank 1 as on rank 0: {named}. Give all ranks the same" in said


def test_the_workload_compares_its_arguments_before_all_else(tmp_path: Path) -> None:
    """Ranks of two models would take each other's messages for something else."""
    script = tmp_path / "of_rank_1.py"
    script.write_text(
        "import os, runpy, sys\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n"
        "    sys.argv += ['--model', 'random_walk', '--n-epochs', '3']\n"
        f"sys.path.insert(0, {str(WORKLOAD.parent)!r})\n"
        f"runpy.run_path({str(WORKLOAD)!r}, run_name='__main__')\n"
    )
    status, _, said = ended(start(2, script, "--n-agents", 20, "--out", tmp_path))
    assert status != 0
    fault = "not the same on rank 1 as on rank 0: --model, --n-epochs. Give all ranks the same\n"
    assert f"error: rank 0: {fault}" in said
    assert "VI(" not in said


def test_arrays_of_any_kind_are_shared_in_messages_of_limited_size(tmp_path: Path) -> None:
    """MPI itself has no words, dates or float16, and older ones no message of 2 GiB."""
    script = tmp_path / "small.py"
    shared = Path(__file__).with_name("shared.py").read_text()
    script.write_text(f"import hpckit.parallel.mpi as mpi\nmpi._MOST_BYTES = 10\n{shared}")
    status, said, told = ended(start(2, script))
    assert (status, said.count("all are the same")) == (0, 2), told


def test_what_cannot_be_shared_is_told() -> None:
    for wrong, words in (
        (None, "it returned a NoneType"),
        (numpy.float64(3), "it returned a float64"),
        ("word", "it returned a str"),
        ([numpy.array([None])], "number 0 in the list contains objects"),
    ):
        with pytest.raises(SetupError, match=f"returns a list of arrays.* {words}"):
            Ranks().share(lambda wrong=wrong: wrong)


@pytest.mark.parametrize("how", ["raise", "3", "0"])
def test_hpckit_runs_scripts_so_that_a_rank_that_fails_ends_all(how: str, tmp_path: Path) -> None:
    """By MPICH's mpirun here; by Open MPI's and by srun on Slurm. MPI_Finalize would wait."""
    script = Path(__file__).parent.parent / "scripts" / "mpi_fail.py"
    hpckit = (Path(sys.executable).with_name("hpckit"), "submit", "mpi", script)
    options = ("--executor", "local", "--tasks-per-node", "2", "--env", mpich().parent, "--wait",
               "--json", "--runs", tmp_path, "--sample-interval", "0")  # fmt: skip
    environ = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    done = subprocess.run(
        [*hpckit, *options, "--", how],
        env=environ, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    code = {"raise": 1}.get(how) or int(how)
    record = json.loads(done.stdout)
    assert (done.returncode, record["exit_code"]) == (1 if code else 0, code)
    through = {path.name for path in Path(record["run_dir"]).glob("through-*")}
    assert through == (set() if code else {"through-0"})
    (failed,) = json.loads(Path(record["run_dir"], "ranks", "1.json").read_text())["attempts"]
    assert failed["exit_code"] == code
    assert ("ValueError: no luck on rank 1" in (failed["error"] or "")) == (how == "raise")


@pytest.mark.parametrize("ours", [True, False], ids=["MPICH's mpirun", "MPICH's library"])
def test_two_mpis_mixed_are_one_clear_error(ours: bool, tmp_path: Path) -> None:
    other = {"launcher": (mpich() / "mpirun", "-n")} if ours else {"python": mpich() / "python"}
    status, _, said = ended(start(2, WORKLOAD, *SMALL, "--out", tmp_path, **other))
    assert status != 0
    assert ("loads Open MPI v" if ours else "loads MPICH Version: ") in said
    assert "two MPIs are mixed" in said
    assert "Traceback" not in said
    assert not (tmp_path / "metrics.jsonl").exists()


def test_ranks_that_do_not_meet_are_one_clear_error(tmp_path: Path) -> None:
    """What srun without --mpi does: four processes, each of which believes to be alone."""
    bare = ("env", "RANK=0", "WORLD_SIZE=4", "nice", "-n")
    status, _, said = ended(start(0, WORKLOAD, *SMALL, "--out", tmp_path, launcher=bare))
    assert status == 1
    assert said.startswith("train.py: error: hpckit started 4 ranks, but MPI (Open MPI")
    assert "sees 1" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--device_ids", "cuda:0"), "error: rank 0: No device matches 'cuda:0'. Available: cpu"),
        (("--device_ids", "cpu", "cpu"), "error: rank 0: 2 devices (cpu cpu) for 3 ranks"),
    ],
)
def test_devices_that_are_not_there(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    status, _, said = ended(start(3, WORKLOAD, *SMALL, *words, "--out", tmp_path))
    assert status != 0
    assert expected in said
    assert said.count("error: rank") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--gradient-horizon", "some"), "--gradient-horizon 'some': give a number of steps"),
        (("--n_agents", 5), "--n-agents 5: each has 10 neighbours"),
        (("--device_ids", "gpu9"), "'gpu9' is not a device. Write cpu, cpu:4, cuda:0"),
        (("--lr", 1e20, "--n_epochs", 9), "try a smaller learning rate"),
    ],
)
def test_one_process_alone_says_it_in_one_line(
    words: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    small = [*SMALL]
    if words[0] == "--n_agents":
        small = small[2:]
    status, _, said = ended(alone(*small, *words, "--out", tmp_path))
    assert status == 1
    assert said.startswith("train.py: error: ")
    assert expected in said
    assert said.count("\n") == 1


def test_the_example_of_a_simulator_of_ones_own_finds_what_it_hid() -> None:
    example = WORKLOAD.parents[2] / "examples" / "inference" / "own_simulator.py"
    status, said, complaints = ended(start(2, example, fresh=True))
    assert (status, complaints) == (0, "")
    found = re.findall(r"(-?\d+\.\d+) \+- (\d+\.\d+)   \(true (-?\d+\.\d+)\)", said)
    assert len(found) == 2
    for mean, spread, true in found:
        assert abs(float(mean) - float(true)) < 4 * float(spread) < 0.6
