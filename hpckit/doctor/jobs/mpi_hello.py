"""One rank of `hpckit doctor mpi`: find the others, add up one number of each, say what was seen.

Its argument is how many ranks there should be. It needs mpi4py and nothing else: what is tested is
the launcher and the MPI library, and torch would take longer to load than all of it.
"""

import json
import socket
import sys
from array import array

MARK = "hpckit-doctor "


def main() -> int:
    """Print one line of JSON; exit 1 with a line on stderr when the ranks do not meet."""
    wanted = int(sys.argv[1])
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return _fail(f"MPI cannot be loaded by {sys.executable}: {error}")
    library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip(" \0")
    comm = MPI.COMM_WORLD
    if comm.size != wanted:
        return _fail(
            f"of {wanted} started ranks each sees only {comm.size}: they did not connect. mpi4py "
            f"loads {library}, but this launcher starts ranks for another MPI"
        )
    total = array("d", [0.0])
    comm.Allreduce(array("d", [comm.rank + 1.0]), total)
    expected = wanted * (wanted + 1) / 2
    if total[0] != expected:
        return _fail(f"the sum over the ranks is {total[0]}, but it must be {expected} ({library})")
    print(MARK + json.dumps({"host": socket.gethostname(), "library": library}), flush=True)
    return 0


def _fail(words: str) -> int:
    print(f"error: {words}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
