"""How large the pages of `hpckit stats --html` are, and how long Chromium takes to open them.

Also how long `--png` and `--svg` take, and how large those pictures are.

    python benchmarks/pages.py [--repeat N]

The made-up jobs of benchmarks/stats.py: a day of 8 GPUs at 10 s, and a week at 1 s. Written is the
time of the whole command; opened is the time from the page's request until its pictures have been
drawn, by Chromium's own clock. It asserts nothing.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from stats import make_run, timed  # noqa: E402

from tests.browser.chromium import Chromium  # noqa: E402

_OPENED = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    ".then(() => performance.now())"
)


def opened(page: Path, repeat: int) -> list[float]:
    """Return the seconds from the start of a page until it has been drawn."""
    found = []
    for _ in range(repeat):
        browser = Chromium()
        try:
            browser.open(page)
            assert int(browser.js("document.documentElement.dataset.ready")) > 0
            found.append(browser.js(_OPENED) / 1000)
            assert browser.console == [], browser.console
        finally:
            browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"{'':20}{'written s':>10}{'peak MiB':>9}{'page MB':>9}{'opened s':>10}{'max':>7}")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for label, seconds, period in (("day at 10 s", 86400, 10.0), ("week at 1 s", 604800, 1.0)):
            folder = make_run(root, label.partition(" ")[0], seconds, period)
            page = root / f"{folder.name}.html"
            command = [sys.executable, "-m", "hpckit", "stats", str(folder), "--html", str(page)]
            took, peak = timed(command, root)
            size = page.stat().st_size / 1e6
            seen = opened(page, options.repeat)
            row = f"{label:<20}{took:>10.2f}{peak:>9.0f}{size:>9.2f}{median(seen):>10.2f}"
            met = "met" if median(seen) < 2 and size < 3 else "missed"
            print(f"{row}{max(seen):>7.2f}  goal 2 s, 3 MB: {met}")
            for kind in ("png", "svg"):
                picture = root / f"{folder.name}.{kind}"
                took, peak = timed([*command[:-2], f"--{kind}", str(picture)], root)
                size = picture.stat().st_size / 1e6
                print(f"{f'  --{kind}':<20}{took:>10.2f}{peak:>9.0f}{size:>9.2f}")
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
