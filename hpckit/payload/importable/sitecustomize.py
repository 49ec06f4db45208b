"""Python imports this before a rank's script, and before every Python that the script starts.

Any Python from 3.6 on can run it and the modules beside it: the job's is not hpckit's.
"""

import os
import sys
from importlib import machinery


def _go_on() -> None:
    """Run the sitecustomize that this one stands before: a distribution's, or the user's own."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120
    others = [path for path in sys.path if os.path.realpath(path or ".") != here]
    # Another hpckit's, of a job that this one was submitted from, would go on with this one.
    ours = "hpckit_meeting.py"
    others = [path for path in others if not os.path.exists(os.path.join(path, ours))]  # noqa: PTH110, PTH118
    spec = machinery.PathFinder.find_spec("sitecustomize", others)
    if spec and spec.loader:
        from importlib import util  # noqa: PLC0415  # it takes as long as all else here

        module = util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("HPCKIT_SOURCES_ONLY"):
    import hpckit_sources_only

    hpckit_sources_only.install(os.path.realpath(os.environ["HPCKIT_SOURCES_ONLY"]))
if os.environ.get("HPCKIT_CODE_MAP"):
    import hpckit_kept_code

    hpckit_kept_code.install(os.environ["HPCKIT_CODE_MAP"])
if os.environ.get("HPCKIT_END_INODE"):
    import hpckit_meeting

    hpckit_meeting.tell_at_exit()
_go_on()
