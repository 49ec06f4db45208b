"""The checks of training and inference on a GPU, made dry: on the CPU, through the same lines."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.gpu import chips
from tests.gpu.checks import Recorder
from tests.gpu.runs import Ended, Run, deviation
from tests.gpu.test_device_bench import tell_best, told
from tests.gpu.test_training import compare
from tests.pages import ROOT

pytestmark = pytest.mark.torch


WORDS = """test_ddp or test_one_process or test_microbatches or test_same_noise or test_refused
or test_compiled or device_bench or speed or test_fit or test_large or test_wave"""
# Of these, limits hold in a dry run, too: the CPU is compared with itself.
EXACT = {"test_ddp": 3, "test_ddp_models": 2, "test_one_process": 2, "test_microbatches": 5,
         "test_same_noise": 4}  # fmt: skip


@pytest.mark.long
def test_all_run_dry_and_those_of_losses_keep_their_limits(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.gpu", "--dry", "--out", str(tmp_path)]
    done = subprocess.run(
        [*argv, "-k", " ".join(WORDS.split())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=550,
    )
    document = json.loads((tmp_path / "gpu-report.json").read_text())
    assert document["not_made"] == [], done.stdout + done.stderr
    checks = {row["id"].rpartition("::")[2]: row for row in document["checks"]}
    others = {"test_device_bench", "test_ddp_speed", "test_mirrored_speed", "test_fit",
              "test_large", "test_wave", "test_refused", "test_compiled"}  # fmt: skip
    assert checks.keys() == EXACT.keys() | others
    bad = [row for row in checks.values() if row["verdict"] not in ("passed", "not here")]
    assert bad == []
    for name, count in EXACT.items():
        figures = checks[name]["figures"]
        assert len(figures) == count, name
        for row in figures:
            assert row["limit"].startswith("<= "), row
            assert row["value"] <= float(row["limit"].removeprefix("<= ")), row


def ended(folder: Path, losses: list[float], status: int = 0) -> Ended:
    folder.mkdir()
    rows = [json.dumps({"step": at + 1, "epoch": 1, "loss": x}) for at, x in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    said = "Traceback\nCUDA error: out of memory\n" if status else ""
    return Ended(Run(name=folder.name), folder, CompletedProcess([], status, "", said))


def test_a_curve_that_is_off_fails(tmp_path: Path) -> None:
    runs = {
        "cpu": ended(tmp_path / "cpu", [2.0, 1.0]),
        "near": ended(tmp_path / "near", [2.0, 1.00005]),
        "off": ended(tmp_path / "off", [2.0, 1.01]),
        "short": ended(tmp_path / "short", [2.0]),
        "none": ended(tmp_path / "none", []),
        "nan": ended(tmp_path / "nan", [2.0, float("nan")]),
        "dead": ended(tmp_path / "dead", [], status=1),
    }
    report = Recorder()
    compare(report, runs, [(name, "cpu", 1e-4) for name in runs])
    misses = {line.partition(":")[0]: line for line in report.misses()}
    assert misses.keys() == {"off", "short", "none", "nan", "dead"}
    assert misses["dead"].startswith("dead: status 1: CUDA error: out of memory")
    assert misses["off"].startswith("off: largest difference of 2 losses: 0.01, and the limit is")


def test_a_program_that_fails_fails_a_dry_check_too(tmp_path: Path) -> None:
    runs = {"cpu": ended(tmp_path / "cpu", [2.0]), "dead": ended(tmp_path / "dead", [], status=1)}
    with pytest.raises(AssertionError, match="dead: status 1: CUDA error"):
        compare(Recorder(enforced=False), runs, [("dead", "cpu", 1e-4)])


def test_differences_are_relative() -> None:
    assert deviation([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert deviation([1.0], [1.0, 2.0]) is None
    assert deviation([], []) is None


def test_products_below_the_limit_or_above_all_limits_fail() -> None:
    row = {"tflops": 800.0, "sm_clock_mhz": 1500.0, "limit_tflops": 811.0, "of_limit": 0.986,
           "sheet_tflops": 989.4, "note": ""}  # fmt: skip
    for part, kind, good in ((0.986, "bf16", True), (1.2, "bf16", False), (0.6, "fp32", True)):
        report = Recorder()
        told(report, kind, 8192, {**row, "of_limit": part})
        assert (not report.misses()) == good, (part, kind)
    for parts, good in (([0.81, 0.88], True), ([0.86, None], True), ([0.83, 0.84], False),
                        ([0.95, 1.2], False)):  # fmt: skip
        report = Recorder()
        tell_best(report, parts, 0.85)
        assert (not report.misses()) == good, parts
    unseen = Recorder()
    tell_best(unseen, [0.5, 0.6], None)
    assert unseen.misses() == []
    report, absent = Recorder(), []
    report.tell = absent.append  # type: ignore[assignment]
    told(report, "bf16", 8192, {**row, "limit_tflops": None, "note": "no limit is known of X"})
    assert report.misses() == []
    assert [row["why"] for row in absent if row["event"] == "absent"] == ["no limit is known of X"]


def test_the_table_of_chips_is_the_workloads() -> None:
    assert chips.flops_per_cycle("bf16", (9, 0), "NVIDIA H200") == 4096
    assert chips.flops_per_cycle("bf16", (9, 0), "NVIDIA H20") is None
    assert chips.flops_per_cycle("bf16", (8, 9), "NVIDIA L40S") is None
