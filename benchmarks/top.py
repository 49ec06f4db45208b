"""How soon `hpckit top` shows its screen, and how many bytes a refresh costs.

Usage: python benchmarks/top.py [--repeat N] [--seconds S]

It runs in a terminal of its own (80 x 24), in the user's folder of runs, with the Slurm that is
there, and a job of the user's that runs. The start ends when the heads of the table are on the
screen.
"""

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

SIZE = struct.pack("HHHH", 24, 80, 0, 0)


def start() -> tuple[subprocess.Popen[bytes], int]:
    """Start it in a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
    process = subprocess.Popen(
        [sys.executable, "-m", "hpckit", "top", "--interval", "2"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    return process, ours


def read(terminal: int, until: float, text: bytes | None = None) -> bytes:
    """Read until a text is there, or a moment of the monotonic clock."""
    said = b""
    while (left := until - time.monotonic()) > 0 and (text is None or text not in said):
        if select.select([terminal], [], [], left)[0]:
            try:
                said += os.read(terminal, 1 << 16)
            except OSError:  # EIO: it has ended, and nobody has its terminal any more
                break
    return said


def spent_s(pid: int) -> float:
    """Return the processor time a process has taken: proc(5), utime and stime."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=21.0)
    options = parser.parse_args()
    spans, answers, processor = [], [], []
    for number in range(options.repeat):
        began = time.monotonic()
        process, terminal = start()
        said = read(terminal, began + 30, b"JOBID")
        spans.append(time.monotonic() - began)
        processor.append(spent_s(process.pid))
        said += read(terminal, began + 30, b"RUNNING") if b"RUNNING" not in said else b""
        answers.append(time.monotonic() - began)
        if b"RUNNING" not in said:
            process.kill()
            sys.exit("After 30 s it showed no job that runs: hpckit submit one that lasts first.")
        if number == options.repeat - 1:
            read(terminal, time.monotonic() + 5)
            rounds = options.seconds / 2
            written = len(read(terminal, time.monotonic() + options.seconds))
            print(f"bytes per refresh   {written / rounds:8.0f}")
        os.write(terminal, b"q")
        read(terminal, time.monotonic() + 0.5)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        os.close(terminal)
    print(f"screen is there     {statistics.median(spans):8.2f} s (median of {options.repeat})")
    print(f"processor time      {statistics.median(processor):8.2f} s until then")
    print(f"first answer        {statistics.median(answers):8.2f} s")


if __name__ == "__main__":
    main()
