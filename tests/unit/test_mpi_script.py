"""An MPI script runs as plain Python would run it, but for its end when it fails."""

import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.environ import scrubbed_environment
from hpckit.payload import mpi_script
from hpckit.payload.environment import rank_environment, script_command
from hpckit.payload.task import Task
from tests.patience import LONG_S
from tests.unit.test_payload import THIRD_OF_FOUR

TEXT = Path(mpi_script.__file__).read_text()


def ran(path: Path, *argv: str, ours: bool, text: str = TEXT, **options):
    starter = ("-c", mpi_script.STARTER) if ours else ()
    return subprocess.run(
        [sys.executable, *starter, path, *argv],
        env={**os.environ, "HPCKIT_MPI_SCRIPT": text, **options.pop("env", {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
        **options,
    )


LIKE_PYTHON = {
    "what it is told": "import sys; print(sys.argv, sys.path, __name__, __file__, __spec__)",
    "what stands in main": "print(sorted(globals()), __doc__, __loader__.path)",
    "an error": "def f():\n    raise ValueError('no luck')\nf()",
    "a chain": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError(1) from e",
    "a wrong line": "x = (",
    "a status": "import sys; sys.exit(3)",
    "a large status": "import sys; sys.exit(259)",
    "words": "import sys; sys.exit('wrong input')",
    "no status": "import sys; print('out'); sys.exit()",
    "true": "import sys; sys.exit(True)",
    "its own hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0])\n1 / 0",
    "exit handlers": "import atexit; atexit.register(print, 'bye'); raise SystemExit(4)",
    "a thread's error": "import threading as t\nx = t.Thread(target=lambda: 1 / 0)\n"
    "t.excepthook = lambda a: print(a.exc_type)\nx.start(); x.join()",
    "pickles": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "processes": "import multiprocessing as m\ndef f(x): return x + 1\n"
    "if __name__ == '__main__':\n    m.set_start_method('spawn')\n"
    # Not `with`, which kills the process, perhaps before it has written what it printed.
    "    p = m.Pool(1); print(p.map(f, [1, 2])); p.close(); p.join()",
}


@pytest.mark.parametrize("text", LIKE_PYTHON.values(), ids=LIKE_PYTHON)
def test_a_script_runs_as_plain_python_runs_it(tmp_path: Path, text: str) -> None:
    script, link = tmp_path / "real" / "a.py", tmp_path / "b.py"
    script.parent.mkdir()
    script.write_text(text)
    link.symlink_to(script)
    plain, ours = (ran(link, "--lr", "a b", ours=mode) for mode in (False, True))
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        plain.returncode, plain.stdout, plain.stderr,
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["what it is told", "an error", "a status", "words", "pickles", "processes"]
)
def test_a_module_runs_as_dash_m_runs_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text(f"print(__package__)\n{LIKE_PYTHON[name]}")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    plain, ours = (
        ran(Path("-m"), "pkg.a", "--lr", "a b", ours=mode, cwd=tmp_path) for mode in (False, True)
    )
    assert "pkg\n" in ours.stdout
    said = [re.sub("at 0x[0-9a-f]+", "", done.stdout) for done in (plain, ours)]
    assert said[0] == said[1]
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    ours = ran(Path("-m"), "no_such_package.train", ours=True, cwd=tmp_path)
    assert ours.returncode == 1
    assert "No module named 'no_such_package'" in ours.stderr


MPI_UP = """\
import atexit, sys, types
state = {{"finalized": False}}
fake = types.ModuleType("mpi4py.MPI")
fake.Is_initialized = lambda: {up}
fake.Is_finalized = lambda: state["finalized"]
sys.modules["mpi4py.MPI"] = fake
atexit.register(print, "the script's own handler")
sys.stdout.write("buffered ")
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [("raise ValueError(1)", 1), ("sys.exit(3)", 3), ("sys.exit(2**70)", 255),
     ("sys.exit('words')", 1), ("raise KeyboardInterrupt", 130)],
)  # fmt: skip
def test_a_rank_that_fails_tells_its_status_and_leaves_without_finalize(
    tmp_path: Path, end: str, status: int
) -> None:
    script = tmp_path / "a.py"
    script.write_text(MPI_UP.format(up=True) + end)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"\n")  # the answer
        done = ran(
            script, ours=True, env={"HPCKIT_END_FD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
        assert int(ours.recv(16)) == status
    assert done.returncode == status
    assert done.stdout == "buffered the script's own handler\n"


@pytest.mark.parametrize(
    ("up", "end", "status"),
    [(True, "", 0), (True, "sys.exit(0)", 0),
     (True, "state['finalized'] = True; sys.exit(3)", 3),
     (False, "sys.exit(3)", 3)],
)  # fmt: skip
def test_a_rank_without_a_failure_or_without_mpi_ends_as_ever(
    tmp_path: Path, up: bool, end: str, status: int
) -> None:
    script = tmp_path / "a.py"
    script.write_text(MPI_UP.format(up=up) + end)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        done = ran(
            script, ours=True, env={"HPCKIT_END_FD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
        with pytest.raises(BlockingIOError):
            ours.recv(16)
    assert done.returncode == status


def test_a_thread_that_waits_for_other_ranks_holds_nobody_up(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    waiting = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    script.write_text(MPI_UP.format(up=True) + waiting + "sys.exit(3)")
    assert "_GRACE_S = 5.0" in TEXT
    # Without a supervisor's line, as in a container that closed it.
    done = ran(script, ours=True, text=TEXT.replace("_GRACE_S = 5.0", "_GRACE_S = 0.1"))
    assert done.returncode == 3


def test_only_mpis_scripts_are_run_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a job that was submitted from an MPI rank.
    monkeypatch.setenv("HPCKIT_MPI_SCRIPT", "old")
    assert (
        scrubbed_environment(
            {"HPCKIT_MPI_SCRIPT": "x", "HPCKIT_END_FD": "9", "HPCKIT_END_INODE": "7"}
        )
        == {}
    )
    python = ("apptainer", "exec", "i.sif", "python")
    task = Task(run_dir="/r", run_id="r", executor="slurm", launcher="srun", nodes=1, mpi=True,
                tasks_per_node=4, command=(*python, "a.py", "-x"), python=python,
                device=None)  # fmt: skip
    assert script_command(task) == (*python, "-c", mpi_script.STARTER, "a.py", "-x")
    assert rank_environment(task, THIRD_OF_FOUR, "cpu")["HPCKIT_MPI_SCRIPT"] == TEXT
    other = replace(task, mpi=False)
    assert script_command(other) == other.command
    assert "HPCKIT_MPI_SCRIPT" not in rank_environment(other, THIRD_OF_FOUR, "cpu")


def test_nothing_is_imported_from_the_folder_the_job_runs_in(tmp_path: Path) -> None:
    script = tmp_path / "mine" / "a.py"
    script.parent.mkdir()
    script.write_text("import atexit, os, socket, threading, pathlib, importlib.machinery\n")
    strangers = tmp_path / "theirs"
    strangers.mkdir()
    for name in ("atexit", "socket", "threading", "contextlib", "pathlib", "selectors"):
        (strangers / f"{name}.py").write_text(f"open('imported-{name}', 'w')\n")
    done = ran(script, ours=True, cwd=strangers)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(strangers.glob("imported-*")) == []
