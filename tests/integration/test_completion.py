"""Completion in the shells themselves: what a user sees after the Tab key."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer

BIN = Path(sys.executable).parent
SHELLS = ("bash", "zsh", "fish")
_STARTS = {
    "bash": ["bash", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
_READY = "READY> "


class Terminal:
    """A shell on a terminal of its own, to which a test types."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, env)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str, limit_s: float = 120) -> None:
        """Read until a text comes; what comes after it is kept."""
        end = time.monotonic() + limit_s
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"no {text!r} in {self.seen!r}"
            if select.select([self._fd], [], [], left)[0]:
                self.seen += os.read(self._fd, 65536).decode(errors="replace").replace("\a", "")
        self.seen = self.seen.partition(text)[2]

    def close(self) -> None:
        os.close(self._fd)
        os.waitpid(self.pid, 0)


def environment(home: Path, shell: str) -> dict[str, str]:
    return {
        "HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "LANG": "C.UTF-8",
        "SHELL": f"/bin/{shell}", "PS1": _READY, "HPCKIT_RUNS": str(home / "runs"),
    }  # fmt: skip


@pytest.fixture
def shell_script(tmp_path: Path) -> Callable[[str], Path]:
    """Write what `--show-completion` says under that shell to a file."""

    def write(shell: str) -> Path:
        if shutil.which(shell) is None:
            pytest.skip(f"there is no {shell}")
        argv = [shell, "-c", "hpckit --show-completion; true"]
        done = subprocess.run(
            argv, env=environment(tmp_path, shell), capture_output=True, text=True, check=True
        )
        path = tmp_path / f"completion.{shell}"
        path.write_text(done.stdout)
        return path

    return write


@pytest.mark.parametrize("shell", _STARTS)
def test_tab_completes_in_a_shell(
    tmp_path: Path, shell: str, shell_script: Callable[[str], Path]
) -> None:
    script = shell_script(shell)
    (tmp_path / "odd_file.py").write_text("")
    os.chdir(tmp_path)
    terminal = Terminal(_STARTS[shell], environment(tmp_path, shell))
    try:
        terminal.wait_for(_READY)
        load = "autoload -Uz compinit && compinit -u && " if shell == "zsh" else ""
        terminal.type(f"{load}. {script} && echo loa''ded\n")
        terminal.wait_for("loaded")
        terminal.wait_for(_READY)
        for typed, completed in (
            ("hpckit subm\t", "submit "),
            ("ddp --launcher torc\t", "torchrun "),
            ("--site=alv\t", "--site=alvis "),
            ("--set epo\t", "epochs="),
            ("3 odd\t", "odd_file.py"),
        ):
            terminal.type(typed)
            terminal.wait_for(completed)
    finally:
        terminal.close()


def test_fish_offers_words_with_notes(tmp_path: Path, shell_script: Callable[[str], Path]) -> None:
    script = shell_script("fish")
    (tmp_path / "odd_file.py").write_text("")

    def offered(line: str) -> list[str]:
        argv = ["fish", "-N", "-c", f"source {script}; complete -C '{line}'"]
        done = subprocess.run(
            argv, env=environment(tmp_path, "fish"), cwd=tmp_path,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    (row,) = offered("hpckit subm")
    assert row.startswith("submit\tSubmit a workload")
    assert [row.split("\t")[0] for row in offered("hpckit submit ddp --launcher ")] == [
        "mpirun", "srun", "torchrun",
    ]  # fmt: skip
    assert [row.split("\t")[0] for row in offered("hpckit submit serial odd")] == ["odd_file.py"]


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_once(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    (tmp_path / ".bashrc").write_text("alias x=y")
    argv = [shell, "-c", "hpckit --install-completion; true"]
    for _ in range(2):
        done = subprocess.run(
            argv, env=environment(tmp_path, shell), capture_output=True, text=True, check=True
        )
        assert f"Completion for {shell} is in {tmp_path}/" in done.stderr
    if shell == "bash":
        lines = (tmp_path / ".bashrc").read_text().splitlines()
        assert lines == ["alias x=y", ". ~/.bash_completions/hpckit.sh"]


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_it_is_for_the_shell_at_hand(cli: Callable[..., Answer], option: str) -> None:
    said = cli(option, "bash")
    assert (said.status, said.out) == (2, "")
    assert f"{option} is for the shell that you type it in: leave 'bash' out" in said.err
