"""Draw docs/terminal.svg from commands that are really run.

Usage: python docs/terminal_picture.py

Wants the two-node Slurm of the tests: eval "$(make -s slurm-up)" first.
"""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMANDS = (
    "hpckit submit ddp --nodes 2 --gpus 4 --wait",
    "hpckit logs latest | head -n 5",
    "hpckit submit ddp train.py --nodes 2 --gpus 2 --wait -- --lr 0.1",
    "hpckit logs latest --errors",
    "hpckit jobs",
)
FAILING = """\
import os, time
if os.environ["RANK"] == "3":
    raise ValueError("image 1041 is not 28x28")
time.sleep(60)
"""


def main() -> None:
    """Run the commands in an empty folder and write the picture."""
    console = Console(record=True, width=112, file=io.StringIO())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(FAILING)
        environ = {**os.environ, "PATH": path, "XDG_STATE_HOME": folder}
        for command in COMMANDS:
            console.print(Text("$ ", style="green") + Text(command, style="bold"))
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            console.print(Text(done.stdout.replace(folder, "~")))
    picture = Path(__file__).with_name("terminal.svg")
    console.save_svg(str(picture), title="hpckit")
    print(picture)


if __name__ == "__main__":
    main()
