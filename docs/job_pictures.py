"""Make docs/job_page.png and docs/job_picture.png of a job that is really run.

Usage: python docs/job_pictures.py

Wants the two-node Slurm of the tests (eval "$(make -s slurm-up)" first), a C compiler, Chromium and
matplotlib. The job trains a network on four ranks, on the CPU. Its GPUs are pretended: the tests'
stub of NVIDIA's library plays what is written here, and the sampler reads it as it would read real
ones. All else in the pictures is real: the job, its times, its cores and memory, what it logged.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402  # matplotlib brings it

from tests.browser.chromium import Chromium  # noqa: E402
from tests.stats.stub.script import Gpu, Steps, Stub, build_library, busy, uuid  # noqa: E402

SUBMIT = (
    "submit", "ddp", "--name", "digits-mlp", "--site", "pretended", "--nodes", "2", "--gpus", "2",
    "--sample-interval", "0.5", "--time", "10", "--wait", "--", "--model", "mlp", "--epochs", "70",
    "--lr", "0.0003",
)  # fmt: skip
# A job of a minute or two gives advice as one of hours would.
SITE = """\
description: the test Slurm with GPUs that are pretended
advice:
  straggler-node: {min_elapsed_s: 20}
  low-gpu-utilization: {min_elapsed_s: 20}
  time-limit-too-long: off
  cores-per-gpu: off
"""
STEP_S, LONGEST_S = 0.5, 900
LATE_S, SLOW_FROM_S = 9, 40  # the first kernel; from when on the second node lags


def main() -> None:
    """Run the job, write its page and picture, and take the page's likeness."""
    if "SLURM_CONF" not in os.environ:
        sys.exit('The test Slurm comes first: eval "$(make -s slurm-up)"')
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "lab" / "templates" / "sites").mkdir(parents=True)
        (folder / "lab" / "templates" / "sites" / "pretended.yaml").write_text(SITE)
        environ = environment(folder)
        subprocess.run(hpckit(*SUBMIT), cwd=folder, env=environ, check=True)
        page, picture = folder / "job.html", ROOT / "docs" / "job_picture.png"
        show = hpckit("stats", "latest", "--html", str(page), "--png", str(picture))
        subprocess.run(show, cwd=folder, env=environ, check=True)
        likeness = ROOT / "docs" / "job_page.png"
        likeness.write_bytes(photograph(page))
        for path in (picture, likeness):  # a repository wants them small
            with Image.open(path) as image:
                image.convert("RGB").quantize(256).save(path, optimize=True)
        print(picture, likeness)


def hpckit(*words: str) -> list[str]:
    """Return a command."""
    return [sys.executable, "-m", "hpckit", *words]


def environment(folder: Path) -> dict[str, str]:
    """Write what the GPUs of each node do; return what the job inherits to have it played."""
    numbers = random.Random(4)
    library = folder / "library"
    library.mkdir()
    build_library(library)
    for number, host in enumerate(("c1", "c2")):
        gpus = [played(16 * number + index, index, host, numbers) for index in range(4)]
        (folder / f"{host}.txt").write_text(Stub.script(gpus))
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library),
        "NVML_STUB_SCRIPT": str(folder / "%h.txt"),
        "HPCKIT_COLLECTIONS": str(folder / "lab"),
        "XDG_STATE_HOME": str(folder),
    }


def played(number: int, index: int, host: str, numbers: random.Random) -> Gpu:
    """Make a GPU that waits, then works with short pauses; on c2 it lags after a while."""
    util: Steps = [(0, 0), *busy_steps(host, numbers)]
    gpu = busy(index, util)
    gpu.uuid = uuid(number)
    return gpu


def busy_steps(host: str, numbers: random.Random) -> list[tuple[float, float]]:
    """Return utilization from second to second, in percent."""
    found = []
    for at in range(round(LATE_S / STEP_S), round(LONGEST_S / STEP_S)):
        seconds = at * STEP_S
        level = 22 if host == "c2" and seconds >= SLOW_FROM_S else 91
        pause = seconds % 12 < 1
        found.append((seconds, 5.0 if pause else min(level + numbers.gauss(0, 4), 100.0)))
    return found


def photograph(page: Path) -> bytes:
    """Return the upper part of a page, with what its first advice marks."""
    browser = Chromium()
    try:
        browser.look(width=1180, height=1500)
        browser.open(page)
        browser.js("document.querySelector('button[data-advice]').click()")
        browser.js("scrollTo(0, 0)")
        browser.painted()
        assert browser.console == [], browser.console
        return browser.picture()
    finally:
        browser.close()


if __name__ == "__main__":
    main()
