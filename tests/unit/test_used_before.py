"""What is said at a submission of how few GPUs the last runs of its kind used."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.run_folders.run_files import SUMMARY
from hpckit.run_folders.runs import Run
from hpckit.submission.used_before import gpus_used_before
from tests.conftest import Answer
from tests.unit.made import PLAN, make_run

Cli = Callable[..., Answer]
_NEW = 1000


def ended(run_dir: Path, idle: float, **changes: Any) -> None:
    """Let a run of an hour have ended whose four GPUs were idle for so many hours together."""
    figures = {
        "gpu_hours": 4.0, "gpu_hours_idle": idle, "gpu_coverage_percent": 100.0,
        "gpu_coverage_lowest_percent": 100.0, **changes,
    }  # fmt: skip
    elapsed = figures.pop("elapsed_s", 3600.0)
    document = {"elapsed_s": elapsed, "summary": figures, "advice": []}
    (run_dir / SUMMARY).write_text(json.dumps(document))


def old(root: Path, number: int, idle: float | None, **changes: Any) -> Run:
    figures = {name: changes.pop(name) for name in [*changes] if name.startswith(("gpu", "ela"))}
    values = {"job_id": str(number), "submitted_at": float(number), "workload": {"name": "ddp"}}
    run = make_run(root, f"ddp-20261001-120000-{number:06x}", **values | changes)
    if idle is not None:
        ended(run.dir, idle, **figures)
    return run


def test_the_mean_of_the_last_five_of_the_kind_counts(here: Path) -> None:
    runs = here / "runs"
    for number in range(1, 8):
        old(runs, number, 4.0 if number < 3 else 2.8)
    said = gpus_used_before(old(runs, _NEW, None))
    assert said == (
        "your last 5 runs of this kind (7, 6, 5, 4, 3) used 1.2 of 4 GPUs. hpckit stats 7 says why"
    )


def test_of_time_that_nobody_read_nothing_is_said(here: Path) -> None:
    """3 idle of 4 GPU-hours, of which 90 % were read: 0.6 of 3.6 were in use."""
    old(here, 1, 3.0, gpu_coverage_percent=90.0, gpu_coverage_lowest_percent=85.0)
    said = gpus_used_before(old(here, _NEW, None))
    assert said == "your last run of this kind (1) used 0.7 of 4 GPUs. hpckit stats 1 says why"


@pytest.mark.parametrize(
    ("idle", "changes"),
    [
        (0.9, {}),  # most were used
        (None, {}),  # it goes on
        (4.0, {"gpu_coverage_lowest_percent": 50.0}),
        (4.0, {"gpu_coverage_lowest_percent": None}),
        (4.0, {"elapsed_s": 60.0}),
        (4.0, {"elapsed_s": None}),
        (4.0, {"gpu_hours": 0.0}),
        (4.0, {"gpu_hours": None}),
        (4.0, {"gpu_hours_idle": None}),
        (4.0, {"gpu_hours_idle": "many"}),
        (4.0, {"workload": {"name": "dp"}}),
        (4.0, {"workload": None, "program": {"word": "train.py"}}),
        (4.0, {"plan": PLAN | {"gpus_per_node": 4, "total_gpus": 8}}),
        (4.0, {"plan": PLAN | {"strategy": "dp"}}),
        (4.0, {"command": ["python", "/x/hpckit/payload/function.py"]}),
    ],
)
def test_other_runs_and_unknown_figures_say_nothing(
    here: Path, idle: float | None, changes: dict[str, Any]
) -> None:
    old(here, 1, idle, **changes)
    assert gpus_used_before(old(here, _NEW, None)) is None


def test_a_damaged_summary_says_nothing(here: Path) -> None:
    (old(here, 1, None).dir / SUMMARY).write_text("{")
    (old(here, 2, None).dir / SUMMARY).write_text('{"summary": 4}')
    assert gpus_used_before(old(here, _NEW, None)) is None


def test_one_gpu_of_which_less_than_half_was_used_is_told(here: Path) -> None:
    plan = PLAN | {"nodes": 1, "gpus_per_node": 1, "total_gpus": 1}
    old(here, 1, 0.45, gpu_hours=1.0, plan=plan)
    new = old(here, _NEW, None, plan=plan)
    assert gpus_used_before(new) is None
    old(here, 2, 0.75, gpu_hours=1.0, plan=plan)
    assert (gpus_used_before(new) or "").endswith(
        "(2, 1) used 0.4 of 1 GPUs. hpckit stats 2 says why"
    )


@pytest.mark.usefixtures("fake_slurm")
def test_it_is_a_note_of_the_submission(here: Path, cli: Cli) -> None:
    (here / "train.py").touch()
    words = ("submit", "ddp", "train.py", "--gpus", "4", "--executor", "slurm", "--json")
    first = cli(*words)
    assert "of this kind" not in first.err
    run = json.loads(first.out)
    ended(Path(run["run_dir"]), 2.0)
    note = f"note: your last run of this kind ({run['job_id']}) used 2.0 of 4 GPUs."
    assert note in cli(*words).err
    assert note in cli(*words, "--", "--lr", "2").err
    assert "of this kind" not in cli(*words[:4], "2", *words[5:]).err
    assert "of this kind" not in cli(*words, "--dry-run").err
