import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.collections import search_path
from hpckit.errors import ConfigError, RequestError
from hpckit.workloads import Parameter, Workload, list_workloads, load_workload
from tests.conftest import Answer, write_files

HEAD = "description: d\nstrategy: ddp\nscript: run.py\n"
MINE = (
    HEAD
    + """\
handles_stop_signal: true
resources: {gpus: 0, cpus_per_task: 2, mem_gb: 8, time_min: 30}
parameters:
  batch_size: {type: int, default: 64, minimum: 1, maximum: 512, help: images}
  lr: {type: float, default: 1e-2, help: rate}
  mode: {default: a, choices: [a, b], help: mode}
  dry: {type: bool, default: false, help: dry}
  out: {type: path, default: null, help: place}
"""
)


def mine(here: Path, text: str = MINE) -> Workload:
    write_files(here, {"workloads/my-work/workload.yaml": text, "workloads/my-work/run.py": ""})
    return load_workload("my_work", search_path())


def test_a_workload_file_is_read_whole(here: Path) -> None:
    work = mine(here)
    assert (work.name, work.strategy, work.gpus) == ("my-work", "ddp", 0)
    assert (work.cpus_per_task, work.mem_gb, work.time_min) == (2, 8, 30)
    assert work.script == here / "workloads" / "my-work" / "run.py"
    assert work.handles_stop_signal
    assert list(work.parameters) == ["batch-size", "lr", "mode", "dry", "out"]


def test_a_workload_may_start_any_program(here: Path, cli: Callable[..., Answer]) -> None:
    head = "description: d\nstrategy: mpi\nparameters: {t: {type: float, default: 3, help: h}}\n"
    files = {
        "workloads/melt/workload.yaml": f"{head}program: run.sh\n",
        "workloads/melt/run.sh": "lmp $*\n",
        "workloads/word/workload.yaml": f"{head}program: lmp\n",
    }
    write_files(here, files)
    said = cli("submit", "melt", "--set", "t=2", "--dry-run")
    assert f"#   bash {here}/workloads/melt/run.sh --t 2.0\n" in said.out
    assert "#   lmp --t 3\n" in cli("submit", "word", "--dry-run").out
    shown = json.loads(cli("workloads", "show", "word", "--json").out)
    assert (shown["script"], shown["program"]) == (None, "lmp")
    assert "  program   lmp\n" in cli("workloads", "show", "word").out
    assert "melt" in cli("workloads", "list").out


@pytest.mark.parametrize("site", ["partitons: {}\n", "description: [x\n", "identify: 3\n"])
def test_a_broken_file_hides_no_other_of_a_list(
    here: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    monkeypatch.setenv("CLUSTER", "box")
    write_files(here, {
        "workloads/bad/workload.yaml": "description: [x\n",
        "workloads/good/workload.yaml": "description: d\nstrategy: mpi\nprogram: lmp\n",
        "templates/sites/bad.yaml": site,
        "templates/sites/good.yaml": "description: d\nidentify: {CLUSTER: box}\n",
    })  # fmt: skip
    for command, file in (("workloads", "bad/workload.yaml"), ("sites", "sites/bad.yaml")):
        said = cli(command, "list")
        assert said.status == 0
        assert {"good"} <= {*said.out.split()}
        (line,) = said.err.splitlines()
        assert line.startswith(f"note: left out: {here}")
        assert f"{file}:1: " in line or f"{file}:2: " in line
        rows = json.loads(cli(command, "list", "--json").out)
        assert "good" in [row["name"] for row in rows]
        assert "bad" not in [row["name"] for row in rows]
    assert "good *" in said.out


@pytest.mark.parametrize("name", ["my-work", "my_work"])
def test_dash_and_underscore_are_one_in_names(here: Path, name: str) -> None:
    mine(here)
    assert load_workload(name, search_path()).name == "my-work"


def test_the_workloads_that_are_shipped_can_be_read(here: Path) -> None:
    for name in list_workloads(search_path()):
        assert load_workload(name, search_path()).description


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size=8", 8),
        ("batch-size=8", 8),
        ("lr=1e-3", 0.001),
        ("lr=3", 3.0),
        ("lr=-Infinity", float("-inf")),
        ("mode=b", "b"),
        ("dry=YES", True),
        ("dry=0", False),
        ("out=a=b", "{here}/a=b"),
        ("out=", "{here}"),
    ],
)
def test_settings_get_their_types(here: Path, setting: str, value: object) -> None:
    key, found = next(iter(mine(here).parse_settings([setting]).items()))
    assert found == (value.format(here=here) if isinstance(value, str) else value)
    assert key == setting.partition("=")[0].replace("_", "-")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("batch-size=0", "batch-size=0 must be between 1 and 512"),
        ("batch-size=513", "batch-size=513 must be between"),
        ("batch-size=x", "'x' is not of type int. (images)"),
        ("batch-size=", "'' is not of type int"),
        ("lr=x", "'x' is not of type float"),
        ("lr=1e400", "lr='1e400' is too large for a number of type float"),
        ("lr=-1e400", "lr='-1e400' is too large"),
        ("mode=c", "mode='c' is not one of a, b"),
        ("dry=2", "'2' is not of type bool"),
        ("bathc-size=1", "Did you mean 'batch-size'? See `hpckit workloads show my-work`."),
    ],
)
def test_settings_that_do_not_fit_are_refused(here: Path, setting: str, says: str) -> None:
    with pytest.raises(RequestError) as error:
        mine(here).parse_settings([setting])
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, ()), (False, ()), (True, ("--x",)), (0, ("--x", "0")), ("", ("--x", ""))],
)
def test_values_become_arguments(value, words) -> None:
    assert Parameter(name="x", type="str", default=None, help="h").as_arguments(value) == words


def test_arguments_come_in_the_files_order(here: Path) -> None:
    values = {"dry": True, "lr": 0.1, "batch-size": 2}
    assert mine(here).arguments(values) == ("--batch_size", "2", "--lr", "0.1", "--dry")


def test_an_option_is_called_as_the_workloads_file_calls_it(here: Path) -> None:
    rows = "parameters:\n  n_epochs: {type: int, help: h}\n  last-one: {type: bool, help: h}\n"
    made = mine(here, f"{HEAD}{rows}")
    for words in (["n_epochs=3", "last_one=yes"], ["n-epochs=3", "last-one=yes"]):
        assert made.arguments(made.parse_settings(words)) == ("--n_epochs", "3", "--last-one")
    with pytest.raises(RequestError, match="'n-epochs' is set twice"):
        made.parse_settings(["n_epochs=3", "n-epochs=4"])
    with pytest.raises(ConfigError, match="twice"):
        mine(here, f"{HEAD}{rows}  n-epochs: {{type: int, help: h}}\n")


@given(st.text().filter(lambda text: not text.startswith("-")))
def test_a_text_reaches_argparse_as_it_is(text: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--x")
    row = Parameter(name="x", type="str", default=None, help="h")
    assert parser.parse_args(list(row.as_arguments(row.parse(text)))).x == text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a: {type: int, help: h, default: 0, minimum: 1}", "default of 'a': Parameter a=0 must"),
        ("a: {help: h, default: c, choices: [a, b]}", "default of 'a'"),
        ("a: {type: bool, help: h, default: maybe}", "default of 'a'"),
        ("a: {type: int, help: h, defualt: 1}", "unknown key 'defualt'"),
        ("a: {type: int, help: h, choices: [[1]]}", "list of single values"),
        ("a: {type: int, help: h, maximum: true}", "must be a number"),
        ("a: 5", "must be a mapping"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_line(here: Path, line: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"workload.yaml:5: ") as error:
        mine(here, f"{HEAD}parameters:\n  {line}\n")
    assert says in str(error.value)


def test_show_prints_types_defaults_ranges_and_help(here: Path, cli: Callable[..., Answer]) -> None:
    mine(here)
    lines = cli("workloads", "show", "my-work").out.splitlines()
    assert "batch-size  int    64       images (from 1 to 512)" in lines
    assert "mode        str    a        mode (a, b)" in lines
    assert "dry         bool   false    dry" in lines


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("train.py --lr 0.1", "hpckit submit serial train.py -- --lr 0.1"),
        ("python train.py", "hpckit submit serial python -- train.py"),
        ("a program.py", "hpckit submit ddp 'a program.py'"),  # a file
    ],
)
def test_a_command_line_is_no_workload_and_is_told_how_to_be_typed(
    here: Path, name: str, line: str
) -> None:
    (here / "a program.py").touch()
    with pytest.raises(RequestError) as told:
        load_workload(name, search_path())
    assert str(told.value).endswith(f": {line}")
