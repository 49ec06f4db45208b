"""Memory of a process that computes on the CPU: what is freed stays, for the next step's tensors.

The GNU C library gives large blocks back to the system as soon as they are freed. A step of
training asks for the same again, and the system must clear each page first: a fifth of the time
of a step of a small network on images.
"""

import ctypes

# malloc.h of the GNU C library
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# The largest blocks that it takes from what it keeps; before version 2.35 it knew no larger limit.
_LARGEST = 32 * 2**20
_KEPT = 2**30


def keep_freed_memory() -> bool:
    """Have this process keep up to 1 GiB of freed memory; return whether the C library can.

    Larger blocks than 32 MiB are given back as before. GPUs' memory is torch's own affair, which
    keeps it.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    options = {_M_MMAP_THRESHOLD: _LARGEST, _M_TRIM_THRESHOLD: _KEPT, _M_TOP_PAD: _LARGEST}
    taken = [set_option(option, value) for option, value in options.items()]
    return all(taken)
