"""The Python API's names, types, options and files; nothing is submitted."""

import ast
import errno
import functools
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import hpckit
from hpckit import errors
from hpckit.api import call as calls
from hpckit.api.options import Options, job_spec
from hpckit.api.run import Run
from hpckit.api.run_list import RunList
from hpckit.api.run_status import wait_through
from hpckit.errors import DamagedRunError, JobError, RequestError, StillRunningError
from hpckit.job_spec.spec import OPTIONS, JobSpec
from hpckit.payload import function as in_job
from hpckit.run_folders.ranks import write_rank
from hpckit.run_folders.runs import read_run
from hpckit.submission.retry import RetryNote, write_note
from tests import raisers
from tests.unit.made import make_run, rank
from tests.unit.played_slurm import answers, squeue_row

ROOT = Path(__file__).parents[2]


def modules_after(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after some code, without site's."""
    program = f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_hpckit_loads_hpckit_and_its_version_and_nothing_else() -> None:
    assert modules_after("import hpckit") - modules_after("") == {"hpckit", "hpckit.version"}


@pytest.mark.long
def test_names_load_neither_torch_nor_jinja_nor_submitit() -> None:
    found = modules_after("import hpckit\nfor name in hpckit.__all__: getattr(hpckit, name)")
    assert "hpckit.submission.states" in found
    heavy = {"torch", "numpy", "jinja2", "submitit", "cloudpickle", "mpi4py", "typer", "rich"}
    assert found & heavy == set()


def test_what_types_see_is_what_there_is() -> None:
    tree = ast.parse((ROOT / "hpckit/__init__.py").read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: str(row.module)
        for row in ast.walk(typed)
        if isinstance(row, ast.ImportFrom)
        for alias in row.names
    }
    assert {*seen, "__version__"} == set(hpckit.__all__)
    for name, home in seen.items():
        assert getattr(hpckit, name) is getattr(sys.modules[home], name)
    assert (ROOT / "hpckit/py.typed").exists()
    public = {name for name, row in vars(errors).items() if inspect.isclass(row)} & {*dir(hpckit)}
    assert public == {name for name in hpckit.__all__ if name.endswith("Error")}


@pytest.mark.long
def test_functions_keep_their_names_when_folders_of_the_same_name_are_imported() -> None:
    code = (
        "import hpckit, hpckit.bad_nodes.faults, hpckit.stats.document\n"
        "import hpckit.api.call, hpckit.collections.search, hpckit.doctor, hpckit.sites\n"
        "assert all(callable(getattr(hpckit, name)) for name in hpckit.__all__ if name[0] != '_')\n"
        "from hpckit.run_folders.runs import Run as Folder\n"
        "assert Folder.__module__ == 'hpckit.run_folders.runs'"
    )
    modules_after(code)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        hpckit.sumbit  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.long
def test_a_program_that_uses_the_api_is_typed(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "import hpckit\n"
        "def double(x: int) -> int: return 2 * x\n"
        'run = hpckit.submit("ddp", "train.py", nodes=2, gpus="A100:4", time="2h")\n'
        "state: hpckit.JobState = run.wait().state\n"
        'runs = hpckit.submit("ddp", "train.py", array={"lr": [0.1, 0.2]})\n'
        "text: str = runs[0].logs(rank=1)\n"
        "value: int = hpckit.call(double, 3, gpus=1).result()\n"
        "values: list[int] = list(hpckit.map(double, [1, 2], parallel=10))\n"
        'percent: float | None = hpckit.stats("1").summary.gpu_utilization_percent\n'
        'busy: float | None = hpckit.stats("1").summary.sm_active_percent\n'
        'host: int | None = hpckit.stats("1").per_node[0].swap_peak_bytes\n'
        "names: list[str] = [site.name for site in hpckit.sites()]\n"
        "good: bool = hpckit.doctor().good\n"
        "some: hpckit.RunList = hpckit.runs()[:2]\n"
    )
    (tmp_path / "bad.py").write_text(
        "import hpckit\n"
        'hpckit.submit("ddp", "train.py", nodes="two")\n'
        'hpckit.submit("ddp", "train.py", gpu=2)\n'
        'hpckit.submit("ddp", "train.py").stats().sumary\n'
        'hpckit.find("1").resubmit(tiem="2h")\n'
        "hpckit.nothing\n"
        'hpckit.stats("1").summary.sm_activ_percent\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "good.py", "bad.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wrong = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {line.partition(": ")[0] for line in wrong} == {f"bad.py:{n}" for n in range(2, 8)}


def test_options_are_those_of_the_fields_of_a_job() -> None:
    words = {row.word for row in OPTIONS.values()}
    # `array` is a parameter of its own, which tells mypy what comes back.
    assert {*Options.__annotations__} == words - {"set", "array"} | {"settings", "args"}
    declared = {*OPTIONS, "target", "program", "module", "args", "gpu_type"}
    assert {row.name for row in fields(JobSpec)} == declared


def test_options_have_the_types_of_a_jobs_fields() -> None:
    asked, made = (
        get_type_hints(Options, localns={"Run": Run, "timedelta": timedelta}),
        get_type_hints(JobSpec),
    )
    plain = {name: row.word for name, row in OPTIONS.items() if row.read is None}
    other = {"env"}  # a path too
    assert {word: asked[word] for word in plain.values() if word not in other} == {
        word: made[name] for name, word in plain.items() if word not in other
    }


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"gpus": "A100:4"}, ("gpu_type", "gpus"), ("A100", 4)),
        ({"gpus": 4}, ("gpu_type", "gpus"), (None, 4)),
        ({"time": "2h"}, ("time_min",), (120,)),
        ({"time": 90}, ("time_min",), (90,)),
        ({"args": ["--lr", 0.1, Path("a b")]}, ("args",), (("--lr", "0.1", "a b"),)),
        ({"settings": {"steps": 3, "flag": True}}, ("settings",), (("steps=3", "flag=true"),)),
        ({"array": {"lr": [0.1, "a,b"]}}, ("array",), (("lr=0.1,a\\,b",),)),
        ({"sbatch": {"exclusive": True, "nice": 5}}, ("sbatch",), (("exclusive", "nice=5"),)),
        ({"time": timedelta(minutes=1, seconds=1)}, ("time_min",), (2,)),
        ({"after": 12}, ("after",), (("12",),)),
        ({"after": ["12", "afterany:13"]}, ("after",), (("12", "afterany:13"),)),
        ({"partition": None}, ("partition",), (None,)),
        ({"sample_interval": 2}, ("sample_interval_s",), (2,)),
        ({"skip_check": ("gpus",)}, ("skip_checks",), (("gpus",),)),
    ],
)
def test_options_mean_what_the_command_line_means(
    options: dict[str, Any], field: tuple[str, ...], value: tuple[Any, ...]
) -> None:
    spec = job_spec("ddp", options)
    assert tuple(getattr(spec, name) for name in field) == value


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"gpu": 1}, "'gpus'"),
        ({"nodes": "2"}, "--nodes"),
        ({"nodes": 0}, "at least 1"),
        ({"gpus": "many"}, "TYPE:N"),
        ({"time": 1.5}, "not a duration"),
        ({"time": "soon"}, "not a duration"),
        ({"array": {"lr": "12"}}, "list of values"),
        ({"partition": "a b"}, "holds"),
        ({"target": "dp"}, "no option 'target'"),
        ({"dry_run": True}, r"no option 'dry_run'\. hpckit\.script\(\).*run\.preview\(\)"),
        ({"follow": True}, r"no option 'follow'\. run\.wait\(\)"),
        ({"json": True}, r"no option 'json'\. .*run\.status\(\)\.document\(\)"),
        ({"check": True}, r"no option 'check'\. hpckit\.check\(\).*run\.preview\(\)\.check\(\)"),
        ({"test_only": True}, r"no option 'test_only'\. hpckit\.check\(\)"),
        ({"wait": True}, r"no option 'wait'\. .*hpckit\.scale\(\.\.\.\)\.wait\(\)"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(RequestError, match=word):
        job_spec("ddp", options)


def test_a_function_whose_parameter_is_an_option_is_refused_with_the_way_out() -> None:
    def simulate(time: float) -> float:
        return time

    with pytest.raises(RequestError, match=r"functools\.partial\(function, time=") as told:
        hpckit.call(simulate, time=3)
    assert "simulate" in str(told.value)
    assert calls._split(functools.partial(simulate, time=3), {"gpus": 1, "x": 2}) == (
        {"gpus": 1}, {"x": 2},
    )  # fmt: skip


def counting(most: int) -> Iterator[int]:
    yield from range(most)


async def asking() -> int:
    return 7


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


def test_runs_show_as_tables_that_are_no_html_of_others(here: Path) -> None:
    make_run(here / "runs", "a-1", job_id="local-1", executor="local", name="<b>\x1b[31m&")
    run = hpckit.find("local-1")
    for shown in (run._repr_html_(), RunList([run])._repr_html_()):
        assert "&lt;b&gt;\\x1b[31m&amp;" in shown
        assert "<b>" not in shown
        assert "\x1b" not in shown
        assert "local-1" in shown
    assert "\x1b" not in repr(run)
    assert repr(run).startswith("Run('local-1', ")


def test_a_part_of_a_run_list_is_a_run_list(here: Path) -> None:
    for number in range(3):
        make_run(here / "runs", f"a-{number}", job_id=f"local-{number}", executor="local")
    found = hpckit.runs()
    assert type(found[:2]) is RunList
    assert found[:2]._repr_html_().count("<td>local-") == 2
    assert isinstance(found[0], Run)


def test_the_command_line_may_import_the_api_and_what_is_pure_text_alone() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [mine] = [row for row in contracts["contracts"] if row.get("source_modules") == ["hpckit.cli"]]
    rooms = {path.stem for path in (ROOT / "hpckit").iterdir() if path.name[0] not in "_."}
    allowed = rooms - {name.removeprefix("hpckit.") for name in mine["forbidden_modules"]}
    torch_side = {"parallel", "inference"}  # contracts of their own
    plain = {
        "beside",
        "errors",
        "frozen",
        "interrupts",
        "stand_ins",
        "text",
        "units",
        "version",
        "py",
    }
    assert allowed == {"api", "cli"} | torch_side | plain


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


def test_a_run_stands_where_its_id_or_folder_may(here: Path) -> None:
    run = Run(make_run(here / "runs", "f-1", job_id="local-1", executor="local"))
    assert hpckit.find(run) == run == hpckit.find(run.dir)
    assert hpckit.runs(run) == [run]
    assert hpckit.stats(run).job.job_id == "local-1"
    assert Path(run) / "logs" == run.dir / "logs"


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


def test_runs_are_equal_by_their_folders(here: Path) -> None:
    make_run(here / "runs", "a-1", job_id="local-1", executor="local")
    first, second = hpckit.find("local-1"), hpckit.find("a-1")
    assert first == second
    assert len({first, second}) == 1
    assert isinstance(first, Run)


def test_runs_are_chosen_by_name_time_and_state(here: Path) -> None:
    make_run(here / "runs", "a-1", job_id="local-1", executor="local", name="a", submitted_at=5)
    make_run(here / "runs", "b-1", job_id="local-2", executor="local", name="b")
    assert {run.name for run in hpckit.runs()} == {"a", "b"}
    assert [run.name for run in hpckit.runs(name="a")] == ["a"]
    assert "a" not in {run.name for run in hpckit.runs(since=6)}
    assert hpckit.runs(state="running") == []
    with pytest.raises(RequestError, match="not a state"):
        hpckit.runs(state="BROKEN")


def test_folders_that_cannot_be_read_are_told(here: Path) -> None:
    make_run(here / "runs", "a-1", job_id="local-1", executor="local")
    broken = make_run(here / "runs", "b-1", job_id="local-2", executor="local").dir
    (broken / "run.json").write_text("{")
    found = hpckit.runs()
    assert [run.run_id for run in found] == ["a-1"]
    assert [(row.dir, type(row.error)) for row in found.damaged] == [
        (broken, hpckit.DamagedRunError)
    ]


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


def test_a_run_of_one_attempt_has_taken_no_step_again(tmp_path: Path) -> None:
    """Two phases, or epochs, each of which counts its steps anew: the first was left out."""
    run = Run(make_run(tmp_path))
    rows = [{"phase": name, "step": step} for name in "ab" for step in range(3)]
    (run.dir / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_rank(run.dir, rank(0))
    assert run.metrics() == rows
    write_rank(run.dir, rank(0, restart=1))
    assert run.metrics() == rows[3:]
    assert run.metrics(every_attempt=True) == rows


@pytest.mark.parametrize("gone", ["removed", "moved"])
def test_a_handle_whose_folder_is_gone_says_so(tmp_path: Path, gone: str) -> None:
    """Its logs and metrics were empty, as of a run that wrote nothing."""
    run = Run(make_run(tmp_path))
    run.dir.rename(tmp_path / "elsewhere")
    if gone == "removed":
        shutil.rmtree(tmp_path / "elsewhere")
    asked: list[Callable[[], object]] = [
        run.logs, lambda: run.logs(every=True), run.metrics, run.progress, run.resubmit,
        run.cancel, lambda: run.owner, lambda: list(run.pieces(follow=True)),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(hpckit.NotFoundError, match=r"The folder of run ddp-1 .* is gone: it"):
            ask()
    assert not run.mine
    assert repr(run)


def test_a_handle_whose_folder_cannot_be_looked_at_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(make_run(tmp_path))

    def lstat(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(hpckit.OutsideError, match=r"ddp-1, .* cannot be read: Permission denied"):
        run.logs()
