"""The command line: python -m tests.slurmbox up|down|status|env [--dir DIR]."""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

from tests.slurmbox import box, daemons
from tests.slurmbox.layout import DEFAULT_DIR, BoxError, Layout


def main() -> int:
    """Run one command; results go to stdout, everything else to stderr."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurmbox", description=box.__doc__)
    parser.add_argument("command", choices=tuple(_COMMANDS))
    parser.add_argument("--dir", type=Path, default=os.environ.get("HPCKIT_SLURMBOX", DEFAULT_DIR))
    options = parser.parse_args()
    try:
        return _COMMANDS[options.command](Layout(dir=Path(options.dir)))
    except BoxError as error:
        print(f"slurmbox: {error}", file=sys.stderr)
        return 1


def _up(layout: Layout) -> int:
    start = time.monotonic()
    started = box.up(layout)
    what = f"up after {time.monotonic() - start:.1f} s" if started else "already up"
    print(f"slurmbox: {layout.dir} is {what}; logs are in {layout.dir}/log", file=sys.stderr)
    return _env(layout)


def _down(layout: Layout) -> int:
    found = box.down(layout)
    print(f"slurmbox: {layout.dir} {'is down' if found else 'was not up'}", file=sys.stderr)
    return 0


def _status(layout: Layout) -> int:
    if reason := box.obstacle():
        raise BoxError(reason)
    for daemon in box.DAEMONS:
        pids = " ".join(map(str, daemons.processes(layout, daemon)))
        state = "up" if daemons.running(layout, daemon) else "DOWN"
        print(f"{daemon:<10} {state:<5} {pids}")
    if not box.is_up(layout):
        print(f"{layout.dir} is not (all) up", file=sys.stderr)
        return 1
    print(box.ask(layout, "sinfo", "-N", "-o", "%N %P %T %G %c %m").stdout, end="")
    return 0


def _env(layout: Layout) -> int:
    for name, value in layout.exports.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


_COMMANDS = {"up": _up, "down": _down, "status": _status, "env": _env}

if __name__ == "__main__":
    sys.exit(main())
