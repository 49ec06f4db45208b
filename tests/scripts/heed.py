"""Goes on until SIGUSR1, SIGHUP and SIGUSR2 have come, and then ends with a status of its own."""

import os
import signal
import sys
import time
from pathlib import Path

here, rank = Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["RANK"]
wanted = {signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2}


def heed(signum: int, _frame: object) -> None:
    # It comes twice on the box (see docs/should-stop.md), and Python's end gives handlers back.
    signal.signal(signum, signal.SIG_IGN)
    wanted.discard(signal.Signals(signum))
    (here / f"heard-{rank}-{signal.Signals(signum).name}").touch()


for word in tuple(wanted):
    signal.signal(word, heed)
(here / f"ready-{rank}").touch()
while wanted:
    time.sleep(0.05)
sys.exit(int(sys.argv[-1]))
