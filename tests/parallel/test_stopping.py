"""`should_stop`: all ranks stop after the same step, and a warning is never lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpckit.stop_marks import ALL_SIGNALLED, HEARD, OVER, STOPPED, WARNED, add_mark, marks
from tests.inference.ranks import open_mpi
from tests.inference.ranks import start as start_mpi
from tests.pages import blocks
from tests.workloads.nursery import Forked
from tests.workloads.processes import environment, free_port

# Each rank says after which of its calls it stops. None waits for another but in these calls.
_LOOP = """\
import os, sys, time
from pathlib import Path
out = Path(sys.argv[1])
for number in range(1, 100_000):
    (out / f"begun-{rank}").touch()
    time.sleep(0.001 * (rank + 1))
    if should_stop(every=int(sys.argv[2])):
        break
(out / f"stop-{rank}").write_text(str(number))
assert should_stop()  # and it stays so, without a message
"""
TORCH = f"""\
import torch.distributed as dist
from hpckit.parallel import should_stop
dist.init_process_group("gloo")
rank = dist.get_rank()
{_LOOP}dist.destroy_process_group()
"""
MPI = f"""\
from mpi4py import MPI
from hpckit.parallel import should_stop
rank = MPI.COMM_WORLD.rank
{_LOOP}"""
ALONE = f"""\
from hpckit.parallel import should_stop
rank = 0
{_LOOP}"""


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 280
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def all_there(folder: Path, name: str, ranks: int) -> bool:
    return all((folder / f"{name}-{rank}").exists() for rank in range(ranks))


def stops(folder: Path, ranks: int) -> set[str]:
    return {(folder / f"stop-{rank}").read_text() for rank in range(ranks)}


@pytest.mark.torch
@pytest.mark.parametrize("every", [1, 7])
def test_ranks_of_torch_stop_after_the_same_step(tmp_path: Path, every: int) -> None:
    script, ranks = tmp_path / "script.py", 3
    script.write_text(TORCH)
    meeting = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = [
        Forked(
            script,
            [str(tmp_path), str(every)],
            environment(RANK=rank, HPCKIT_SIGNALS=tmp_path / "signals" / str(rank), **meeting),
        )
        for rank in range(ranks)
    ]
    until(lambda: all_there(tmp_path, "begun", ranks))
    processes[1].send_signal(signal.SIGUSR2)
    assert [process.communicate(timeout=280)[1] for process in processes] == [""] * ranks
    assert [process.returncode for process in processes] == [0] * ranks
    (number,) = stops(tmp_path, ranks)
    assert (int(number) - 1) % every == 0
    said = [marks(tmp_path / "signals" / str(rank), 0) for rank in range(ranks)]
    assert said == [{STOPPED}, {HEARD, STOPPED}, {STOPPED}]


# In its first attempt the training of the page waits after 50 steps until it is stopped.
_WAITS = """\
        if step == 50 and os.environ["HPCKIT_RESTART"] == "0":
            Path(os.environ["HPCKIT_RUN_DIR"], "begun").touch()
            while not should_stop():
                pass
        step += 1
"""


def shown(page: str, name: str) -> str:
    """Return the script of a page, whose first line is its name."""
    [text] = [row.text for row in blocks(page) if row.language == "python"]
    assert text.startswith(f"# {name}\n")
    return text


def trained(folder: Path, attempt: int) -> tuple[list[str], Path]:
    """Run the page's training on two ranks; return rank 0's lines, and the checkpoint."""
    text = (
        shown("docs/should-stop.md", "goes_on.py")
        .replace("1000", "200")
        .replace("100", "20")
        .replace("        step += 1\n", _WAITS)
    )
    assert _WAITS in text
    folder.mkdir(exist_ok=True)
    (folder / "goes_on.py").write_text(text)
    place = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    place |= {"HPCKIT_RUN_DIR": folder, "HPCKIT_RESTART": attempt}
    processes = [
        Forked(folder / "goes_on.py", [], environment(RANK=rank, LOCAL_RANK=rank, **place))
        for rank in range(2)
    ]
    if not attempt:
        until((folder / "begun").exists)
        processes[1].send_signal(signal.SIGUSR2)
    ends = [process.communicate(timeout=280) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    return ends[0][0].splitlines(), folder / "checkpoints" / "last.pt"


@pytest.mark.torch
def test_the_training_of_the_page_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first, _ = trained(tmp_path / "stopped", 0)
    second, stopped = trained(tmp_path / "stopped", 1)
    whole, undisturbed = trained(tmp_path / "undisturbed", 1)
    assert (first[0], first[-1], second[0]) == ("from step 0", "saved at step 51", "from step 51")
    assert [*first[:-1], *second[1:]] == whole
    assert [line.split()[1] for line in whole[1:-1]] == [str(n) for n in range(1, 11)]
    assert stopped.read_bytes() == undisturbed.read_bytes()


def test_the_short_script_of_the_page_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    script = shown("docs/long-jobs.md", "counts.py")
    text = f"import os\nos.environ['HPCKIT_RUN_DIR'] = {str(tmp_path)!r}\n{script}"
    work = "    step += 1  # here is the work of one step\n"
    assert work in text
    waits = "    step += step < 51\n    (last.parents[1] / f'begun-{step}').touch()\n"
    process = alone(tmp_path, text.replace(work, waits))
    until((tmp_path / "begun-51").exists)
    process.send_signal(signal.SIGUSR2)
    ended(process)
    assert marks(tmp_path / "signals" / "0", 2) == {HEARD, STOPPED}
    said = ended(alone(tmp_path, text.replace("while step", "print(step)\nwhile step")))
    assert (said, (tmp_path / "checkpoints" / "step").read_text()) == ("51\n", "1000")


def test_ranks_of_mpi_stop_after_the_same_step(tmp_path: Path) -> None:
    """mpirun itself hands the signal on to all of them."""
    open_mpi()
    script = tmp_path / "script.py"
    script.write_text(MPI)
    process = start_mpi(2, script, tmp_path, 1)
    until(lambda: all_there(tmp_path, "begun", 2))
    process.send_signal(signal.SIGUSR2)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, out + err
    assert len(stops(tmp_path, 2)) == 1


ALL_ALONE: list["subprocess.Popen[str]"] = []


@pytest.fixture(autouse=True)
def none_goes_on() -> Iterator[None]:
    """End the scripts of a test that failed before their end: they would loop for ever."""
    yield
    while ALL_ALONE:
        with ALL_ALONE.pop() as process:
            process.kill()


def alone(tmp_path: Path, text: str, *words: str) -> "subprocess.Popen[str]":
    (tmp_path / "script.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(tmp_path / "script.py"), *words],
        env=environment(HPCKIT_SIGNALS=tmp_path / "signals" / "0", HPCKIT_RESTART=2),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ALL_ALONE.append(process)
    return process


def ended(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=280)
    assert (process.returncode, err) == (0, "")
    return out


def test_a_process_alone_stops_and_needs_no_torch(tmp_path: Path) -> None:
    process = alone(tmp_path, ALONE + "assert 'torch' not in sys.modules\n", str(tmp_path), "1")
    until(lambda: all_there(tmp_path, "begun", 1))
    process.send_signal(signal.SIGUSR2)
    ended(process)
    assert marks(tmp_path / "signals" / "0", 2) == {HEARD, STOPPED}


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_warning_from_before_the_import_is_not_lost(tmp_path: Path, attempt: int) -> None:
    """One of an attempt before this is none of its business."""
    add_mark(tmp_path / "signals" / "0", attempt, WARNED)
    text = "from hpckit.parallel import should_stop\nprint([should_stop() for _ in range(3)])\n"
    assert ended(alone(tmp_path, text)) == f"{[attempt == 2] * 3}\n"
    said = marks(tmp_path / "signals" / "0", 2)
    assert said == ({WARNED, HEARD, STOPPED} if attempt == 2 else set())


OWN_HANDLER = """\
import os, signal
def own(*_):
    print("own", flush=True)
def install():
    signal.signal(signal.SIGUSR2, own)
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_handler_of_the_scripts_own_hears_it_too(tmp_path: Path, order: str) -> None:
    """Such a script may end without asking should_stop: hpckit must not call it complete."""
    lines = ["install()", "from hpckit.parallel.stopping import stop_requested"]
    lines = lines if order == "before" else lines[::-1]
    wait = "os.kill(os.getpid(), signal.SIGUSR2)\nwhile not stop_requested(): pass\n"
    process = alone(tmp_path, OWN_HANDLER + "\n".join(lines) + "\n" + wait)
    if order == "after":  # the signal goes to that handler alone; the file tells the other one
        until(lambda: process.stdout is not None and process.stdout.readline() == "own\n")
        add_mark(tmp_path / "signals" / "0", 2, WARNED)
    assert ended(process) == ("own\n" if order == "before" else "")
    assert HEARD not in marks(tmp_path / "signals" / "0", 2)


# Slurm's SIGTERM to all processes of a step: the supervisor finds out what it means.
TERM = """\
import os, signal, sys, time
own = lambda *_: os.write(1, b"own\\n")  # a `print` here may meet the other one, an error
if "own" in sys.argv:
    signal.signal(signal.SIGTERM, own)
from hpckit.parallel import should_stop
print(signal.getsignal(signal.SIGTERM) in (own, signal.SIG_DFL), flush=True)
while not should_stop():
    time.sleep(0.01)
"""


def killed_by(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=280)
    return -process.returncode


def test_a_sigterm_that_slurm_sends_to_all_waits_for_what_it_means(tmp_path: Path) -> None:
    path = tmp_path / "signals" / "0"
    add_mark(path, 2, ALL_SIGNALLED)
    both = [alone(tmp_path, TERM) for _ in range(2)]
    for process in both:
        assert process.stdout
        assert process.stdout.readline() == "False\n"
        process.send_signal(signal.SIGTERM)
    both[0].send_signal(signal.SIGUSR2)  # a preemption: it may save
    assert ended(both[0]) == ""
    assert both[1].poll() is None
    add_mark(path, 2, OVER)
    both[1].send_signal(signal.SIGTERM)
    assert killed_by(both[1]) == signal.SIGTERM


@pytest.mark.parametrize(("attempt", "words"), [(1, []), (2, ["own"])])
def test_else_sigterm_is_the_scripts_own_business(
    tmp_path: Path, attempt: int, words: list[str]
) -> None:
    add_mark(tmp_path / "signals" / "0", attempt, ALL_SIGNALLED)
    process = alone(tmp_path, TERM, *words)
    assert process.stdout
    assert process.stdout.readline() == "True\n"
    process.send_signal(signal.SIGTERM)
    if not words:
        assert killed_by(process) == signal.SIGTERM
        return
    assert process.stdout.readline() == "own\n"
    process.send_signal(signal.SIGUSR2)
    assert ended(process) == ""


def test_only_who_asks_for_it_gets_a_handler(tmp_path: Path) -> None:
    text = (
        "import signal, threading\nimport hpckit.parallel\n"
        "assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL\n"
        # Python's handlers are the main thread's to install; the file is there for all.
        "found = []\n"
        "def work():\n"
        "    from hpckit.parallel import should_stop\n"
        "    found.append(should_stop())\n"
        "    try:\n        should_stop(every=0)\n"
        "    except ValueError as error:\n        found.append(str(error))\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\nprint(found)\n"
    )
    add_mark(tmp_path / "signals" / "0", 2, WARNED)
    assert ended(alone(tmp_path, text)) == "[True, 'every is 0; it must be at least 1.']\n"


def test_marks_are_lines_and_a_damaged_file_says_what_it_can(tmp_path: Path) -> None:
    path = tmp_path / "signals" / "0"
    assert marks(path, 0) == set()
    add_mark(path, 0, WARNED)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n0\nx stopped\n1 heard\n")
    add_mark(path, 0, HEARD)
    assert (marks(path, 0), marks(path, 1)) == ({WARNED, HEARD}, {HEARD})
    assert os.stat(path).st_mode & 0o022 == 0
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    add_mark(path, 0, WARNED)
    assert not (tmp_path / "elsewhere").exists()
