"""Signals while something is submitted: which of them are taken, and given back."""

import signal

import pytest

from hpckit.interrupts import interrupts


def test_a_handler_of_the_program_around_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """R and Julia set theirs before they start Python: it was replaced, and a TypeError raised."""
    known = signal.getsignal
    before = {number: known(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def getsignal(number: int) -> object:
        return None if number == signal.SIGINT else known(number)

    monkeypatch.setattr(signal, "getsignal", getsignal)
    with interrupts(print):
        inside = {number: known(number) for number in before}
    assert inside[signal.SIGINT] == before[signal.SIGINT]
    assert inside[signal.SIGTERM] != before[signal.SIGTERM]
    assert {number: known(number) for number in before} == before
