"""Appends lines to a samples file, whatever its disk does; never raises.

Every line is handed to the kernel at once, so killing the sampler loses nothing; the kernel itself
gathers small writes for NFS and Lustre. While a disk is full or gone, lines wait here.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

_KEPT_BYTES = 256 * 1024  # some ten minutes of 8 GPUs at 1 s, two hours at 10 s
_TRY_AGAIN_S = 30.0

# The exit status of a sampler whose last lines could not be written.
LOST = os.EX_IOERR
Append = Callable[[int, bytes], int]


class Writer:
    """One file, opened when first written to; `failure` is what is wrong with it now, or None.

    `others` are taken in turn where there is a file at `path`: it is another's.
    """

    def __init__(
        self,
        path: Path,
        *,
        others: Iterable[Path] = (),
        append: Append = os.write,
        try_again_s: float = _TRY_AGAIN_S,
    ) -> None:
        self.path = path
        self._others = iter(others)
        self._is_ours = False
        self._append = append
        self._try_again_s = try_again_s
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._file: int | None = None
        self._torn = False
        self._not_before = 0.0
        self.failure: str | None = None
        self.dropped = 0

    def put(self, line: bytes) -> None:
        """Take a line; while nothing can be written, the oldest one is dropped for it."""
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        while self._waiting_bytes > _KEPT_BYTES and len(self._waiting) > 1:
            # Not the first: it may be the header, without which no other can be read.
            second = self._waiting[1]
            del self._waiting[1]
            self._waiting_bytes -= len(second)
            self.dropped += 1

    def flush(self, now_s: float, *, last: bool = False) -> str | None:
        """Write what waits, unless it failed a short time ago.

        Args:
            now_s: a monotonic time.
            last: try even then.

        Returns:
            What had been wrong, once, when writing works again after a failure.
        """
        if not self._waiting or (now_s < self._not_before and not last):
            return None
        try:
            self._write()
        except OSError as error:
            self.failure = self.failure or f"{error.strerror} ({self.path})"
            self._not_before = now_s + self._try_again_s
            self.close()
            return None
        failure, self.failure = self.failure, None
        return failure

    def _write(self) -> None:
        if self._file is None:
            # Whatever the umask, others do not write here; and no link of theirs is followed.
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._file = self._open(os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        while self._waiting:
            text = (b"\n" if self._torn else b"") + b"".join(self._waiting)
            self._torn = False  # an empty line between two is nothing
            written = self._append(self._file, text)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._forget(written if written == len(text) else written - text.startswith(b"\n"))

    def _open(self, flags: int) -> int:
        while not self._is_ours:
            try:
                file = os.open(self.path, flags | os.O_EXCL, 0o644)
            except FileExistsError:
                if (other := next(self._others, None)) is None:
                    raise
                self.path = other
            else:
                self._is_ours = True
                return file
        return os.open(self.path, flags | os.O_NOFOLLOW, 0o644)

    def _forget(self, written: int) -> None:
        """Drop the lines that were written whole; one cut short is written again, whole."""
        while self._waiting and len(self._waiting[0]) <= written:
            line = self._waiting.popleft()
            self._waiting_bytes -= len(line)
            written -= len(line)
        self._torn = bool(self._waiting) and written > 0

    def close(self) -> None:
        """Close the file; the next flush opens it again."""
        if self._file is not None:
            try:
                os.close(self._file)
            except OSError as error:  # NFS tells of a failed write here
                self.failure = self.failure or f"{error.strerror} ({self.path})"
            self._file = None
            self._torn = True
