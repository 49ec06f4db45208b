"""One rank of `hpckit doctor mpi`: find the others, add up one number of each, say what was seen.

Its argument is how many ranks there should be.
"""

import json
import socket
import sys
from array import array

MARK = "hpckit-doctor "


def main() -> int:
    """Print one line of JSON; exit 1 with a line on stderr when the ranks do not meet."""
    wanted = int(sys.argv[1])
    if fault := _fault():
        return _fail(fault)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return _fail(f"{sys.executable} has no mpi4py that loads here: {error}")
    comm = MPI.COMM_WORLD
    if comm.size != wanted:
        return _fail(f"{wanted} ranks were started, and each sees {comm.size}: they did not meet")
    total = array("d", [0.0])
    comm.Allreduce(array("d", [comm.rank + 1.0]), total)
    expected = wanted * (wanted + 1) / 2
    if total[0] != expected:
        return _fail(f"the ranks' sum is {total[0]}, must be {expected}")
    library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip(" \0")
    print(MARK + json.dumps({"host": socket.gethostname(), "library": library}), flush=True)
    return 0


def _fault() -> str:
    """Ask hpckit.parallel, whose errors name the cause, where this Python has torch for it."""
    try:
        from hpckit.parallel.errors import SetupError
        from hpckit.parallel.mpi import find_ranks
    except ImportError:
        return ""
    try:
        find_ranks()
    except SetupError as error:
        return str(error)
    return ""


def _fail(words: str) -> int:
    print(f"error: {words}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
