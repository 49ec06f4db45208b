"""Names and errors that others wrote give the terminal no orders."""

import json
import os
import sys
import warnings
from pathlib import Path

import pytest

from hpckit.cli.output import note, say, show_log, show_page, show_text, spelling, table
from hpckit.report.terminal import Style, readable
from hpckit.run_folders.ranks import write_rank
from hpckit.text import in_line, spelt
from tests.conftest import write_files
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


# As YAML writes them: whoever made a collection, in every text of its files.
WRITTEN = json.dumps(f"x{ORDERS}")
FILES = {
    "hpckit.yaml": f"name: lab\ndescription: {WRITTEN}\ncontact: {WRITTEN}\n",
    "templates/slurm/odd.sh.j2": f"#!/bin/bash\n# {ORDERS}\n",
    "templates/slurm/array.sh.j2": f"#!/bin/bash\n# {ORDERS}\n",
    "templates/slurm/fails.sh.j2": "#!/bin/bash\n{{ refuse(" + WRITTEN + ") }}\n",
    "templates/sites/odd.yaml": f"description: {WRITTEN}\ncontact: {WRITTEN}\nurl: {WRITTEN}\n"
    f'grafana: {WRITTEN[:-1]}{{jobid}}"\n',
    "templates/advice/odd.yaml": f"title: {WRITTEN}\nwhy: {WRITTEN}\nfor_each: job\n"
    f"rests_on: slurm\nlevels: {{info: job.elapsed_s >= 0}}\nmessage: {WRITTEN}\n"
    f"evidence: {WRITTEN}\naction_otherwise: {WRITTEN}\nsources: [{WRITTEN}]\n",
    "workloads/odd/workload.yaml": f"description: {WRITTEN}\nstrategy: serial\nscript: run.py\n"
    f"parameters: {{a: {{type: str, default: x, help: {WRITTEN}}}}}\n",
    "workloads/odd/run.py": f"'\\d{ORDERS[:10]}'\n",
}
FAULTS = {
    "templates/slurm/odd.sh.j2": f"#!/bin/bash\n# {ORDERS}\necho {{{{ {ORDERS} }}}}\n",
    "templates/sites/odd.yaml": f"{WRITTEN}: {WRITTEN}\n",
    "templates/sites/worse.yaml": f"a: {ORDERS}\n",
    f"templates/sites/n{ORDERS}.yaml": "description: x\n",
    "templates/advice/odd.yaml": f"title: {WRITTEN}\nwhen: {WRITTEN}\n",
    "workloads/odd/bad.py": f"if {ORDERS}\n",
    "workloads/odd/bad.sh": f"if {ORDERS}\n",
    "workloads/odd/workload.yaml": f"description: {ORDERS}\n",
}
ON_FILES = [
    ("collections", "list"), ("collections", "list", "--json"), ("templates", "list"),
    ("templates", "lint"), ("templates", "lint", "odd"), ("templates", "show", "slurm/odd"),
    ("templates", "diff", "slurm/array"), ("templates", "vars"), ("sites", "list"),
    ("sites", "list", "--json"), ("sites", "show", "odd"), ("sites", "show", "odd", "--json"),
    ("sites", "show", "worse"), ("sites", "show", f"n{ORDERS}"),
    ("workloads", "list"), ("workloads", "show", "odd"), ("workloads", "show", "odd", "--json"),
    ("stats", "--explain", "odd"), ("stats", "--explain", ORDERS), ("stats", "ddp-1", "--grafana"),
    ("stats", "ddp-1", "--all"),
    ("submit", "odd", "--dry-run"), ("submit", "odd", "--dry-run", "--site", "odd"),
    ("submit", "odd", "--dry-run", "--template", "fails"),
    ("submit", "odd", "--set", f"a={ORDERS}", "--dry-run"), ("submit", "odd", f"--{ORDERS}"),
    (ORDERS,), (f"--{ORDERS}",), ("jobs", "--limit", ORDERS), ("jobs", "--state", ORDERS),
    ("jobs", f"--runs=/{ORDERS}"), ("doctor", "--site", "odd"), ("init", "--name", ORDERS),
    ("sites", "detect"), ("init", "--dry-run"), ("cancel", ORDERS), ("wait", ORDERS),
    ("collections", "add", ORDERS), ("collections", "show", ORDERS),
    ("collections", "remove", ORDERS),
]  # fmt: skip


@pytest.mark.parametrize("words", ON_FILES, ids=lambda words: "-".join(words)[:30])
@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["good", "bad"])
@pytest.mark.filterwarnings("always")
def test_no_order_of_a_collection_reaches_the_terminal(
    cli, fake_slurm, here, monkeypatch, words, faults
) -> None:
    planted(here)
    run = here / "runs" / "ddp-1" / "run.json"
    run.write_text(json.dumps({**json.loads(run.read_text()), "site": {"name": "odd"}}))
    lab = here.parent / f"lab{ORDERS.replace(chr(13), '')}"
    write_files(lab, FILES | faults)
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(lab))
    answers = {"sinfo": ORDERS, "scontrol": f"ClusterName = {ORDERS}\n", "squeue": ORDERS}
    for name, text in answers.items():
        (fake_slurm / f"{name}.out").write_text(text)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    said = cli(*words)
    assert said.out or said.err
    assert not BAD & set(said.out + said.err)


def test_whoever_prints_while_a_command_runs_is_spelt_out(capsys) -> None:
    """Typer, warnings, a forgotten print: the streams themselves do it."""
    with spelling():
        print(ORDERS, file=sys.stderr)
        sys.stdout.writelines([ORDERS, "\n"])
        sys.stderr.writelines([warnings.formatwarning(ORDERS, UserWarning, ORDERS, 1)])
        say(ORDERS)
        note(ORDERS)
        show_log(ORDERS, own=False)
    said = capsys.readouterr()
    assert not BAD & set(said.out + said.err)
    assert said.out.count("owned") == 3
    assert said.err.count("owned") == 4


def test_orders_of_our_own_and_files_into_pipes_pass(capsys) -> None:
    with spelling():
        show_page(readable(Style(colour=True).paint(in_line(ORDERS), "red") + "\x1b[31m"))
        show_log("\x1b[1mmine\n", own=True)
        show_text("\x1b[1mfile\n")
    first, mine, file, _ = capsys.readouterr().out.split("\n")
    assert first == f"\x1b[31m{in_line(ORDERS)}\x1b[0m\\x1b[31m"
    assert (mine, file) == ("\x1b[1mmine", "\x1b[1mfile")


@pytest.mark.parametrize("value", UNPRINTABLE)
def test_control_characters_are_spelt_out(value: str) -> None:
    shown = spelt(f"a{value}b").replace("\n", "").replace("\t", "")
    assert shown.isprintable()
    assert table(("A",), [(value,)]).count("\n") == 1


@pytest.mark.parametrize("value", PRINTABLE)
def test_other_text_is_printed_as_it_is(value: str) -> None:
    assert spelt(value) == value
