"""Paths in files that several users read: each user's own variables, and what is not set."""

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hpckit.collections.lockfile import read_lock
from hpckit.collections.trust import owner_name, trusted
from hpckit.doctor.environments import environment_checks
from hpckit.environments import Environment, EnvironmentKind
from hpckit.errors import ConfigError, OutsideError, UnsetVariableError
from hpckit.notify.event import Event
from hpckit.notify.sending import send
from hpckit.owners import login, user_name
from hpckit.paths import cache_folder, config_folder, home, state_folder, users_path
from hpckit.sinks import Command
from hpckit.sites import Site
from hpckit.web import connect, secret_of_file
from tests.conftest import Answer, add_program

Cli = Callable[..., Answer]
ME = pwd.getpwuid(os.getuid()).pw_name
SITE = """\
description: d
ledger: {ledger}
environments:
  good: {{kind: venv, path: /proj/$USER/venv}}
  bad: {{kind: apptainer, image: /proj/image.sif, binds: ["$NOT_SET/data:/data"]}}
"""


@pytest.fixture(autouse=True)
def as_in_cron(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "NOT_SET"):
        monkeypatch.delenv(name, raising=False)


def lab(here: Path, ledger: str = "/proj/$USER/ledger") -> None:
    (here / "templates/sites").mkdir(parents=True)
    (here / "templates/sites/lab.yaml").write_text(SITE.format(ledger=ledger))
    (here / "train.py").write_text("")


def test_the_users_own_name_stands_for_user_where_it_is_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for word in ("$USER", "${USER}"):
        assert users_path(f"~/{word}/x", "path") == str(Path.home() / ME / "x")
    monkeypatch.setenv("USER", "somebody")
    assert users_path("/$USER/$USER", "path") == "/somebody/somebody"
    # What a variable has in it is not looked at again.
    monkeypatch.setenv("ODD", "a$NOT_SET")
    assert users_path("/$ODD/$", "path") == "/a$NOT_SET/$"


def test_a_variable_that_is_not_set_is_an_error_with_its_name_and_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for word in ("$NOT_SET", "${NOT_SET}", "$USERS", "${}"):
        with pytest.raises(UnsetVariableError) as error:
            users_path(f"/proj/{word}/ca.pem", "ca_file")
        why = f"`ca_file: /proj/{word}/ca.pem` needs {word}, which is not set"
        assert error.value.why == why
        assert str(error.value) == f"{why}. Set it, or write the path without it."
    # Nobody with a number alone has a name.
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(UnsetVariableError, match=r"needs \$USER,"):
        users_path("/proj/$USER", "runs")


def test_a_user_has_one_name_everywhere(tmp_path: Path) -> None:
    assert (user_name(), login(), owner_name(tmp_path)) == (ME, ME, ME)
    assert (user_name(4_000_000_000), login(4_000_000_000)) == ("4000000000", None)


def test_an_environment_is_refused_when_it_is_used_and_the_others_are_not(
    here: Path, cli: Cli
) -> None:
    lab(here)
    words = ("submit", "serial", "train.py", "--site", "lab", "--dry-run", "--executor", "local")
    said = cli(*words, "--env", "bad")
    assert said.status == 2
    assert (
        "Environment 'bad' of site 'lab': `binds: $NOT_SET/data:/data` needs $NOT_SET, which is "
        "not set. Set it, or choose another environment with --env."
    ) in said.err
    said = cli(*words, "--env", "good")
    assert said.status == 0, said.err
    assert f"/proj/{ME}/venv" in said.out
    for command in (("sites", "show", "lab"), ("sites", "show", "lab", "--json")):
        assert cli(*command).status == 0, command


def test_a_ledger_is_refused_before_anything_is_submitted(
    here: Path, fake_slurm: Path, cli: Cli
) -> None:
    lab(here, "$NOT_SET/ledger")
    said = cli("submit", "serial", "train.py", "--site", "lab", "--executor", "slurm")
    assert said.status == 2, said.err
    assert "`ledger: $NOT_SET/ledger` needs $NOT_SET, which is not set." in said.err
    assert list(fake_slurm.glob("script-*.sh")) == []
    assert not list((here / "runs").glob("*"))


def test_doctor_says_which_environment_cannot_be_used() -> None:
    row = Environment(
        name="e", kind=EnvironmentKind.VENV, path="/$X", unset="`path: /$X` needs $X, ..."
    )
    site = Site(name="lab", description="d", environments={"e": row})
    (found,) = environment_checks(site, 20)
    assert found.what == "environment 'e': `path: /$X` needs $X, ..."


def test_servers_and_sinks_say_it_in_half_a_sentence(tmp_path: Path) -> None:
    why = r"^`{}: \$NOT_SET/f` needs \$NOT_SET, which is not set$"
    with pytest.raises(OutsideError, match=why.format("ca_file")):
        connect(urlsplit("https://localhost"), "$NOT_SET/f", 1)
    with pytest.raises(OutsideError, match=why.format("token_file")):
        secret_of_file("$NOT_SET/f", "token_file")
    event = Event(event="failure", at=1.0, job_id="42", name="train", run_id="train-1")
    with pytest.raises(OutsideError, match=why.format("run")):
        send(Command(name="c", events=("error",), argv=("$NOT_SET/f",)), event, 1)


# --- the home folder ---


def test_home_is_that_of_the_variable_else_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for said, expected in (
        ("/somewhere", Path("/somewhere")),
        ("", listed),
        ("below/here", listed),
    ):
        monkeypatch.setenv("HOME", said)
        assert home() == expected
        assert (
            config_folder({"HOME": said, "XDG_CONFIG_HOME": "below"}) == expected / ".config/hpckit"
        )
        assert cache_folder({"HOME": said}) == expected / ".cache/hpckit"
        assert state_folder({"HOME": said}) == expected / ".local/state/hpckit"
    monkeypatch.delenv("HOME")
    assert home() == listed


def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a user whom this machine does not list, as in a container."""

    def refuse(_uid: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("pwd.getpwuid", refuse)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "serial", "job.sh", "--gpus=0", "--time=5", "--executor=slurm"),
        ("report", "--site=generic"),
        ("doctor", "notify"),
        ("jupyter", "--executor=slurm", "--dry-run"),
    ],
)
def test_who_has_no_name_goes_by_the_number(
    words: tuple[str, ...], here: Path, fake_slurm: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "job.sh").write_text("true\n")
    settings = config_folder() / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("notify: {mail: {by: mail}}\n")
    settings.chmod(0o600)
    add_program(here.parent / "bin" / "mail", f'#!/bin/sh\necho "$3" > {here}/mailed\n')
    unlisted(monkeypatch)
    number = str(os.getuid())
    said = cli(*words)
    assert said.status == 0, said
    match words[0]:
        case "submit":
            (record,) = (here / "runs").glob("*/run.json")
            assert json.loads(record.read_text())["user"] == number
        case "report":
            assert f"GPU use of {number}," in said.out
        case "doctor":
            assert (here / "mailed").read_text() == f"{number}\n"


def test_who_has_no_home_is_told_what_to_set(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlisted(monkeypatch)
    assert cli("jobs").status == 0  # $HOME is enough
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HOME")
    said = cli("jobs")
    assert (said.status, said.out) == (3, "")
    assert "There is no home folder to keep settings in: $HOME is not set" in said.err
    assert "export HOME=/path/to/folder" in said.err
    assert "'below'" in no_home(monkeypatch, "below")


def no_home(monkeypatch: pytest.MonkeyPatch, said: str) -> str:
    monkeypatch.setenv("HOME", said)
    with pytest.raises(OutsideError) as error:
        home()
    return str(error.value)


@pytest.mark.parametrize("name", ["hpckit.lock", "trusted.json"])
def test_a_file_of_the_configuration_that_may_not_be_read_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(path: object, **_words: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("hpckit.files.open_regular", refuse)
    read = {"hpckit.lock": read_lock, "trusted.json": lambda path: trusted(path.parent)}[name]
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / name)
    assert str(caught.value).endswith(f"{name}: cannot be read: Permission denied.")
