"""Draw docs/top.svg: the screen of `hpckit top` over jobs that really run.

Usage: python docs/top_picture.py

Wants the two-node Slurm of the tests (eval "$(make -s slurm-up)" first), a C compiler and Textual.
The GPUs are pretended, as in docs/job_pictures.py: the tests' stub of NVIDIA's library plays what
is written here. The jobs train nothing: they log steps as a training does.
"""

import asyncio
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hpckit.api.top import View, Watch  # noqa: E402
from hpckit.cli.top_screen import Top  # noqa: E402
from tests.stats.stub.script import Stub, build_library, busy, uuid  # noqa: E402

TRAIN = """\
import json, os, sys, time
if "--broken" in sys.argv:
    raise ValueError("image 1041 is not 28x28")
if os.environ["RANK"] == "0":
    with open(os.environ["HPCKIT_RUN_DIR"] + "/metrics.jsonl", "a", buffering=1) as log:
        for step in range(1, 2000):
            row = {"step": step, "total_steps": 1870, "epoch": step // 187, "epochs": 10,
                   "loss": 2.3 / (1 + step / 40), "samples_per_s": 5200 + step % 90,
                   "time": time.time()}
            print(json.dumps(row), file=log)
            time.sleep(0.25)
time.sleep(600)
"""
GPUS = ("--sample-interval", "0.5", "--time", "1h")
JOBS = (
    ("ddp", "train.py", "--name", "resnet18", "--nodes", "2", "--gpus", "2", *GPUS),
    ("serial", "train.py", "--name", "finetune", "--gpus", "1", *GPUS),
    ("serial", "train.py", "--name", "lr-sweep", "--gpus", "1", *GPUS, "--array",
     "lr=0.1,0.2,0.3,0.4,0.5,0.6", "--parallel", "2"),
    ("serial", "train.py", "--name", "ablation", "--gpus", "0", "--time", "5m", "--", "--broken"),
    ("ddp", "train.py", "--name", "resnet50", "--nodes", "2", "--gpus", "4", *GPUS),
)  # fmt: skip
WIDTH, HEIGHT, SAMPLES = 138, 16, 24


def main() -> None:
    """Submit the jobs, and draw the screen when each that runs has told of itself."""
    if "SLURM_CONF" not in os.environ:
        sys.exit('The test Slurm comes first: eval "$(make -s slurm-up)"')
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        os.environ |= environment(folder)
        (folder / "train.py").write_text(TRAIN)
        try:
            for words in JOBS:
                subprocess.run(hpckit("submit", *words), cwd=folder, check=True)
            picture = ROOT / "docs" / "top.svg"
            text = asyncio.run(screen(folder / "runs"))
            text = text.replace(str(folder), "~")
            # The folder's name had another length.
            picture.write_text(re.sub(r' textLength="[^"]*"(?=[^>]*>~)', "", text))
            print(picture)
        finally:
            active = hpckit("jobs", "--active", "--tasks", "--format", "jobid")
            said = subprocess.run(active, capture_output=True, text=True, check=True)
            subprocess.run(hpckit("cancel", *said.stdout.split()[1:]), check=False)


def hpckit(*words: str) -> list[str]:
    """Return a command."""
    return [sys.executable, "-m", "hpckit", *words]


def environment(folder: Path) -> dict[str, str]:
    """Write what the GPUs of each node do; return what the jobs inherit to have it played."""
    library = folder / "library"
    library.mkdir()
    build_library(library)
    for number, host in enumerate(("c1", "c2")):
        gpus = []
        for index in range(4):
            waves = [(t / 2, 62 + 34 * math.sin(t / (3 + index + number))) for t in range(600)]
            gpu = busy(index, [(0, 0), *waves[2:]])
            gpu.uuid = uuid(16 * number + index)
            gpus.append(gpu)
        (folder / f"{host}.txt").write_text(Stub.script(gpus))
    return {
        "LD_LIBRARY_PATH": str(library),
        "NVML_STUB_SCRIPT": str(folder / "%h.txt"),
        "XDG_STATE_HOME": str(folder),
        "HPCKIT_RUNS": str(folder / "runs"),
    }


async def screen(root: Path) -> str:
    """Return the screen as an SVG."""
    app = Top(Watch(root), View(), interval=1)
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        while not ready(app.watch_of):
            await pilot.pause(0.5)
        await pilot.press("end")
        while app.watch_of.free is None:
            await pilot.pause(0.2)
        await pilot.pause(1.5)
        return app.export_screenshot(title="hpckit top")


def ready(watch: Watch) -> bool:
    """Say whether the failing job has failed, and there are samples of all that have GPUs."""
    runs = [job for job in watch.jobs if job.state == "RUNNING" and job.gpus]
    sampled = all(len(job.busy) >= SAMPLES for job in runs)
    return len(runs) >= 4 and sampled and any(job.state == "FAILED" for job in watch.jobs)


if __name__ == "__main__":
    main()
