"""The version of hpckit, the name under which pip knows it, and how packages come beside it.

On PyPI `hpckit` is another project, which has the same import name and the same command.
"""

import os
import sys

__version__ = "0.1.0"
DISTRIBUTION = "hpckit-slurm"


def to_install(requirement: str) -> str:
    """Return a sentence on how a package comes beside hpckit: by whoever may write there.

    By hpckit's own Python: the first `pip` on PATH may be of another. By the package's name:
    pip would look for that of hpckit on PyPI.
    """
    import shlex  # noqa: PLC0415  # only errors need these
    import sysconfig  # noqa: PLC0415

    line = shlex.join((sys.executable, "-m", "pip", "install", requirement))
    if os.access(sysconfig.get_path("purelib"), os.W_OK):
        return f"Install it: {line}"
    return f"Who installed hpckit in {sys.prefix} can add it: {line}"
