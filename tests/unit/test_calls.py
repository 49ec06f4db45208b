"""Functions as jobs, from their pickles to their results: `hpckit.call` and `hpckit.map`."""

import errno
import functools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hpckit
from hpckit import errors
from hpckit.api import call as calls
from hpckit.api.run import Run
from hpckit.api.run_status import wait_through
from hpckit.errors import DamagedRunError, JobError, RequestError, StillRunningError
from hpckit.payload import function as in_job
from hpckit.run_folders.runs import read_run
from hpckit.submission.retry import RetryNote, write_note
from tests import raisers
from tests.pages import ROOT
from tests.unit.made import make_run
from tests.unit.played_slurm import answers, squeue_row


async def asking() -> int:
    return 7


def counting(most: int) -> Iterator[int]:
    yield from range(most)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hpckit.call(counting, 3), r"lambda: list\(counting\(\.\.\.\)\)"),
        (lambda: hpckit.map(functools.partial(counting), [3]), "counting is a generator"),
        (lambda: hpckit.call(asking), r"asking is asynchronous .* asyncio\.run\(asking\("),
        (lambda: hpckit.map(asking, []), "asking is asynchronous"),
    ],
    ids=["generator", "partial", "async", "map"],
)
def test_what_would_do_nothing_in_its_job_is_refused(
    here: Path, call: Callable[[], object], says: str
) -> None:
    """After the queue the job said that a generator, or a coroutine, cannot be pickled."""
    with pytest.raises(RequestError, match=says):
        call()
    assert not (here / "runs").exists()


def test_a_misspelt_option_of_a_call_is_told_so(here: Path) -> None:
    with pytest.raises(RequestError, match=r"argument 'gpu'\. .* no such option: Did .*'gpus'\?"):
        hpckit.call(asked_twice, 1, gpu=2)
    for word, instead in (("gpus_per_node", "Use --gpus."), ("mail_type", "sbatch={'mail-type': ")):
        with pytest.raises(RequestError, match=f"no such option: .*{re.escape(instead)}"):
            hpckit.call(asked_twice, 1, **{word: 2})
    with pytest.raises(RequestError) as said:
        hpckit.call(asked_twice)
    assert str(said.value) == "asked_twice: missing a required argument: 'x'."


def asked_twice(x: int) -> int:
    return 2 * x


def test_what_cannot_be_pickled_is_refused_before_anything_is_made(here: Path) -> None:
    with pytest.raises(RequestError, match="cannot be pickled"), open("x", "w") as file:
        hpckit.call(print, file, gpus=0)
    assert not (here / "runs").exists()


def test_a_map_over_nothing_submits_nothing(here: Path) -> None:
    found = hpckit.map(print, [])
    assert (len(found), list(found), found.results()) == (0, [], [])
    assert not (here / "runs").exists()


@pytest.mark.parametrize("name", raisers.ENDS)
def test_an_exception_comes_out_of_a_result_as_it_was(
    name: str, tmp_path: Path, here: Path
) -> None:
    run = result_of(here, functools.partial(raisers.end, name))
    error = run.exception()
    raisers.check(name, error)
    assert error is not None
    with pytest.raises(raisers.raised_by_result(error)):
        run.result()


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (lambda: sys.exit(0), "SystemExit(0)"),
        (raisers.throw(KeyboardInterrupt()), "KeyboardInterrupt()"),
        (raisers.throw(GeneratorExit()), "GeneratorExit()"),
    ],
)
def test_a_function_that_exits_does_not_end_the_program_that_asks(
    ends: Callable[[], None], said: str, here: Path
) -> None:
    call = result_of(here, ends)
    with pytest.raises(JobError, match=re.escape(f"the function ended with {said} and")) as caught:
        call.result()
    assert type(caught.value.__cause__).__name__ == said.partition("(")[0]
    with pytest.raises(JobError):
        list(calls.Calls([call]))


def test_results_are_had_by_their_number(here: Path) -> None:
    one = result_of(here, lambda: 7)
    several = calls.Calls([one, one, one])
    assert (several[-1], several[1:]) == (7, [7, 7])
    with pytest.raises(IndexError):
        several[3]


@pytest.mark.parametrize("array", [None, {"job_id": "local-8", "index": 0}], ids=["job", "array"])
def test_a_call_that_runs_again_has_the_number_of_its_item(
    here: Path, array: dict[str, Any] | None
) -> None:
    """It was 0 in an array of failed tasks, so that its result passed for the first item's."""
    command = ["python", "/x/hpckit/payload/function.py", "/x/function.pkl"]
    make_run(here / "runs", "f-1", job_id="local-1", executor="local", command=command)
    again = {"command": [*command, "--item", "3"], "array": array, "executor": "local"}
    make_run(here / "runs", "f-2", job_id="local-8_0" if array else "local-8", **again)
    found = [row for row in hpckit.runs() if isinstance(row, calls.Call)]
    assert {row.run_id: row.index for row in found} == {"f-1": 0, "f-2": 3}


def test_an_arrays_id_says_how_all_of_its_tasks_are_had(here: Path) -> None:
    for at in range(2):
        place = {"job_id": "local-7", "index": at}
        make_run(here / "runs", f"f_{at}", job_id=f"local-7_{at}", executor="local", array=place)
    every = hpckit.runs("local-7")
    with pytest.raises(
        hpckit.RequestError, match=re.escape(", or all of them with hpckit.runs('local-7')")
    ):
        hpckit.find("local-7")
    with pytest.raises(hpckit.RequestError) as said:
        hpckit.stats("local-7")
    assert str(said.value).endswith("local-7_0, or all of them with hpckit.runs('local-7').stats()")
    assert [row.job.job_id for row in every.stats()] == ["local-7_0", "local-7_1"]


def result_of(here: Path, function: Any) -> "calls.Call[Any]":
    """Write what a function's job would, without a job; return its call."""
    folder = make_run(here / "runs", "f-1", job_id="local-1", executor="local").dir
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001  # also SystemExit
        path = folder / in_job.FOLDER / in_job.result_name(0)
        in_job._tell_error(path, error)
    else:
        in_job.write_own(
            folder / in_job.FOLDER / in_job.result_name(0),
            {"python": in_job.VERSION, "outcome": "value"},
            [pickle.dumps(value)],
        )
    return calls.Call(read_run(folder))


def test_a_result_is_that_of_the_job_that_tries_it_again(here: Path, fake_slurm: Path) -> None:
    asked = {"target": "x", "retry": ["fail"]}
    of = {"of": "f-1", "job_id": "11", "number": 1, "kind": "fail", "changes": {}, "text": "x"}
    first = make_run(here / "runs", "f-1", job_id="11", request=asked)
    second = make_run(here / "runs", "f-2", job_id="12", request=asked, retry=of)
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    call: calls.Call[int] = calls.Call(first)
    path = call._path(0)
    in_job._tell_error(path, ValueError("once"))
    # What it raised is no result yet: another job may follow.
    with pytest.raises(StillRunningError, match="Job 11 has no result"):
        call.result(timeout=0)
    write_note(first.dir, RetryNote(text="it failed", run_id="f-2", job_id="12"))
    header = {"python": in_job.VERSION, "outcome": "value"}
    in_job.write_own(calls.Call(second)._path(0), header, [pickle.dumps(7)])
    assert (call.result(timeout=0), call.done()) == (7, True)
    assert [row.result() for row in calls.Calls([call]).as_completed(timeout=0)] == [7]


def test_a_call_that_can_never_start_is_done(here: Path, fake_slurm: Path) -> None:
    """A loop that waits for `done()` went on for ever; `result` and `as_completed` did not wait."""
    call: calls.Call[int] = calls.Call(make_run(here / "runs", "f-1", job_id="11"))
    waits = squeue_row("11", "PENDING", reason="DependencyNeverSatisfied", start="N/A", nodes="")
    answers(fake_slurm, squeue_out=waits)
    assert call.done()
    with pytest.raises(JobError, match="Job 11 can never start: "):
        call.result(timeout=0)
    answers(fake_slurm, squeue_out=squeue_row("11", "PENDING", reason="Priority", start="N/A"))
    assert not call.done()


def test_a_call_that_never_started_says_so(here: Path, fake_slurm: Path) -> None:
    """It said that no rank is the cause, and that the job's log is empty."""
    call: calls.Call[int] = calls.Call(make_run(here / "runs", "f-1", job_id="11"))
    gone = {"reason": "DependencyNeverSatisfied", "start": "N/A", "nodes": "", "elapsed": "0:00"}
    answers(fake_slurm, squeue_out=squeue_row("11", "CANCELLED", **gone))
    with pytest.raises(JobError) as said:
        call.result()
    why = "The job of its --after did not end as required, so it will never start."
    assert str(said.value) == f"Job 11 is CANCELLED: it never started. {why}"
    assert call.errors() == f"the job never started: it is CANCELLED. {why}"


def test_a_call_whose_folder_is_gone_says_so(here: Path, fake_slurm: Path) -> None:
    """It said that no rank had started, or, after 10 s, that the result is not there."""
    call: calls.Call[int] = calls.Call(make_run(here / "runs", "f-1", job_id="11"))
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED"))
    shutil.rmtree(call.dir)
    with pytest.raises(
        errors.NotFoundError, match=r"The folder of run f-1 \(job 11\), .*, is gone"
    ):
        call.result()


def test_waiting_goes_on_with_retries_and_a_run_stays_itself(here: Path, fake_slurm: Path) -> None:
    """Its state was that of the retry, beside its own logs; and once seen it was not waited for."""
    asked = {"target": "x", "retry": ["fail"]}
    of = {"of": "f-1", "job_id": "11", "number": 1, "kind": "fail", "changes": {}, "text": "x"}
    run = Run(make_run(here / "runs", "f-1", job_id="11", request=asked))
    make_run(here / "runs", "f-2", job_id="12", request=asked, retry=of)
    write_note(run.dir, RetryNote(text="it failed", run_id="f-2", job_id="12"))
    first, second = squeue_row("11", "FAILED"), squeue_row("12", "RUNNING")
    answers(fake_slurm, squeue_out=f"{first}\n{second}")
    assert run.state == "FAILED"
    with pytest.raises(StillRunningError):
        run.wait(timeout=0)
    answers(fake_slurm, squeue_out=f"{first}\n{squeue_row('12', 'COMPLETED')}")
    for held in (run, pickle.loads(pickle.dumps(Run(run._folder)))):
        assert held.wait(timeout=0) is held
        assert (held.state, held.status().run.run_id) == ("FAILED", "f-1")
        assert held.status().document()["resubmitted_as"] == "12"
        assert [(row.state, row.run.run_id) for row in wait_through([held])] == [
            ("COMPLETED", "f-2")
        ]
    assert hpckit.wait([run, "12"]) == [run, hpckit.find("12")]


def test_a_function_travels_with_hpckit_itself(tmp_path: Path) -> None:
    """As those of a notebook that begins with `import hpckit`; its module could not be pickled."""
    assert pickle.loads(calls._pickled(hpckit)) is hpckit
    program = tmp_path / "program.py"
    program.write_text(
        "import hpckit, pickle, sys\n"
        "from hpckit.api.call import _pickled\n"
        "def version():\n    return hpckit.__version__\n"
        "sys.stdout.buffer.write(_pickled(version))\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, check=True, cwd=ROOT)
    assert pickle.loads(done.stdout)() == hpckit.__version__


def test_a_class_keeps_its_attributes(here: Path) -> None:
    error = result_of(here, functools.partial(raisers.end, "several")).exception()
    assert isinstance(error, raisers.SeveralArgumentsError)
    assert (error.host, error.port) == ("c1", 80)


@pytest.mark.long
def test_a_function_of_the_program_travels_from_a_spawned_process_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, sys\n"
        "from hpckit.api.call import _pickled\n"
        "def double(x):\n    return 2 * x\n"
        "def work(path):\n    open(path, 'wb').write(_pickled(double))\n"
        "if __name__ == '__main__':\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    process = spawn.Process(target=work, args=sys.argv[1:])\n"
        "    process.start(), process.join()\n"
    )
    subprocess.run([sys.executable, str(program), str(tmp_path / "pickle")], check=True)
    double = pickle.loads((tmp_path / "pickle").read_bytes())
    assert double(21) == 42


@pytest.mark.parametrize(
    ("name", "path", "top"),
    [
        ("pkg.sub.lib", "src/pkg/sub/lib.py", "src"),
        ("pkg.sub", "src/pkg/sub/__init__.py", "src"),
        ("pkg.__main__", "src/pkg/__main__.py", "src"),
        ("lib", "src/lib.py", None),
        ("alias.lib", "src/lib.py", None),
        ("", "src/lib.py", None),
    ],
)
def test_a_functions_module_says_where_it_is_imported_from(
    tmp_path: Path, name: str, path: str, top: str | None
) -> None:
    module = ModuleType("module")
    module.__file__ = str(tmp_path / path)
    module.__spec__ = ModuleSpec(name, None) if name else None
    assert calls._source(module) == (tmp_path / path, tmp_path / top if top else None)


def test_what_cannot_be_pickled_of_an_exception_is_left_out(here: Path) -> None:
    error = result_of(here, functools.partial(raisers.end, "locked")).exception()
    assert isinstance(error, raisers.LockedError)
    assert (error.kept, hasattr(error, "lock")) == ("kept", False)


def test_a_class_that_is_not_here_is_named(here: Path) -> None:
    run = result_of(here, lambda: 1 / 0)
    path = run._path(0)
    header = json.loads(path.read_bytes().partition(b"\n")[0])
    in_job.write_own(path, header | {"type": "lab.GoneError"}, [b"clab\nGoneError\n."])
    error = run.exception()
    assert isinstance(error, JobError)
    assert "lab.GoneError: division by zero" in str(error)
    assert "1 / 0" in str(error.__cause__)


class Trap:
    """A pickle that shows that it was loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("loaded",))


@pytest.mark.parametrize("opened", ["run folder", "folder", "link to the folder", "link", "fifo"])
def test_nothing_is_loaded_that_others_could_have_written(here: Path, opened: str) -> None:
    run = result_of(here, Trap)
    path = run._path(0)
    if opened == "run folder":
        run.dir.chmod(0o777)
    elif opened == "folder":
        path.parent.chmod(0o770)
    elif opened == "link to the folder":
        path.parent.rename(here / "elsewhere")
        path.parent.symlink_to(here / "elsewhere")
    elif opened == "link":
        path.rename(path.with_name("other"))
        path.symlink_to("other")
    else:
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(DamagedRunError):
        run.result()
    assert not (here / "loaded").exists()


def test_a_result_is_readable_by_nobody_else(here: Path) -> None:
    old = os.umask(0)
    try:
        run = result_of(here, lambda: 7)
    finally:
        os.umask(old)
    run.dir.chmod(0o755)
    path = run._path(0)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert run.result() == 7


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"outcome": "value"}\nnot a pickle'])
def test_a_damaged_result_is_told(here: Path, content: bytes) -> None:
    run = result_of(here, lambda: 7)
    run._path(0).write_bytes(content)
    with pytest.raises(hpckit.HpckitError):
        run.result()


def test_a_result_that_was_cut_off_is_told_so(here: Path) -> None:
    """`EOFError: Ran out of input. What it needs must be installed here too.`, it said."""
    run = result_of(here, lambda: "a long result")
    path = run._path(0)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedRunError, match=r"result-0.pkl is not whole: \d+ of \d+ bytes"):
        run.result()


@pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
def test_a_result_of_somebody_else_is_not_waited_for(here: Path) -> None:
    """In a folder that only its owner may enter, it was a PermissionError of Python's."""
    run = result_of(here, lambda: 7)
    for path in (run.dir, run.dir / "run.json"):
        os.chown(path, 54321, 54321)
    with pytest.raises(RequestError, match=r"Run f-1 belongs to user 54321: .* its owner alone"):
        run.result()


def test_a_result_that_cannot_be_looked_at_is_not_there_yet(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared disk that was away for a moment ended the program: OSError: Stale file handle."""
    run = result_of(here, lambda: 7)
    stat = os.stat

    def stale(path: Any, **words: Any) -> os.stat_result:
        if str(path).endswith("result-0.pkl"):
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return stat(path, **words)

    with monkeypatch.context() as away:
        away.setattr(os, "stat", stale)
        assert not run._told(0)
    assert run.result() == 7


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hpckit.call(3), "3 is not a function"),
        (lambda: hpckit.call(int.bit_length), "bit_length"),
        (lambda: hpckit.call(wrapped, 1, tim="2h"), "tim"),
        (lambda: hpckit.call(wrapped), "missing a required argument: 'x'"),
        (lambda: hpckit.map(wrapped, [1], [2]), "too many positional"),
        (lambda: hpckit.call(wrapped, 1, time="2h"), "has a parameter 'time'"),
        (lambda: hpckit.submit(None), "must be the name of a workload"),  # type: ignore[arg-type]
        (lambda: hpckit.submit("ddp", "x.py", args="--lr 1"), "must be a list"),
        (lambda: hpckit.submit("ddp", "x.py", args=5), "must be a list"),  # type: ignore[arg-type]
        (lambda: hpckit.submit("ddp", "x.py", array={}), "has no values"),
        (lambda: hpckit.submit("ddp", "x.py", array={"lr": []}), "at least one"),
    ],
)
def test_a_slip_is_told_before_anything_queues(here: Path, call, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        call()
    assert not (here / "runs").exists()


@functools.wraps(int)
def wrapped(x: int, *, time: str = "") -> int:
    return x


del wrapped.__wrapped__
