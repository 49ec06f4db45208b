"""Training on several devices, in torch: for users' scripts and hpckit's workloads.

Never imported by hpckit's commands, which must start without torch.
"""

import sys
from typing import TYPE_CHECKING

from hpckit.oldest import refuse_older

refuse_older("Python", sys.version.split()[0])
if TYPE_CHECKING:
    from hpckit.parallel.stopping import should_stop

__all__ = ["should_stop"]


def __getattr__(name: str) -> object:
    # Only who asks for it gets the handler of SIGUSR2 that comes with it.
    if name == "should_stop":
        from hpckit.parallel.stopping import should_stop  # noqa: PLC0415

        return should_stop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
