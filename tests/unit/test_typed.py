"""What people type, and what they are told: help, usage, narrow terminals, odd places."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.cli.output import table
from hpckit.collections import builtin_folder
from hpckit.job.checks import CHECKS
from tests.conftest import HPCKIT, Answer, add_program, write_files
from tests.patience import LONG_S

Cli = Callable[..., Answer]
WORKLOADS = sorted(path.parent.name for path in builtin_folder().glob("workloads/*/workload.yaml"))


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_line_that_workloads_show_gives_is_one_that_submit_takes(
    cli: Cli, here: Path, name: str
) -> None:
    page = cli("workloads", "show", name).out
    [line] = [row for row in page.splitlines() if row.startswith("  submit ")]
    words = shlex.split(line.removeprefix("  submit").strip())
    at = words.index("KEY=VALUE")
    assert words[:2] == ["hpckit", "submit"]
    typed = [*words[1 : at - 1], *words[at + 1 :], "--dry-run"]
    assert cli(*typed).status == 0


@pytest.mark.parametrize("command", ["submit", "resubmit", "doctor mpi", "doctor gpu"])
def test_every_option_has_a_line_of_help(cli: Cli, here: Path, command: str) -> None:
    lines = cli(*command.split(), "--help").out.partition("Options:")[2].splitlines()
    options = [number for number, line in enumerate(lines) if line.startswith("  -")]
    assert options
    for number in options:
        after = "".join(lines[number + 1 : number + 2])
        help_text = lines[number].strip().partition("  ")[2] or (after.startswith("   ") and after)
        assert help_text, lines[number]


def test_the_help_names_the_checks_and_what_comes_last(cli: Cli, here: Path) -> None:
    words = cli("submit", "--help").out
    assert all(check in "".join(words.split()) for check in CHECKS)
    assert "[-- ARG...]" in words
    assert "-- COMMAND [ARG...]" in cli("sample", "--help").out


def test_a_dry_run_says_whose_script_it_prints(cli: Cli, here: Path) -> None:
    assert "--executor local prints that script" in cli("submit", "ddp", "--dry-run").err
    for word in ("slurm", "local"):
        said = cli("submit", "ddp", "--dry-run", "--executor", word)
        assert "--executor local prints" not in said.err


def test_a_dry_run_where_slurm_answers_has_nothing_to_add(cli: Cli, fake_slurm: Path) -> None:
    assert "--executor" not in cli("submit", "ddp", "--dry-run").err


@pytest.mark.parametrize(("strategy", "devices"), [("serial", "no GPU"), ("ddp", "no GPU")])
def test_a_gpu_that_nobody_asked_for_is_not_missed(
    cli: Cli, here: Path, strategy: str, devices: str
) -> None:
    (here / "one.py").write_text("print(1)\n")
    local = ("submit", strategy, "one.py", "--executor", "local", "--dry-run")
    assert "CUDA" not in os.environ.get("CUDA_VISIBLE_DEVICES", "")
    said = cli(*local)
    assert (said.status, "note:" in said.err) == (0, False)
    assert devices in said.err
    asked = cli(*local, "--gpus", "1").err
    assert "this machine has no GPU, the run asks for 1 x 1" in asked
    assert ("(gloo)" in asked) is (strategy == "ddp")


@pytest.mark.parametrize(("words", "note"), [("--lr 1", ""), ("--nodes 2 --gpus=1", "--nodes, ")])
def test_hpckits_options_after_the_dashes_are_noticed(
    cli: Cli, here: Path, words: str, note: str
) -> None:
    (here / "one.py").write_text("print(1)\n")
    said = cli("submit", "ddp", "one.py", "--dry-run", "--", *words.split())
    assert said.status == 0
    assert (f"note: {note}" in said.err and "your script gets" in said.err) is bool(note)


WANTS = {"templates/sites/payer.yaml": "description: d\naccount_required: true\n"}
ASSOC = "box|phys||\nbox|chem||\n"


def accounting(here: Path, default: str, code: int = 0) -> None:
    """Put a sacctmgr on PATH that knows the user's default account, or fails."""
    answers = f'case "$*" in *DefaultAccount*) echo "{default}";; *) printf "{ASSOC}";; esac'
    add_program(here.parent / "bin" / "sacctmgr", f"#!/bin/sh\n{answers}\nexit {code}\n")


@pytest.mark.parametrize(
    ("default", "code", "options", "status", "says"),
    [
        (
            "",
            0,
            "",
            2,
            "your accounts in Slurm: phys, chem). (--skip-check account submits it anyway.)",
        ),
        ("", 0, "--account phys", 0, ""),
        ("", 0, "--skip-check account", 0, ""),
        ("phys", 0, "", 0, "note: account: phys, your default in Slurm"),
        ("", 1, "", 0, "note: site 'payer' needs an account. You gave none, and Slurm does not"),
    ],
)
def test_a_site_that_needs_an_account(
    cli: Cli, here: Path, default: str, code: int, options: str, status: int, says: str
) -> None:
    write_files(here, WANTS)
    accounting(here, default, code)
    said = cli("submit", "ddp", "--site", "payer", "--dry-run", *options.split())
    assert (said.status, says in said.err) == (status, True), said.err
    assert ("account" in said.err) is bool(says)


def test_on_this_machine_nobody_pays(cli: Cli, here: Path) -> None:
    write_files(here, WANTS)
    accounting(here, "")
    local = ("submit", "ddp", "--site", "payer", "--dry-run", "--executor", "local")
    assert "account" not in cli(*local).err


HEADS = ("JOBID", "NAME", "RUN")
ROWS = [("local-10ba5f_1", "train", "train-20261122-065537-03d809"), ("7", None, "a b c " * 9)]


@pytest.mark.parametrize("columns", [140, 80, 60, 40])
def test_a_table_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = table(HEADS, ROWS)
    assert max(len(line) for line in text.splitlines()) <= columns
    assert all(word in text for row in ROWS for word in (row[0], row[2].split()[0]))
    assert text.count(" c") == 9
    assert (text.splitlines()[0].split() == [*HEADS]) is (columns > 40)


def test_a_table_in_a_file_has_its_whole_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(table(HEADS, ROWS).splitlines()) == 3


def hpckit(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HPCKIT, *words],
        env={**os.environ, **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=LONG_S,
    )


def test_a_folder_that_is_gone_is_one_line(here: Path) -> None:
    gone = here / "gone"
    gone.mkdir()
    program = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); "
    start = [sys.executable, "-c", program + "os.execv(os.sys.executable, os.sys.orig_argv[3:])"]
    done = subprocess.run(
        [*start, *HPCKIT, "jobs"],
        env={**os.environ, "PWD": str(gone)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert f"The folder you are in, {gone}, no longer exists." in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
def test_an_ascii_locale_ends_no_command(here: Path) -> None:
    folder = here / "Prüfung"
    folder.mkdir()
    (folder / "größe.py").write_text("print('Größe')\n", encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    words = ("submit", "serial", "größe.py", "--executor", "local", "--dry-run")
    done = hpckit(*words, cwd=folder, **ascii_only)
    assert done.returncode == 0, done.stderr
    assert f"{folder}/größe.py" in done.stdout
    done = hpckit("status", "größe→", cwd=folder, **ascii_only)
    assert (done.returncode, "'größe→'" in done.stderr) == (2, True), done.stderr


@pytest.mark.long
def test_what_an_encoding_lacks_is_spelt_out_and_no_script_is_changed(here: Path) -> None:
    chosen = {"PYTHONIOENCODING": "ascii"}
    (here / "größe.py").write_text("print()\n")
    words = ("submit", "serial", "größe.py", "--executor", "local")
    assert hpckit(*words, "--name", "größe", "--wait", **chosen).returncode == 0
    done = hpckit("jobs", **chosen)
    assert (done.returncode, r"gr\xf6\xdfe" in done.stdout) == (0, True), done
    [row] = json.loads(hpckit("jobs", "--json", **chosen).stdout)["jobs"]
    assert row["state"] == "COMPLETED"
    done = hpckit(*words, "--dry-run", **chosen)
    assert (done.returncode, done.stdout) == (3, "")
    assert r"cannot be written to stdout: its encoding, ascii, has no '\xf6'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_line_to_copy_keeps_what_was_typed(here: Path, cli: Callable[..., Answer]) -> None:
    (here / "t.py").write_text("")
    answer = cli("submit", "ddp", "t.py", "--nodes", "2", "--lr", "-1", "--gpus", "4")
    assert "hpckit submit ddp t.py --nodes 2 --gpus 4 -- --lr -1" in answer.err
