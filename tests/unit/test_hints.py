"""The usual ends of a rank get their advice, by the libraries' own words and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpckit.job_ends.failures import error_report
from hpckit.job_ends.hints import HINTS, hints
from hpckit.job_ends.tracebacks import OUT_OF_MEMORY, last_error
from hpckit.oldest import refuse_older
from hpckit.run_folders.ranks import write_rank
from hpckit.slurm.states import JobState
from hpckit.version import to_install
from tests.unit.made import make_run, rank

RUN = {
    "job_id": "11",
    "again": "hpckit shell",
    "cwd": "/work",
    "environment": "torch",
    "python": "/env/bin/python",
    "install": "Install it there, or choose",
}
TRACE = 'Traceback (most recent call last):\n  File "/w/a.py", line 2, in <module>\n    x\n'
# What the libraries wrote, here (torch 2.13 for CPUs, Open MPI 4.1) or as their users report it.
SAID = [
    ("syntax", '  File "/w/a.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax'),
    ("copy of the code", TRACE + "PermissionError: [Errno 13] Permission denied: "
     "'/home/me/runs/train-1/code/out'"),
    ("copy of the code", TRACE + "PermissionError: [Errno 13] Permission denied: "
     "'/home/me/my runs/.code/trees/0a/me/a project/out put'"),
    ("missing package", TRACE + "ModuleNotFoundError: No module named 'lightning.pytorch'"),
    ("too old", TRACE + "ImportError: torch 2.0.1+cu117 is older than 2.1, which hpckit.parallel "
     "needs: load a newer module, or choose another environment (hpckit submit --env ...)"),
    ("shadowed module", TRACE + "AttributeError: partially initialized module 'torch' has no "
     "attribute 'ones' (most likely due to a circular import)"),
    ("shadowed module", TRACE + "ImportError: cannot import name 'x' from partially initialized "
     "module 'random' (most likely due to a circular import) (/w/random.py)"),
    ("no GPU", TRACE + "AssertionError: Torch not compiled with CUDA enabled"),
    ("no GPU", "[rank0]: " + TRACE.replace("\n", "\n[rank0]: ")
     + "RuntimeError: Distributed package doesn't have NCCL built in"),
    ("no GPU", TRACE + "RuntimeError: Found no NVIDIA driver on your system. Please check that"),
    ("wrong GPU", TRACE + "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors"),
    ("GPU memory", TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB."),
    ("GPU memory", TRACE + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1"),
    ("NCCL timeout", "terminate called after throwing an instance of 'c10::DistBackendError' "
     "what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Watchdog caught collective operation "
     "timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000)"),
    ("port in use", TRACE + "torch.distributed.DistNetworkError: The server socket has failed to "
     "listen on any local network address. port: 53531, useIpv6: false, code: -98, name: "
     "EADDRINUSE, message: address already in use"),
    ("port in use", TRACE + "OSError: [Errno 98] Address already in use"),
    ("no launch", "no rank had started: srun gave up (task 0 launch failed: Unspecified error)"),
    ("host memory", f"killed by SIGKILL\n{OUT_OF_MEMORY}"),
    ("Open MPI without PMI", 'The application appears to have been direct launched using "srun", '
     "but OMPI was not built with SLURM's PMI support and therefore cannot execute"),
    ("shared library", "./a.out: error while loading shared libraries: libmpi.so.40: cannot open "
     "shared object file: No such file or directory"),
    ("newer C library", "./a.out: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by"),
    ("other processor", "rank 0 on n1: killed by SIGILL"),
    ("host memory", TRACE + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 PiB"),
    ("host memory", TRACE + "MemoryError"),
    ("host memory", "rank 2 on n1 failed first, exit status 137 (out of memory), 9.0 s after its"),
    ("host memory", "the job ran out of memory"),
    ("Open MPI as root", "-----\nmpirun has detected an attempt to run as root.\n\nRunning as"),
    ("arguments", "train.py: error: the following arguments are required: --lr"),
    ("arguments", "usage: a.py [-h]\na.py: error: unrecognized arguments: --epochs 3"),
    ("missing file", TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'data/a b'"),
    ("gloo at the end", "killed by SIGABRT; the last it wrote: terminate called without an active "
     "exception"),
    ("hang at the end", "hpckit: 1 of 2 ranks have ended, rank 1 has not, and did nothing for 5 m: "
     "hpckit has ended the run"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said"), SAID)
def test_each_usual_end_gets_its_own_advice(name: str, said: str) -> None:
    assert [row.name for row in HINTS if row.words.search(_plain(said))] == [name]
    (advice,) = hints(said, RUN)
    assert advice.startswith("hint: ")
    assert "{" not in advice


@pytest.mark.parametrize("name", ["gloo at the end", "hang at the end"])
def test_what_keeps_a_process_group_alive_is_named(name: str) -> None:
    (advice,) = hints(dict(SAID)[name], RUN)
    assert "torch.distributed.nn" in advice
    assert "deepspeed.comm" in advice


def _plain(said: str) -> str:
    return "\n".join(line.removeprefix("[rank0]: ") for line in said.splitlines())


def test_a_python_or_torch_that_is_too_old_is_named_with_its_place() -> None:
    with pytest.raises(ImportError) as error:
        refuse_older("Python", "3.9.18")
    (advice,) = hints(f"{TRACE}ImportError: {error.value}", RUN)
    assert "is /env/bin/python (environment torch), and its Python 3.9.18 is too old" in advice
    assert "an environment with Python 3.10 or newer" in advice


@pytest.mark.parametrize(
    ("may_write", "advice"),
    [
        (True, "Install it there, or choose another"),
        (False, "You may not install it there: choose"),
    ],
)
def test_into_an_environment_that_others_look_after_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, may_write: bool, advice: str
) -> None:
    """As hpckit's own where it is a module for all, which ranks without --env have."""
    run = make_run(tmp_path, command=[sys.executable, "train.py"])
    failed = rank(0, ended=20.0, exit_code=1, error=f"{TRACE}ModuleNotFoundError: No module "
                  "named 'numpy'")  # fmt: skip
    write_rank(run.dir, failed)
    monkeypatch.setattr("os.access", lambda _path, mode: may_write or mode == os.X_OK)
    (hint,) = error_report(run, [failed], JobState.FAILED).splitlines()[-1:]
    assert f"{sys.executable} (environment none), and it has no numpy. {advice}" in hint


def test_what_is_installed_beside_hpckit_is_by_its_own_python_and_who_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = f"{sys.executable} -m pip install 'textual>=8'"
    assert to_install("textual>=8") == f"Install it: {line}"
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    assert to_install("textual>=8") == f"Who installed hpckit in {sys.prefix} can add it: {line}"


def test_every_row_has_its_example() -> None:
    assert {row.name for row in HINTS} == {name for name, _ in SAID}


@pytest.mark.parametrize(
    "said",
    [
        TRACE + "ValueError: SyntaxError: no",
        TRACE.replace("    x", "    raise SyntaxError: MemoryError, EADDRINUSE") + "KeyError: 'x'",
        TRACE + "ValueError: No module named 'x'",
        TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/data/a'",
        TRACE + "RuntimeError: out of memory of ideas",
        "epoch 3: torch not compiled with CUDA enabled",
    ],
)
def test_other_errors_get_none(said: str) -> None:
    assert list(hints(said, RUN)) == []


def test_the_advice_names_the_runs_own_python_folder_and_package() -> None:
    (advice,) = hints("ModuleNotFoundError: No module named 'flash_attn'", RUN)
    assert "/env/bin/python (environment torch), and it has no flash_attn" in advice
    (advice,) = hints("FileNotFoundError: [Errno 2] No such file or directory: 'd/{0}'", RUN)
    assert "runs in /work" in advice
    assert "'d/{0}' is" in advice


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax"),
        ("import no_such_package_here\n", "No module named 'no_such_package_here'"),
        ("import socket as s\na = s.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
         "s.socket().bind(a.getsockname())\n", "Address already in use"),
        ("open('no/such.csv')\n", "'no/such.csv'"),
    ],
)  # fmt: skip
def test_what_python_really_writes_is_kept_and_advised_on(
    tmp_path: Path, text: str, words: str
) -> None:
    script, log, run = tmp_path / "a.py", tmp_path / "0.err", make_run(tmp_path)
    script.write_text(text)
    with log.open("wb") as stream:
        subprocess.run([sys.executable, script], stderr=stream, check=False)
    failed = rank(0, ended=20.0, exit_code=1, error=last_error(log))
    write_rank(run.dir, failed)
    report = error_report(run, [failed], JobState.FAILED)
    assert words in report
    assert str(script) in report
    assert report.splitlines()[-1].startswith("hint: ")
