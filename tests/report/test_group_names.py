"""Users and accounts that `hpckit report` is asked for and nobody knows, or that had no job."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer, add_program
from tests.report.groups import HOUR, NOW, accounts, row

pytestmark = pytest.mark.long
__all__ = ["accounts"]
Cli = Callable[..., Answer]


def test_a_user_whom_nobody_knows_is_a_wrong_word(here: Path, cli: Cli) -> None:
    add_program(here.parent / "bin" / "sacct", "#!/bin/sh\necho 'sacct: error: Invalid user id: "
                "nobody7' >&2\nexit 1\n")  # fmt: skip
    answer = cli("report", "--user", "nobody7")
    assert answer.status == 2
    assert "--user 'nobody7': this machine knows no such user." in answer.err


def sacctmgr(here: Path, *names: str, refuses: bool = False) -> Path:
    """Let sacctmgr show these users or accounts; return the log of how it was asked."""
    lines = "".join(f"echo {name}\n" for name in names)
    log = here.parent / "sacctmgr.log"
    no = "echo 'sacctmgr: error: Access/permission denied' >&2; exit 1\n" if refuses else ""
    text = f'#!/bin/sh\necho "$*" >> {log}\n{no}{lines}'
    add_program(here.parent / "bin" / "sacctmgr", text)
    return log


@pytest.mark.parametrize(
    ("words", "names", "said"),
    [
        (("--account", "nosuch"), ("root", "lab", "other"),
         "--account 'nosuch': Slurm's accounting has no such account. Known: lab, other, root."),
        (("--account", "lab", "--account", "alb"), ("root", "lab", "other"),
         "--account 'alb': Slurm's accounting has no such account. Did you mean 'lab'?"),
        (("--user", "daemon"), ("root", *(f"u{at}" for at in range(20))),
         "--user 'daemon': Slurm's accounting has no such user. sacctmgr show user lists them."),
    ],
)  # fmt: skip
def test_a_name_that_accounting_does_not_have_is_a_wrong_word(
    accounts, here: Path, cli: Cli, words: tuple[str, ...], names: tuple[str, ...], said: str
) -> None:
    accounts(*([row("1", NOW - HOUR, 0.5)] if "lab" in words else []))
    sacctmgr(here, *names)
    answer = cli("report", *words)
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.err


@pytest.mark.parametrize("name", ["deep learning", "théorie", "o=hpc:lab", "lab@corp"])
def test_an_account_may_have_any_name_that_slurm_takes(
    accounts, here: Path, cli: Cli, name: str
) -> None:
    asked = accounts(row("1", NOW - HOUR, 0.5, Account=name))
    said = json.loads(cli("report", "--account", name, "--by", "account", "--json").out)
    assert [group["name"] for group in said["groups"]] == [name]
    assert asked()["--accounts"] == name
    accounts()
    sacctmgr(here, "root", "lab", f"'{name}'")
    answer = cli("report", "--account", name, "--json")
    assert (answer.status, len(json.loads(answer.out)["notes"])) == (0, 1)


@pytest.mark.parametrize("unknown", ["alic", "daemon"])
def test_names_are_hidden_in_the_error_of_an_unknown_one(
    accounts, here: Path, cli: Cli, unknown: str
) -> None:
    accounts()
    sacctmgr(here, "root", "alice", "mallory")
    answer = cli("report", "--anonymous", "--user", unknown)
    assert answer.status == 2
    assert f"--user '{unknown}'" in answer.err
    assert "sacctmgr show user lists them" in answer.err
    assert not any(name in answer.err for name in ("alice", "mallory"))


def test_who_has_no_job_in_the_time_is_said(accounts, here: Path, cli: Cli) -> None:
    rows = accounts(row("1", NOW - HOUR, 0.5))
    log = sacctmgr(here, "root", "lab", "other", "alice", "daemon")
    why = "; Slurm shows others' jobs only where the site allows it"
    for words, whose in (
        ("-A lab -A OTHER", "account OTHER"),
        ("-u alice -u daemon", "daemon"),
        ("-u alice -u 1", "daemon"),  # its number
        ("-u alice -u daemon -u bin --hide-names", "2 users"),
        ("-A lab -A other -u alice -u daemon", None),
    ):
        sacctmgr(here, "root", "lab", "other", "alice", "daemon", "bin")
        said = json.loads(cli("report", *words.split(), "--json").out)["notes"]
        two = [f"no job of {name} is in this time{why}" for name in ("daemon", "account other")]
        assert said == ([f"no job of {whose} is in this time{why}"] if whose else two)
    accounts()
    whole = cli("report", "-u", "alice", "-A", "lab").out
    assert f"no job of alice in account lab is in this time{why}" in whole
    # One's own jobs, or everybody's: there is nobody to ask about.
    log.unlink()
    assert "  no job of" not in cli("report", "--all").out
    assert rows()


def test_nobody_asks_about_ones_own_name(accounts, here: Path, cli: Cli, monkeypatch) -> None:
    accounts()
    log = sacctmgr(here, "root", "lab")
    monkeypatch.setattr("hpckit.owners.login", lambda _uid=None: "me")
    for words in ((), ("--user", "me")):
        assert json.loads(cli("report", *words, "--json").out)["notes"] == [
            "no job of me is in this time"
        ]
    assert not log.exists()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (None, "'sacctmgr' exited with status 1: sacctmgr: error: Access/permission denied"),
        ((), "sacctmgr shows you no other accounts"),  # a site that shows nobody others
        (("root",), "sacctmgr shows you no other accounts"),  # or one without associations
    ],
)
def test_a_site_that_does_not_say_which_accounts_there_are_gets_a_note(
    accounts, here: Path, cli: Cli, names: tuple[str, ...] | None, why: str
) -> None:
    accounts()
    sacctmgr(here, *(names or ()), refuses=names is None)
    answer = cli("report", "--account", "lab", "--json")
    assert answer.status == 0
    first, second = json.loads(answer.out)["notes"]
    assert first.startswith("no job of account lab is in this time")
    assert second == f"hpckit cannot tell whether Slurm has this account: {why}"
