"""What a terminal has been shown: the end of it, for who comes back, and the modes it is left in.

It is no terminal's picture: of a full-screen program only that one is there is known, and it draws
itself anew when the size changes. Of what was printed the last lines are shown again, without the
questions that programs ask terminals: a terminal would answer them, as if its user had typed.

Sequences are named as in xterm's ctlseqs.
"""

import re

# The last of what was printed.
KEPT_BYTES = 64 * 1024
_ALTERNATE = frozenset((b"47", b"1047", b"1049"))
# DEC's private modes that outlive a program that was left alone: cursor keys, the mouse, focus,
# bracketed paste; and the cursor, which is there at first.
_MODES = frozenset(
    (*(b"1", b"1000", b"1002", b"1003", b"1004", b"1005", b"1006", b"1015", b"2004"), *_ALTERNATE)
)
_CURSOR = b"25"
_CHANGE = re.compile(
    rb"\x1b\[\?(?P<modes>[0-9;]{1,64})(?P<set>[hl])"
    rb"|\x1b(?P<keypad>[=>])"
    rb"|\x1b\[>4;?(?P<keys>[0-9]?)m"  # modifyOtherKeys
    rb"|\x1b\[(?P<kitty>[<>])[0-9;]*u"  # kitty's keyboard protocol: pushed, popped
    rb"|\x1b(?P<reset>c|\[!p)"
)
# The beginning of such a sequence, at the end of what has come so far.
_BEGUN = re.compile(rb"\x1b(?:\[[?>=<!]?[0-9;]{0,64})?\Z")
_STRING = rb"[^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
_QUESTIONS = re.compile(
    rb"\x05"  # ENQ
    rb"|\x1b\[[>=?]?[0-9;]*[cn]"  # device attributes, status
    rb"|\x1b\[\??[0-9;]*\$p|\x1b\[>[0-9;]*q|\x1b\[\?u|\x1b\[[0-9;]+t"  # modes, version, sizes
    rb"|\x1bP[+$]q" + _STRING +  # capabilities
    rb"|\x1b\](?:52;|[0-9;]*;\?)" + _STRING  # the clipboard, colours
)  # fmt: skip
_WHILE_ALTERNATE = re.compile(rb"\x1b\[\?(?:47|1047|1049)h.*?\x1b\[\?(?:47|1047|1049)l", re.DOTALL)
_END_OF_ALTERNATE = re.compile(rb"\x1b\[\?(?:47|1047|1049)l")


class Screen:
    """What one terminal was shown."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._begun = b""
        self._clear()

    def _clear(self) -> None:
        self._modes: set[bytes] = set()
        self._cursor = True
        self._keypad = self._keys = False
        self._kitty = 0

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program has the terminal's other screen."""
        return not self._modes.isdisjoint(_ALTERNATE)

    def feed(self, chunk: bytes) -> None:
        """Take note of what is shown."""
        self._kept += chunk
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        text = self._begun + chunk
        for change in _CHANGE.finditer(text):
            self._take(change)
        begun = _BEGUN.search(text)
        self._begun = begun[0] if begun else b""

    def _take(self, change: "re.Match[bytes]") -> None:
        if change["modes"]:
            on = change["set"] == b"h"
            for mode in change["modes"].split(b";"):
                if mode == _CURSOR:
                    self._cursor = on
                elif mode in _MODES:
                    (self._modes.add if on else self._modes.discard)(mode)
        elif change["keypad"]:
            self._keypad = change["keypad"] == b"="
        elif change["keys"] is not None:
            self._keys = change["keys"] not in (b"", b"0")
        elif change["kitty"]:
            self._kitty = max(0, self._kitty + (1 if change["kitty"] == b">" else -1))
        else:
            self._clear()

    def shown_again(self, rows: int) -> bytes:
        """Return what brings another terminal, of so many rows, to where this one is."""
        text = b"" if self.alternate else self._last_lines(rows)
        modes = b"".join(b"\x1b[?%bh" % mode for mode in sorted(self._modes))
        keypad = b"\x1b=" if self._keypad else b""
        cursor = b"" if self._cursor else b"\x1b[?25l"
        return text + modes + keypad + cursor + (b"\x1b[H\x1b[2J" if self.alternate else b"")

    def left(self) -> bytes:
        """Return what undoes the modes, for a terminal that is left while programs go on."""
        modes = b"".join(b"\x1b[?%bl" % mode for mode in sorted(self._modes))
        keypad = b"\x1b>" if self._keypad else b""
        keys = b"\x1b[>4;0m" if self._keys else b""
        kitty = b"\x1b[<%du" % self._kitty if self._kitty else b""
        cursor = b"" if self._cursor else b"\x1b[?25h"
        return keys + kitty + modes + keypad + cursor + b"\x1b[0m\x1b(B"

    def _last_lines(self, rows: int) -> bytes:
        text = bytes(self._kept[-KEPT_BYTES:])
        cut = len(self._kept) > len(text)
        text = _WHILE_ALTERNATE.sub(b"", text)
        if early := _END_OF_ALTERNATE.search(text):
            text = text[early.end() :]
        elif cut:  # no half a line, letter or sequence
            text = text.partition(b"\n")[2]
        lines = _QUESTIONS.sub(b"", text).split(b"\n")
        return b"\n".join(lines[-rows:])
