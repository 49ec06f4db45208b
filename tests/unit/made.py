"""Makes values that many tests need: collections, runs, ranks."""

import json
from pathlib import Path
from typing import Any

from hpckit.collections import Collection, builtin_folder
from hpckit.run_folders.ranks import RankRecord
from hpckit.run_folders.runs import RECORD, Run

BUILTIN = Collection(name="built-in", path=builtin_folder(), origin="built-in")
PLAN = {
    "nodes": 2,
    "gpus_per_node": 2,
    "tasks_per_node": 2,
    "ranks": 4,
    "total_gpus": 4,
    "time_min": 60,
    "strategy": "ddp",
    "launcher": "srun",
}


def run_record(**changes: Any) -> dict[str, Any]:
    return {
        "run_id": "ddp-1",
        "job_id": "11",
        "executor": "slurm",
        "submitted_at": 100.0,
        "name": "ddp",
        "cwd": "/work",
        "request": {"target": "ddp"},
        "parameters": {},
        "command": ["python", "train.py"],
        "hpckit_version": "0.1.0",
        "plan": PLAN,
        "array": None,
        **changes,
    }


def make_run(root: Path, run_id: str = "ddp-1", **changes: Any) -> Run:
    folder = root / run_id
    for name in ("ranks", "logs"):
        (folder / name).mkdir(parents=True)
    record = run_record(run_id=run_id, **changes)
    (folder / RECORD).write_text(json.dumps(record))
    return Run(dir=folder, record=record)


def rank(number: int, **changes: Any) -> RankRecord:
    values = {
        "rank": number,
        "restart": 0,
        "host": f"n{number // 2}",
        "device": "cuda",
        "pid": 1,
        "started": 10.0,
        **changes,
    }
    return RankRecord(**values)


def collection(root: Path, name: str, files: dict[str, str], origin: str = "group") -> Collection:
    for path, text in files.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_text(text)
    return Collection(name=name, path=root / name, origin=origin)
