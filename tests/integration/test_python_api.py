"""The Python API on this machine: docs/python.md as it stands, and what it does not show."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.errors import JobError, NotFoundError, OutsideError, RequestError, StillRunningError
from tests import raisers
from tests.conftest import Answer, processes_of
from tests.integration.test_local import until
from tests.pages import blocks

pytestmark = pytest.mark.long


def test_the_page_runs_from_top_to_bottom(here: Path) -> None:
    program = []
    for block in blocks("docs/python.md"):
        assert block.language == "python"
        first = block.text.partition("\n")[0]
        if first.endswith(".py"):
            (here / first.removeprefix("# ")).write_text(block.text)
        else:
            program.append(block.text)
    (here / "page.py").write_text("\n".join(program))
    done = subprocess.run(
        [sys.executable, "page.py"], capture_output=True, text=True, check=False, timeout=580
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Did you mean 'gpus'?" in done.stdout
    assert "ValueError: no such data" in done.stdout
    assert "is CANCELLED and has no result" in done.stdout


@pytest.fixture
def runs(here: Path) -> Path:
    """Where runs go, of which none is left running."""
    return here / "runs"


def test_exceptions_of_a_function_come_back(runs: Path) -> None:
    jobs = hpckit.map(raisers.end, raisers.ENDS, parallel=4, gpus=0, sample_interval=0)
    for name, job in zip(raisers.ENDS, jobs.calls, strict=True):
        error = job.exception()
        raisers.check(name, error)
        assert error is not None
        with pytest.raises(raisers.raised_by_result(error)):
            job.result()
    assert {run.state for run in jobs.wait().runs} == {"FAILED"}


def test_a_function_of_this_test_and_its_classes_travel(runs: Path) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    class OwnError(Exception):
        pass

    def move(point: Point, by: int) -> Point:
        if by < 0:
            raise OwnError("backwards")
        return Point(point.x + by)

    moved, refused = (hpckit.call(move, Point(1), by=by, gpus=0) for by in (2, -1))
    found = moved.result()
    assert (type(found), found.x) == (Point, 3)
    with pytest.raises(OwnError, match="backwards"):
        refused.result()


def test_large_arguments_and_results(runs: Path) -> None:
    job = hpckit.call(lambda data: data * 2, b"x" * 20_000_000, gpus=0)
    assert job.result() == b"x" * 40_000_000


def test_each_task_of_a_map_loads_its_own_item(runs: Path) -> None:
    jobs = hpckit.map(lambda a, b, c: (a, b, c), [1, 2, 3], "xyz", c=4, gpus=0, parallel=3)
    assert jobs.results() == [(1, "x", 4), (2, "y", 4), (3, "z", 4)]
    assert [job.index for job in jobs.calls] == [0, 1, 2]
    assert len(list(jobs.as_completed())) == 3
    assert "Calls([" in repr(jobs)


def test_calls_come_as_they_end(here: Path, runs: Path) -> None:
    """The first waits until the second's end has been seen."""
    mark = here / "second"

    def meet(number: int) -> int:
        import time

        while not number and not mark.exists():
            time.sleep(0.05)
        return number

    jobs = hpckit.map(meet, [0, 1], parallel=2, gpus=0)
    ends = []
    for job in jobs.as_completed(timeout=280):
        ends.append(job.index)
        mark.touch()
    assert ends == [1, 0]
    assert list(jobs) == [0, 1]


def test_a_result_that_cannot_be_pickled_is_told(runs: Path) -> None:
    def locked() -> Any:
        import threading

        return threading.Lock()

    with pytest.raises(JobError, match=r"_thread\.lock, cannot be pickled"):
        hpckit.call(locked, gpus=0).result()


def test_each_rank_has_its_result(runs: Path) -> None:
    job = hpckit.call(lambda: int(os.environ["RANK"]), strategy="ddp", tasks_per_node=2, nodes=2)
    for ask in (job.result, job.exception):  # at once: no end of the job would bring one
        with pytest.raises(NotFoundError, match="Rank 4 does not exist: this run has ranks 0 to 3"):
            ask(timeout=0, rank=4)
    assert [job.result(rank=rank) for rank in range(4)] == [0, 1, 2, 3]


def test_a_job_that_is_killed_says_so(runs: Path) -> None:
    def die() -> None:
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(JobError, match=r"is FAILED and has no result\.[\s\S]*(137|SIGKILL)"):
        hpckit.call(die, gpus=0).result()


def test_waiting_has_an_end_and_cancelling_too(runs: Path) -> None:
    import time

    job = hpckit.call(time.sleep, 600, gpus=0)
    with pytest.raises(StillRunningError, match=r"no result after 0\.1 s"):
        job.result(timeout=0.1)
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.1)
    with pytest.raises(StillRunningError, match="1 of 1 call has no result"):
        list(hpckit.Calls([job]).as_completed(timeout=0.1))
    assert not job.done()
    assert job.cancel().wait().state == "CANCELLED"
    assert job.done()
    with pytest.raises(JobError, match="CANCELLED"):
        job.result()
    # The controller's own end follows its last word.
    until(lambda: not processes_of(runs))


def test_another_version_of_python_is_one_clear_error(
    here: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpckit.payload.function.VERSION", "3.2")
    job = hpckit.call(print, 1, gpus=0)
    with pytest.raises(JobError, match=r"pickled by Python 3\.2, but .* has Python 3\.\d+") as told:
        job.result()
    assert "env=" in str(told.value)
    assert job.wait().state == "FAILED"
    assert "pickled by Python 3.2" in job.errors()


def test_a_module_that_is_not_there_is_named(
    here: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "lab.py").write_text("def f(): return 1\n")
    monkeypatch.syspath_prepend(here)
    import lab  # type: ignore[import-not-found]

    assert hpckit.call(lab.f, gpus=0).result() == 1
    (here / "lab.py").unlink()
    with pytest.raises(JobError, match="No module named 'lab'"):
        hpckit.call(lab.f, gpus=0).result()


def test_an_environment_without_cloudpickle_gets_ours(here: Path, runs: Path) -> None:
    bare = here / "bare"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", bare], check=True, capture_output=True
    )
    assert hpckit.call(lambda x: x + 1, 3, env=bare, gpus=0).result() == 4


def test_a_traceback_has_the_lines_of_the_functions_file(here: Path, runs: Path) -> None:
    """Of functions that travel themselves; cloudpickle 3.1.3 gives all of them one file's name."""
    (here / "program.py").write_text(
        "import hpckit\n"
        "def apart(b):\n"
        "    half = lambda a: a / b  # of two\n"
        "    return [half(one) for one in (1, 2)]\n"
        "if __name__ == '__main__':\n"
        "    job = hpckit.call(apart, 0, gpus=0)\n"
        "    print(job.exception().__cause__)\n"
    )
    said = subprocess.run(
        [sys.executable, "program.py"], cwd=here, check=True, capture_output=True, text=True
    ).stdout
    for line, text in ((3, "half = lambda a: a / b  # of two"), (4, "return [half(one) for")):
        assert re.search(rf'File ".*program.py", line {line}, in .*\n +{re.escape(text)}', said)


def test_nothing_is_loaded_in_a_job_from_a_folder_of_others(
    here: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpckit.payload import function as in_job

    write = in_job.write_own

    def open_to_others(path: Path, header: Any, parts: Any) -> None:
        write(path, header, parts)
        path.parent.chmod(0o777)

    monkeypatch.setattr(in_job, "write_own", open_to_others)
    job = hpckit.call(os.mkdir, str(here / "called"), gpus=0)
    with pytest.raises(hpckit.HpckitError):
        job.result()
    assert "open to others" in job.wait().errors()
    assert not (here / "called").exists()


def test_commands_see_what_python_submitted(runs: Path, cli: Callable[..., Answer]) -> None:
    job = hpckit.call(lambda: print("from the function"), gpus=0, name="mine")
    job.wait()
    assert "from the function" in cli("logs", job.job_id).out
    assert "COMPLETED" in cli("status", job.job_id).out
    assert "mine" in cli("jobs").out
    assert cli("stats", job.job_id).status == 0
    again = cli("resubmit", job.job_id, "--wait")
    assert again.status == 0, again.err
    found = hpckit.find("latest")
    assert isinstance(found, hpckit.Call)
    assert found.result() is None
    assert found.logs() == "from the function\n"


def test_a_task_of_a_map_is_resubmitted_alone(runs: Path) -> None:
    jobs = hpckit.map(lambda x: 10 * x, [1, 2], gpus=0, parallel=2)
    jobs.wait()
    again = jobs.calls[1].resubmit(wait=True)
    assert isinstance(again, hpckit.Call)
    assert (again.index, again.result()) == (1, 20)
    with pytest.raises(RequestError, match="with the arguments that it was given"):
        again.resubmit(args=["x"])


def test_a_function_that_is_kept_no_longer_is_not_submitted_again(runs: Path) -> None:
    """The job said so, after its time in the queue: the function is in the first run's folder."""
    job = hpckit.call(lambda: 7, gpus=0)
    again = job.resubmit(wait=True)
    shutil.rmtree(job.wait().dir)
    with pytest.raises(hpckit.NotFoundError, match=r"function.pkl' is gone\. Call it again: "):
        again.resubmit()
    with pytest.raises(hpckit.NotFoundError, match=f"Job {again.job_id} calls a Python function"):
        again.preview(time="1h")


def test_resubmit_starts_from_the_runs_folder_and_changes_none(
    here: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "script.py").write_text("import os, sys; print(os.getcwd(), open(sys.argv[1]).read())")
    (here / "data").write_text("the data")
    run = hpckit.submit("serial", "script.py", gpus=0, args=["data"])
    assert hpckit.wait(run) == hpckit.wait(run.job_id) == [run]
    assert hpckit.wait([run, run.run_id]) == [run, run]
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    again = run.resubmit(wait=True, name="second")
    assert again.logs() == f"{here} the data\n"
    assert (again.name, again.dir.parent) == ("second", run.dir.parent)
    assert Path.cwd() == here / "elsewhere"
    (here / "script.py").rename(here / "gone.py")
    with pytest.raises(RequestError, match="does not exist"):
        run.resubmit()


def test_notes_go_to_the_log_and_nothing_is_printed(
    here: Path, runs: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO", "hpckit")
    (here / "script.py").write_text("print(1)")
    run = hpckit.submit("serial", "script.py", gpus=0, wait=True)
    again = run.resubmit(name="other", wait=True)
    assert again.stats().job.state == "COMPLETED"
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert [row.name for row in caplog.records] == ["hpckit"] * len(caplog.records)


def test_a_thread_may_submit_and_no_handler_is_changed(here: Path, runs: Path) -> None:
    import signal
    import threading

    (here / "script.py").write_text("print('threaded')")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found: list[Any] = []

    def work() -> None:
        found.append(hpckit.submit("serial", "script.py", gpus=0, wait=True))

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        now = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert now == before
        thread.join(0.01)
    assert found[0].logs() == "threaded\n"


def test_a_program_of_several_words_works_as_on_the_command_line(here: Path, runs: Path) -> None:
    (here / "job.sh").write_text("#!/bin/sh\necho shell $1\n")
    (here / "job.sh").chmod(0o755)
    run = hpckit.submit("serial", here / "job.sh", gpus=0, args=["word"], wait=True)
    assert run.logs() == "shell word\n"
    run = hpckit.submit("serial", module="platform", gpus=0, wait=True)
    assert "Linux" in run.logs()


def test_main_programs_and_their_classes(here: Path, runs: Path) -> None:
    (here / "program.py").write_text(
        textwrap.dedent(
            """
            import hpckit
            class Mine(Exception):
                def __init__(self, a, b): super().__init__(a); self.b = b
            class Slots:
                __slots__ = ("x",)
            def f(x):
                raise Mine(x, 2)
            def g():
                made = Slots()
                made.x = hpckit.__version__
                return made
            if __name__ == "__main__":
                try:
                    hpckit.call(f, 1, gpus=0).result()
                except Mine as error:
                    print(type(error) is Mine, error.args, error.b)
                try:
                    hpckit.call(g, gpus=0).result()
                except hpckit.OutsideError as error:
                    print("__slots__ travels back only from a module" in str(error))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.stdout == "True (1,) 2\nTrue\n", done.stderr


def test_a_program_that_ends_before_its_job_is_not_warned_of_it(here: Path, runs: Path) -> None:
    (here / "waits.py").write_text(
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)"
    )
    text = (
        "import atexit, hpckit\nfrom hpckit.schedulers import local\n"
        "atexit.register(lambda: local._CONTROLLERS.clear())\n"  # as Python's end may do it
        "print(hpckit.submit('serial', 'waits.py', gpus=0).run_id)\n"
    )
    argv = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
    (here / "go").touch()
    assert (done.returncode, done.stderr) == (0, "")
    assert hpckit.find(done.stdout.strip()).wait().state == "COMPLETED"


def test_no_folder_of_runs_is_an_error_of_hpckits(here: Path) -> None:
    (here / "file").write_text("")
    with pytest.raises(OutsideError):
        hpckit.call(print, gpus=0, runs=here / "file" / "runs")
