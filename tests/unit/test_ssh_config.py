"""Entries for ssh: what OpenSSH itself makes of them, and names that could mean something else."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.api.ssh_config import Entry, write_entry
from hpckit.errors import OutsideError, RequestError
from hpckit.file_locks import held_alone
from hpckit.session.own_sshd import host_key, sshd_argv
from hpckit.session.ssh_config import (
    Login,
    entry,
    known_host,
    lasting_entry,
    read_login,
    tunnel_words,
)

LOGIN = Login(user="alice", host="login.example.org")
WEIRD = st.text(min_size=1).filter(lambda text: not text.isascii() or not text.isalnum())


def understood(text: str, host: str, folder: Path) -> dict[str, str]:
    """Return what ssh understands of a configuration for a host."""
    if not shutil.which("ssh"):
        pytest.skip("there is no ssh here")
    (folder / "config").write_text(text)
    argv = ["ssh", "-G", "-F", folder / "config", host]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def test_a_jobs_entry_goes_through_the_login_node(tmp_path: Path) -> None:
    found = understood(entry("hpckit-12_3", "c1", LOGIN), "hpckit-12_3", tmp_path)
    assert (found["hostname"], found["user"]) == ("c1", "alice")
    assert found["proxycommand"] == "ssh -W %h:%p alice@login.example.org"
    assert found["stricthostkeychecking"] == understood("", "c1", tmp_path)["stricthostkeychecking"]
    direct = understood(entry("hpckit-12", "c1", LOGIN, direct=True), "hpckit-12", tmp_path)
    assert "proxycommand" not in direct


def test_the_lasting_entry_calls_hpckit_on_the_login_node(tmp_path: Path) -> None:
    program = "/home/a lice/100% mine/it's/hpckit"
    found = understood(lasting_entry(LOGIN, (program, "ssh-config", "--proxy")), "hpckit", tmp_path)
    ssh, login, there = shlex.split(found["proxycommand"].replace("%%", "%"))
    assert (ssh, login) == ("ssh", "alice@login.example.org")
    assert shlex.split(there) == [program, "ssh-config", "--proxy"]
    direct = lasting_entry(LOGIN, ("/bin/hpckit",), "other", direct=True)
    assert understood(direct, "other", tmp_path)["proxycommand"] == "/bin/hpckit"


@given(WEIRD)
def test_a_name_that_could_mean_more_is_refused(word: str) -> None:
    if word.strip(".-_").isascii() and word.strip(".-_").isalnum():
        return
    with pytest.raises(RequestError):
        read_login(f"{word} x", "alice")
    with pytest.raises(RequestError):
        entry("hpckit-1", f"c1 {word}", LOGIN)
    with pytest.raises(RequestError):
        entry(f"*{word}", "c1", LOGIN)


@pytest.mark.parametrize(
    "word", ["", "-oProxyCommand=x", "a b", "a\nHost *", "a#", "x@", "@x", "*"]
)
def test_no_login_node_is_called_so(word: str) -> None:
    with pytest.raises(RequestError, match="--login"):
        read_login(word, "alice")


def test_no_line_breaks_get_into_a_command() -> None:
    with pytest.raises(RequestError):
        lasting_entry(LOGIN, ("/home/x\nHost */hpckit",))


def test_login_nodes_and_tunnels_as_typed() -> None:
    assert str(read_login("bob@login1", "alice")) == "bob@login1"
    assert str(read_login("login1", "alice")) == "alice@login1"
    line = shlex.join(tunnel_words(8888, 21_000, "c1", LOGIN))
    assert line == "ssh -N -L 8888:127.0.0.1:21000 -J alice@login.example.org alice@c1"
    assert known_host("hpckit", "ssh-ed25519 AAAA hpckit\n") == "hpckit ssh-ed25519 AAAA"


def test_an_entry_is_written_beside_what_is_the_users_own(here: Path) -> None:
    home = here.parent / "home" / ".ssh"
    text = "# Made by hpckit ssh-config. x\nHost hpckit\n"
    path, included = write_entry(Entry(alias="hpckit", text=text))
    assert (path, included) == (home / "config.d" / "hpckit", False)
    assert path.read_text() == text
    assert [row.stat().st_mode & 0o777 for row in (path, path.parent, home)] == [
        0o600,
        0o700,
        0o700,
    ]
    (home / "config").write_text("Include config.d/hpckit*\n")
    assert write_entry(Entry(alias="hpckit", text=text))[1]
    path.write_text("Host hpckit\n")
    with pytest.raises(OutsideError, match="not of hpckit's making"):
        write_entry(Entry(alias="hpckit", text=text))
    assert path.read_text() == "Host hpckit\n"


def test_an_entry_of_another_name_is_written_where_the_include_line_finds_it(here: Path) -> None:
    home = here.parent / "home" / ".ssh"
    found = Entry(alias="two", text="# Made by hpckit ssh-config. x\nHost two\n")
    assert write_entry(found) == (home / "config.d" / "hpckit-two", False)
    for line in (
        "Include config.d/hpckit*",
        'include = "~/.ssh/config.d/*"',
        f"Include x {home}/*",
    ):
        (home / "config").write_text(f"\n{line}\n")
        assert write_entry(found)[1], line
    for line in (
        "Include config.d/work",
        "# Include config.d/hpckit*",
        "Include /config.d/hpckit*",
    ):
        (home / "config").write_text(f"{line}\n")
        assert not write_entry(found)[1], line


def test_an_own_sshd_lets_in_this_user_by_keys_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd = here.parent / "bin" / "sshd"
    sshd.write_text("")
    sshd.chmod(0o755)
    monkeypatch.setattr("hpckit.session.own_sshd._PLACES", (str(sshd),))
    environ = {"SLURM_JOB_ID": "12", "CUDA_VISIBLE_DEVICES": "0,1", "TMPDIR": 'a" PermitTunnel "b'}
    argv = sshd_argv(Path("/home/alice/key"), "alice", environ)
    assert argv[:5] == (str(sshd), "-i", "-e", "-f", "/dev/null")
    assert {"-oAllowUsers=alice", "-oAuthenticationMethods=publickey", "-oUsePAM=no"} < {*argv}
    assert argv[-1] == '-oSetEnv="SLURM_JOB_ID=12" "CUDA_VISIBLE_DEVICES=0,1"'
    monkeypatch.setattr("hpckit.session.own_sshd._PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OutsideError, match="no sshd"):
        sshd_argv(Path("/home/alice/key"), "alice", environ)


def test_a_host_key_is_made_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = here.parent / "bin" / "ssh-keygen"
    made.write_text('#!/bin/sh\necho key >"$9"\necho public >"$9.pub"\n')
    made.chmod(0o755)
    key = host_key()
    assert (key.read_text(), Path(f"{key}.pub").read_text()) == ("key\n", "public\n")
    assert {row.name for row in key.parent.iterdir()} == {key.name, f"{key.name}.pub", "lock"}
    key.unlink()

    @contextmanager
    def after_another(path: Path, what: str) -> Iterator[int]:
        with held_alone(path, what) as held:
            key.write_text("theirs")  # the command that had the lock before has made it
            yield held

    monkeypatch.setattr("hpckit.session.own_sshd.held_alone", after_another)
    assert host_key() == key
    assert key.read_text() == "theirs"
