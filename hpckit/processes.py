"""What the kernel says of a process: proc(5).

The sampler has readers of its own, for many processes at once.
"""

from pathlib import Path

# Places in `stat_fields`: proc(5) counts from 1, and the first two are left out.
RUN_STATE, PARENT, GROUP, TIMES, STARTED = 0, 1, 2, slice(11, 15), 19


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third, the state, on; none if it is gone.

    Times (user, system, and those of children) and the start since boot are in clock ticks.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()  # the name, field 2, may hold blanks and brackets
