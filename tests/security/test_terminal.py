"""Names and errors that others wrote give the terminal no orders."""

import json
import os
from pathlib import Path

import pytest

from hpckit.cli.output import spelt, table
from hpckit.ranks import write_rank
from tests.security.strings import PRINTABLE, UNPRINTABLE
from tests.unit.made import make_run, rank

ORDERS = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e"
BAD = set("\x1b\x07\x08\x9b\r\u202e")


def planted(here: Path) -> None:
    """Make a run whose every text is full of orders to a terminal."""
    run = make_run(here / "runs", executor="local", job_id="local-abc", name=f"n{ORDERS}",
                   user=f"u{ORDERS}", cwd=f"/w{ORDERS}")  # fmt: skip
    write_rank(
        run.dir,
        rank(0, host=f"h{ORDERS}", ended=20.0, exit_code=1, error=f"Error{ORDERS}: x{ORDERS}"),
    )
    state = {"job_id": "local-abc", "state": "FAILED", "host": f"h{ORDERS}", "pid": 1,
             "pid_started": 1, "reason": f"r{ORDERS}", "started": 10.0, "ended": 20.0,
             "exit_code": 1, "restarts": 0}  # fmt: skip
    (run.dir / "local.json").write_text(json.dumps(state))
    (run.dir / "logs" / "0.out").write_text(f"said\t{ORDERS}\nmore\n")


COMMANDS = [
    ("jobs",),
    ("status", "ddp-1"),
    ("stats", "ddp-1"),
    ("stats", "ddp-1", "--all"),
    ("logs", "ddp-1", "--errors"),
    ("wait", "ddp-1"),
    ("cancel", "ddp-1"),
    ("status", f"no{ORDERS}"),
    ("submit", f"no{ORDERS}"),
    ("submit", "serial", f"no{ORDERS}.py"),
    ("resubmit", "ddp-1"),
    ("logs", f"./runs/no{ORDERS}/x"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words)[:20])
@pytest.mark.parametrize("shape", [(), ("--json",)])
def test_no_order_reaches_the_terminal(cli, here, words, shape) -> None:
    planted(here)
    if shape and words[0] in ("logs", "resubmit"):
        return
    said = cli(*words, *shape)
    assert said.out or said.err
    assert not BAD & set(said.out + said.err)


def test_ones_own_logs_are_printed_as_they_are_and_anothers_are_spelt_out(
    cli, here, monkeypatch
) -> None:
    planted(here)
    assert cli("logs", "ddp-1").out == f"said\t{ORDERS}\nmore\n"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cli("logs", "ddp-1").out == (
        "said\t\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\r\\x08\\u202e\nmore\n"
    )


def test_what_slurm_says_of_a_job_gives_no_orders_either(cli, fake_slurm) -> None:
    """A job's name is its user's: squeue prints it as it is."""
    make_run(Path("runs"), job_id="11", submitted_at=1.0, name="x")
    row = ["11", "11", f"u{ORDERS}", "a", "p", "q", "PENDING", "0:00", "1:00", "0", "N/A", "N/A",
           "", f"Reason{ORDERS}", f"n{ORDERS}"]  # fmt: skip
    (fake_slurm / "squeue.out").write_text("\x1e" + "\x1f".join(row) + "\n")
    for words in (("jobs",), ("status", "11"), ("stats", "11")):
        said = cli(*words)
        assert not BAD & set(said.out + said.err), words


@pytest.mark.parametrize("value", UNPRINTABLE)
def test_control_characters_are_spelt_out(value: str) -> None:
    shown = spelt(f"a{value}b").replace("\n", "").replace("\t", "")
    assert shown.isprintable()
    assert table(("A",), [(value,)]).count("\n") == 1


@pytest.mark.parametrize("value", PRINTABLE)
def test_other_text_is_printed_as_it_is(value: str) -> None:
    assert spelt(value) == value
