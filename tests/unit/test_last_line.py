"""What a process of a job says at its end is one write: lines of several ranks do not mix."""

import ast
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import hpckit

PACKAGE = Path(hpckit.__file__).parent
# Rooms whose programs run in jobs.
ROOMS = ("payload", "submission", "session", "notify", "schedulers", "api", "report")
SAYS = "from hpckit.payload.last_line import end_with; end_with('hpckit: no\\nroom')"


@pytest.mark.parametrize("flags", [("-u",), ()])
def test_a_process_writes_its_last_line_at_once(flags: tuple[str, ...]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        done = subprocess.run([sys.executable, *flags, "-c", SAYS], stderr=theirs, check=False)
        theirs.close()
        said = list(iter(lambda: ours.recv(100), b""))  # one for each write
    assert (done.returncode, said) == (1, [b"hpckit: no\nroom\n"])


def test_a_full_disk_changes_no_status() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-u", "-c", SAYS], stderr=full, check=False)
    assert done.returncode == 1


def _ends_with_text(node: ast.AST) -> bool:
    """Say whether a node is `sys.exit(TEXT)`, or the same as an exception."""
    if not (isinstance(node, ast.Call) and node.args):
        return False
    called, (text, *_) = ast.unparse(node.func), node.args
    if called not in ("sys.exit", "SystemExit"):
        return False
    words = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return words or isinstance(text, ast.JoinedStr) or ast.unparse(text).startswith("str(")


def test_no_program_of_a_job_ends_with_a_text() -> None:
    found = [
        f"{path}:{node.lineno}"
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.expr) and _ends_with_text(node)
    ]
    assert found == []
