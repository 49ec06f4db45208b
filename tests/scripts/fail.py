"""One rank fails while the others sleep, deaf to SIGTERM if told so, with a child of their own."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--exit", type=int, help="exit with this status instead of raising")
parser.add_argument("--deaf", action="store_true")
parser.add_argument("--children", action="store_true")
options = parser.parse_args()
here = Path(os.environ["HPCKIT_RUN_DIR"])
rank = int(os.environ["RANK"])

if options.deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.children:
    subprocess.Popen(["sleep", "600"])
(here / f"ready-{rank}").touch()
if rank != options.rank:
    time.sleep(86400)  # whoever is over has been ended
# Everybody is in the middle of something when it happens.
while len(list(here.glob("ready-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)
(here / "failed").touch()
if options.exit is not None:
    print("about to leave", file=sys.stderr)
    sys.exit(options.exit)
raise ValueError(f"no luck on rank {rank}")
