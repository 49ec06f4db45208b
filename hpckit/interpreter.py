"""How hpckit starts its own Python inside a job."""

import os
import sys
from pathlib import Path


def own_python(environ: dict[str, str] | None = None) -> tuple[str, ...]:
    """Return the argv prefix of hpckit's own interpreter, safe from the job's modules.

    `-E` ignores PYTHONPATH and its kin, which modules set for *their* python; `-P` keeps the
    working directory off the path. Where hpckit itself was found through PYTHONPATH (installed as
    a module), `-E` would lose it.
    """
    paths = (os.environ if environ is None else environ).get("PYTHONPATH", "").split(":")
    home = Path(__file__).resolve().parent.parent
    by_path = any(path and Path(path).resolve() == home for path in paths)
    return (sys.executable, *(() if by_path else ("-E",)), "-P", "-u")
