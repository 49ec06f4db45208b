"""Works for ever in its first attempt; saves and ends when it is told to stop; then resumes."""

import os
import signal
import sys
import time
from pathlib import Path

here, rank = Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["RANK"]
saved = here / f"saved-{rank}"


def save(signum: int, _frame: object) -> None:
    # It may come twice: from Slurm, where that signals all of a step, and from hpckit. Python's
    # own end puts the default back, which would make a clean exit a death by signal.
    signal.signal(signum, signal.SIG_IGN)
    saved.write_text(signal.Signals(signum).name)
    # Not `print`: it fails where the signal comes while another one is still at it.
    os.write(1, f"saved on {signal.Signals(signum).name}\n".encode())
    sys.exit(0)


signal.signal(signal.SIGUSR2, save)
print(f"attempt {os.environ['HPCKIT_RESTART']}", flush=True)
(here / f"port-{os.environ['HPCKIT_RESTART']}").write_text(os.environ["MASTER_PORT"])
while os.environ["HPCKIT_RESTART"] == "0":
    time.sleep(0.1)
print(f"resumed from {saved.read_text() if saved.exists() else 'nothing'}", flush=True)
