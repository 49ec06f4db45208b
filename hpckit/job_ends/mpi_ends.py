"""What MPI's libraries write in a rank that they end, found in the rank's stderr. Pure.

The words are those of Open MPI 4.1 (MPI_ABORT's also of 5.0: ompi/mpi/c/help-mpi-api.txt) and of
MPICH 4 and 5, after which Intel MPI's are made.
"""

import re
from collections.abc import Sequence

from hpckit.frozen import frozen

_OPEN_MPI_ABORT = "MPI_ABORT was invoked on rank"
_OPEN_MPI_STATUS = re.compile(r"\s*(?:with errorcode|Errorcode:) (-?\d{1,12})\b")
_STATUS = re.compile(r"\berrorcode (-?\d{1,12})\b")
_MPICH = re.compile(
    r"(?:Abort\((?P<code>-?\d{1,12})\) on node \d+ \(rank \d+ in comm \d+\): )?"
    r"(?:application called MPI_Abort\(.*, (?P<asked>-?\d{1,12})\)"
    r"|Fatal error in (?:internal_|P?MPI)\w+: )"
)
_STACK = re.compile(r"\w+\(\d+\)\.*: ")
# Before MPI_Init, Open MPI does not name the process.
_ERROR = re.compile(r"((?:\[[^\]]+\] )?\*\*\* )(An error occurred in .*)")
_WRONG_TIME = re.compile(
    r"(?:(?:\[[^\]]+\] )?\*\*\* )?"
    r"(The MPI_\w+\(\) function was called (?:before MPI_INIT|after MPI_FINALIZE) was invoked\.)"
)
_NO_PMI = "The application appears to have been direct launched using "
_FATAL = "MPI_ERRORS_ARE_FATAL"
_INIT = re.compile(r"(?:MPI_INIT has|It looks like MPI_INIT) failed", re.IGNORECASE)
_RULE = "-----"
# How many lines each of these may go on for.
_ERROR_LINES, _INIT_LINES, _STACK_LINES, _PMI_LINES = 12, 20, 20, 4


@frozen(kw_only=True)
class MpiEnd:
    """How MPI ended a rank.

    `text`: its words in one line. `status`: the exit status that they tell; None: they tell none.
    `at`: the number of the line with which they begin. `aborted`: the program called MPI_Abort.
    """

    text: str
    at: int
    status: int | None = None
    aborted: bool = False


def mpi_end(lines: Sequence[str]) -> MpiEnd | None:
    """Return the first end that the lines of a rank's stderr tell; None: they tell none."""
    for at in range(len(lines)):
        for read in (_open_mpi_abort, _mpich, _fatal_error, _init_failed, _no_pmi, _wrong_time):
            if found := read(lines, at):
                return found
    return None


def is_mpi_end(text: str) -> bool:
    """Say whether a rank's error is the text of an `MpiEnd`."""
    fatal = text.startswith("An error occurred in ") and _FATAL in text
    begins = text.startswith((_OPEN_MPI_ABORT, _NO_PMI, "MPI_INIT failed")) or _INIT.match(text)
    return bool(fatal or begins or _MPICH.match(text) or _WRONG_TIME.fullmatch(text))


def _open_mpi_abort(lines: Sequence[str], at: int) -> MpiEnd | None:
    if not lines[at].startswith(_OPEN_MPI_ABORT):
        return None
    text, status = lines[at].rstrip(), _STATUS.search(lines[at])
    for line in lines[at + 1 : at + 3] if status is None else ():
        if status := _OPEN_MPI_STATUS.match(line):  # 5.0: behind a line with the process
            text = f"{text} with errorcode {status[1]}."
            break
    return MpiEnd(text=text, at=at, status=status and _status(status[1]), aborted=True)


def _mpich(lines: Sequence[str], at: int) -> MpiEnd | None:
    match = _MPICH.match(lines[at])
    if match is None:
        return None
    asked, text = match["asked"], lines[at].rstrip()
    if asked is None:
        text = _with_reason(text, lines[at + 1 : at + 1 + _STACK_LINES])
    code = asked or match["code"]
    status = _status(code) if code else None
    return MpiEnd(text=text, at=at, status=status, aborted=asked is not None)


def _with_reason(text: str, after: Sequence[str]) -> str:
    """Return MPICH's error with the innermost line of its stack, which says what was wrong."""
    stack = []
    for line in after:
        if not _STACK.match(line):
            break
        stack.append(line)
    reason = _STACK.sub("", stack[-1], count=1) if stack else ""
    return f"{text.removesuffix(', error stack:')}: {reason}" if reason else text


def _fatal_error(lines: Sequence[str], at: int) -> MpiEnd | None:
    match = _ERROR.match(lines[at])
    if match is None:
        return None
    said = [match[2]]
    for line in lines[at + 1 : at + _ERROR_LINES]:
        words = line.removeprefix(match[1]).strip()
        if words.startswith(_FATAL):
            return MpiEnd(text=f"{' '.join(said)} ({_FATAL})", at=at)
        if words.startswith("on "):
            said[-1] += f" {words}:"
        elif line.startswith(match[1]) and not words.startswith("reported by"):
            said.append(words)
    return None


def _init_failed(lines: Sequence[str], at: int) -> MpiEnd | None:
    if not _INIT.match(lines[at]):
        return None
    block = []
    for line in lines[at : at + _INIT_LINES]:
        if line.startswith(_RULE):
            break
        block.append(line)
    # What failed is set off; where nothing is, the first sentence says it.
    what = " ".join(line.strip() for line in block if re.match(r"  \S", line))
    first = " ".join(block).partition(".  ")[0]
    return MpiEnd(text=f"MPI_INIT failed: {what}" if what else first, at=at)


def _no_pmi(lines: Sequence[str], at: int) -> MpiEnd | None:
    if not lines[at].startswith(_NO_PMI):
        return None
    said = " ".join(line.strip() for line in lines[at : at + _PMI_LINES])
    return MpiEnd(text=said.partition(". ")[0], at=at)


def _wrong_time(lines: Sequence[str], at: int) -> MpiEnd | None:
    match = _WRONG_TIME.match(lines[at])
    return MpiEnd(text=match[1], at=at) if match else None


def _status(code: str) -> int:
    return int(code) & 255
