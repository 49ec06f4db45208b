"""Half of a work in a second process: forked by a program of our own, which this test starts."""

import subprocess
import sys

import pytest

from hpckit import beside
from tests.patience import LONG_S

BEGIN = """
import os, signal, threading
from hpckit import beside
beside._running = lambda: 1
os.sched_getaffinity = lambda _process: {0, 1}
first = os.getpid()

def ask(work):
    with beside.beside(work) as second:
        return second()

def no_children():
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return True

beside.PATIENCE_S = 600.0
beside.allow()
"""
KILLED = """
def work():
    if os.getpid() != first:
        os.kill(os.getpid(), signal.SIGKILL)
    return "here"
assert ask(work) == "here"
"""
STOPPED = """
beside.PATIENCE_S = 0.2
def work():
    if os.getpid() != first:
        os.kill(os.getpid(), signal.SIGSTOP)
    return "here"
assert ask(work) == "here"
"""
STOPPED_LATER = """
beside.PATIENCE_S = 0.2
import pickle
dump = pickle.dump
def stop(ends, stream):
    dump(ends, stream)
    stream.flush()
    os.kill(os.getpid(), signal.SIGSTOP)
pickle.dump = stop
assert ask(os.getpid) == first
"""
HANGS = """
beside.PATIENCE_S = 0.2
assert ask(lambda: os.getpid() == first or threading.Event().wait()) is True
"""
# A process that SIGKILL does not end yet: one that waits for a file server.
HELD = """
beside.PATIENCE_S = 0.2
kill, held = os.kill, []
os.kill = lambda process, _signal: held.append(process)
with beside.beside(threading.Event().wait):
    pass
kill(held[0], signal.SIGKILL)
os.waitpid(held[0], 0)
"""
NO_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
assert ask(os.getpid) == first
assert len(os.listdir("/proc/self/fd")) == 4  # the three streams, and this folder
"""
FAILED = """
def work():
    raise OSError("no file")
try:
    ask(work)
except OSError as error:
    assert str(error) == "no file"
else:
    raise AssertionError
"""
LEFT = """
try:
    with beside.beside(threading.Event().wait):  # for ever
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
"""
UNPICKLABLE = """
assert ask(lambda: threading.Lock).__name__ == threading.Lock.__name__
assert ask(lambda: iter("ab").__class__ and (lambda: first))() == first
"""
SHARED = """
import pickle

class Numbers(bytearray):
    def __reduce_ex__(self, _protocol):
        return told, (pickle.PickleBuffer(self),)

def told(content):
    return type(content).__name__, bytes(content)

def work():
    assert os.getpid() != first
    return [Numbers(b"ab"), Numbers(b""), Numbers(b"cdefgh"), Numbers(b"i")]

with beside.beside(work, room=7) as second:
    found = second()
# What there is no room for is sent.
kinds = "memoryview", "memoryview", "bytearray", "memoryview"
assert found == list(zip(kinds, (b"ab", b"", b"cdefgh", b"i"))), found
"""
NO_MEMORY = """
import mmap
def refuse(*_):
    raise OSError(12, "Cannot allocate memory")
mmap.mmap = refuse
with beside.beside(os.getpid, room=8) as second:
    assert second() == first
assert len(os.listdir("/proc/self/fd")) == 4  # the three streams, and this folder
"""
CASES = {
    "answered": "assert ask(os.getpid) not in (first, None)",
    "large": "assert ask(lambda: b'x' * 3_000_000) == b'x' * 3_000_000",
    "killed": KILLED,
    "stopped": STOPPED,
    "stopped later": STOPPED_LATER,
    "hangs": HANGS,
    "held": HELD,
    "failed": FAILED,
    "left": LEFT,
    "unpicklable": UNPICKLABLE,
    "shared": SHARED,
    "no memory": NO_MEMORY,
    "no files": NO_FILES,
    "no room": """
with beside.beside(os.getpid, room=-5) as second:
    assert second() not in (first, None)
""",
    "not ours": "beside._ours.clear(); assert ask(os.getpid) == first",
    "no more processes": """
def fork():
    raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = fork
assert ask(os.getpid) == first
assert len(os.listdir("/proc/self/fd")) == 4  # the three streams, and this folder
""",
    "one core": "os.sched_getaffinity = lambda _process: {0}; assert ask(os.getpid) == first",
    "busy": "beside._running = lambda: 2; assert ask(os.getpid) == first",
    "threads": """
stop = threading.Event()
threading.Thread(target=stop.wait).start()
try:
    assert ask(os.getpid) == first
finally:
    stop.set()
""",
}


def test_running_threads_are_counted() -> None:
    """0 only where the kernel adds up while this thread changes its core."""
    assert 0 <= beside._running() < float("inf")


@pytest.mark.parametrize("case", CASES)
def test_work_is_done_once_and_leaves_no_process(case: str) -> None:
    script = BEGIN + CASES[case] + "\nassert no_children()\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_second_process_ends_where_the_first_one_was_killed() -> None:
    last = "with beside.beside(lambda: b'x' * 3_000_000): os.kill(first, signal.SIGKILL)"
    # It returns when nobody has the streams any more.
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + last], capture_output=True, timeout=LONG_S, check=False
    )
    assert (done.returncode, done.stderr) == (-9, b"")
