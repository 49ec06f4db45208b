"""What a terminal that comes back is shown: the last lines, the modes, and no questions."""

import pytest

from hpckit.errors import HpckitError
from hpckit.files import DamagedFileError
from hpckit.session.attach import Leaving
from hpckit.session.frames import MOST, Frames, Kind, frame, mapping, message
from hpckit.session.screen import KEPT_BYTES, Screen

KEY = b"\x1d"


def fed(*chunks: bytes) -> Screen:
    screen = Screen()
    for chunk in chunks:
        screen.feed(chunk)
    return screen


def test_the_last_lines_are_shown_again() -> None:
    lines = b"".join(b"line %d\r\n" % number for number in range(50)) + b"$ "
    assert fed(lines).shown_again(3) == b"line 48\r\nline 49\r\n$ "
    assert fed(b"short").shown_again(24) == b"short"


def test_no_more_is_kept_than_so_much_and_no_half_line() -> None:
    screen = fed(*(b"%07d\n" % number for number in range(40_000)))
    shown = screen.shown_again(10**6)
    assert KEPT_BYTES - 8 <= len(shown) <= KEPT_BYTES
    assert shown.startswith(b"00")
    assert shown.endswith(b"0039999\n")


@pytest.mark.parametrize(
    "question",
    [
        b"\x1b[6n",  # where is the cursor
        b"\x1b[c",  # what are you
        b"\x1b[>0q",
        b"\x1b[?2026$p",
        b"\x1b]11;?\x1b\\",  # the background's colour
        b"\x1b]52;c;aGk=\x07",  # the clipboard
        b"\x1bP+q544e\x1b\\",
        b"\x05",
        b"\x1b[18t",
    ],
)
def test_questions_are_not_asked_again(question: bytes) -> None:
    assert fed(b"a" + question + b"b\x1b[31mred\x1b[0m").shown_again(9) == b"ab\x1b[31mred\x1b[0m"


def test_a_full_screen_program_draws_itself() -> None:
    screen = fed(b"before\r\n\x1b[?1049h\x1b[?2004h\x1b[?1hdrawn")
    assert screen.alternate
    shown = screen.shown_again(24)
    assert b"before" not in shown
    assert b"drawn" not in shown
    assert shown.startswith(b"\x1b[?1h\x1b[?1049h\x1b[?2004h")
    assert shown.endswith(b"\x1b[2J")
    screen.feed(b"\x1b[?1049l\x1b[?2004l\x1b[?1lafter")
    assert not screen.alternate
    assert screen.shown_again(24) == b"before\r\n\x1b[?1049h\x1b[?2004h\x1b[?1hdrawn"[:8] + (
        b"\x1b[?2004l\x1b[?1lafter"
    )


def test_a_sequence_may_come_in_pieces() -> None:
    whole = b"x\x1b[?1000;1006h"
    for cut in range(len(whole)):
        screen = fed(whole[:cut], whole[cut:])
        assert screen.left().startswith(b"\x1b[?1000l\x1b[?1006l"), cut


def test_a_terminal_that_is_left_is_as_it_was() -> None:
    screen = fed(b"\x1b[?1049h\x1b[?25l\x1b=\x1b[>4;2m\x1b[>1u")
    assert screen.left() == (b"\x1b[>4;0m\x1b[<1u\x1b[?1049l\x1b>\x1b[?25h\x1b[0m\x1b(B")
    assert fed(b"\x1b[?1049h\x1b[?25lx\x1bc").left() == b"\x1b[0m\x1b(B"
    assert fed(b"plain").left() == b"\x1b[0m\x1b(B"


def test_frames_arrive_in_any_pieces() -> None:
    sent = message(Kind.HELLO, {"rows": 24}) + frame(Kind.INPUT, b"ls\r") + frame(Kind.END)
    for size in (1, 2, 7, len(sent)):
        frames, found = Frames(), []
        for at in range(0, len(sent), size):
            found += [*frames.feed(sent[at : at + size])]
        assert [kind for kind, _ in found] == [Kind.HELLO, Kind.INPUT, Kind.END]
        assert mapping(found[0][1]) == {"rows": 24}
        assert found[1][1] == b"ls\r"


@pytest.mark.parametrize("strange", [b"GET / HTTP/1.1\r\n", b"I" + (MOST + 1).to_bytes(4, "big")])
def test_strange_bytes_are_no_frames(strange: bytes) -> None:
    with pytest.raises(DamagedFileError):
        [*Frames().feed(strange)]
    with pytest.raises((DamagedFileError, HpckitError)):
        mapping(b"[1]")


def test_three_presses_leave_and_the_first_two_are_keys() -> None:
    leaving = Leaving()
    assert leaving.until_left(b"a" + KEY, 1.0) == (b"a" + KEY, False)
    assert leaving.until_left(KEY, 1.3) == (KEY, False)
    assert leaving.until_left(KEY + b"rest", 1.6) == (b"", True)


def test_slow_presses_and_others_between_leave_nothing() -> None:
    leaving = Leaving()
    for at_s in (1.0, 1.8, 2.6, 3.4):
        assert leaving.until_left(KEY, at_s) == (KEY, False)
    assert Leaving().until_left(KEY + KEY + b"x" + KEY, 1.0)[1] is False
    assert Leaving().until_left(3 * KEY, 1.0) == (2 * KEY, True)
