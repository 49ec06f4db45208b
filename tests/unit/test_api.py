"""The Python API's names, types, options and files; nothing is submitted."""

import ast
import errno
import functools
import inspect
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import hpckit
from hpckit import errors
from hpckit.api import call as calls
from hpckit.api.options import Options, job_spec
from hpckit.api.run import Run
from hpckit.api.run_list import RunList
from hpckit.errors import RequestError
from hpckit.job_spec.spec import OPTIONS, JobSpec
from hpckit.run_folders.ranks import write_rank
from tests.pages import ROOT
from tests.unit.made import make_run, rank


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
        ({"time": timedelta.max}, "not a duration"),
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


def test_a_run_stands_where_its_id_or_folder_may(here: Path) -> None:
    run = Run(make_run(here / "runs", "f-1", job_id="local-1", executor="local"))
    assert hpckit.find(run) == run == hpckit.find(run.dir)
    assert hpckit.runs(run) == [run]
    assert hpckit.stats(run).job.job_id == "local-1"
    assert Path(run) / "logs" == run.dir / "logs"


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
