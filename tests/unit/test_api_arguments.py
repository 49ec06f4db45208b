"""What a Python program gives where it does not fit: one clear error, and nothing is done."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hpckit
from hpckit.api.call import _sources
from hpckit.api.doctor import _seconds
from hpckit.api.options import spec_values
from hpckit.api.run import handle
from hpckit.api.run_status import runs_or_ids
from hpckit.api.scale import _sizes
from hpckit.api.terminals import prepare_shell
from hpckit.group_report.totals import Totals
from hpckit.job_spec.arguments import is_several
from tests.conftest import write_files
from tests.unit.made import make_run

NAN = float("nan")


class Whole:
    """A number of another library, as numpy's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Broad(float):
    """As `numpy.float64`."""


class Named(IntEnum):
    """Numbers that a program has names for: jobs, sizes."""

    SEVEN = 7


class Keyed:
    """What is one thing, and has keys: Python would ask it for 0, 1, 2 to go through it."""

    job_id = "5"

    def __getitem__(self, key: object) -> object:
        return {"lr": 0.1}[key]  # type: ignore[index]

    def __repr__(self) -> str:
        return "Keyed(\n   [1])"


def double(number: int) -> int:
    return 2 * number


# Python refuses to write it: it has over 4300 digits.
HUGE = 10**5000
REPORT = hpckit.Report(who="x", since=0.0, until=1.0, by="user", groups={}, total=Totals())


class PointArray:
    """As an array of numpy's with no dimension: it says that one can go through it."""

    def __iter__(self) -> Iterator[object]:
        raise TypeError("iteration over a 0-d array")

    def __repr__(self) -> str:
        return "PointArray"


class Compared:
    """As an array of numpy's of several numbers: what `==` says of it is not true or false."""

    def __eq__(self, other: object) -> "Compared":  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array is ambiguous")

    def __repr__(self) -> str:
        return "Compared"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hpckit.runs(state=1), "state=1"),
        (lambda: hpckit.runs(runs=""), "runs='' must be a path"),
        (lambda: hpckit.clean(runs=""), "runs='' must be a path"),
        (lambda: hpckit.submit("serial", "x.py", runs=""), "runs='' must be a path"),
        (lambda: hpckit.call(double, 1, runs=""), "runs='' must be a path"),
        (lambda: hpckit.sample(["true"], folder=""), "folder='' must be a path"),
        (lambda: hpckit.runs(state=["FAILED", 3]), "'FAILED', 3"),
        (lambda: hpckit.runs(since={}), r"since \{\}"),
        (lambda: hpckit.runs(since=NAN), "since nan"),
        (lambda: hpckit.runs(since=True), "since True"),
        (lambda: hpckit.runs(name=5), "name=5"),
        (lambda: hpckit.runs(limit="a"), "limit='a'"),
        (lambda: hpckit.runs(limit=-1), "limit=-1"),
        (lambda: hpckit.clean(older=[]), r"older \[\]"),
        (lambda: hpckit.clean(state=3), "state=3"),
        (lambda: hpckit.report(users=3), "users=3"),
        (lambda: hpckit.report(accounts=["a", None]), "accounts="),
        (lambda: hpckit.report(since={}), r"^since \{\} is neither"),
        (lambda: hpckit.report(wasteful=-1), "wasteful=-1"),
        (lambda: hpckit.wait(None), "None is neither a run nor the id"),
        (lambda: hpckit.wait([2.5]), "2.5 is neither a run nor the id"),
        (lambda: hpckit.wait([], timeout=NAN), "timeout=nan"),
        (lambda: hpckit.wait([], timeout="1h"), "timeout='1h'"),
        (lambda: hpckit.cancel(None), "None is neither a run nor the id"),
        (lambda: hpckit.cancel([True]), "True is neither a run nor the id"),
        (lambda: hpckit.map(double, None), "None is not a list of items for .*double"),
        (lambda: hpckit.map(double, [1], 5), "5 is not a list of items"),
        (lambda: hpckit.sample(None), "command=None must be a list"),
        (lambda: hpckit.sample(b"true"), "command=b'true' must be a list"),
        (lambda: hpckit.sample(["sleep", 1]), "command=1 must be a text or a path"),
        (lambda: hpckit.sample(["echo", "a\0b"]), r"command='a\\x00b' must be a text or a path"),
        (lambda: hpckit.sample(["echo", "\ud800"]), r"command='\\ud800' must be a text or a path"),
        (lambda: hpckit.sample(["true"], folder=5), "folder=5 must be a path"),
        (lambda: hpckit.sample(["true"], folder="\0"), r"folder='\\x00' must be a path"),
        (lambda: hpckit.sample(["true"], interval=NAN), "interval=nan"),
        (lambda: hpckit.sample(["true"], interval=-1), "interval=-1"),
        (lambda: hpckit.sample([]), "There is no command to run"),
        (lambda: hpckit.Run(3), "folder=3 is not what a Run is made of"),
        (lambda: hpckit.RunList(3), "runs=3 must be a list"),
        (lambda: hpckit.RunList(["a"]), "runs='a' is not a Run"),
        (lambda: hpckit.Calls([None]), "calls=None is not a Run"),
        (lambda: hpckit.Study([]), "not the runs of a study"),
        (lambda: hpckit.StatsList().page("x"), "stream='x' must be a stream"),
        (lambda: REPORT.text("x"), "table='x' must be a function"),  # type: ignore[arg-type]
        (lambda: REPORT.text(width=-1), "width=-1 must be a whole number"),
        (lambda: hpckit.report(until=0), "since 30d is not before until 0. Give an"),
        (lambda: hpckit.report(by="x"), "^by 'x' is unknown"),
        (lambda: hpckit.runs(since=HUGE), "since of many digits is neither"),
        (lambda: hpckit.clean(larger=HUGE), "larger=a number of many digits must be a size"),
        (lambda: hpckit.start_shell(idle=HUGE), "idle=a number of many digits must be a time"),
        (lambda: hpckit.call(HUGE), "a number of many digits is not a function"),
        (lambda: hpckit.map(double, HUGE), "a number of many digits is not a list of items"),
        (lambda: hpckit.sample(HUGE), "command=a number of many digits must be a list"),
        (lambda: hpckit.script("ddp", "x.py", args=HUGE), "args=a number of many digits must be"),
        (lambda: hpckit.script("ddp", "x.py", after=HUGE), "after=a number of many digits must be"),
        (lambda: hpckit.script("ddp", settings=HUGE), "--set a number of many digits"),
        (lambda: hpckit.script("ddp", "x.py", array={"n": HUGE}), "a list of values"),
        (lambda: hpckit.scale("ddp", "x.py", gpus=[HUGE]), r"gpus=\[?a number of many digits"),
        (lambda: hpckit.scale("ddp", "x.py", weak=PointArray()), "weak=PointArray must be a text"),
        (lambda: hpckit.report(users=PointArray()), "users=PointArray must be a text"),
        (lambda: hpckit.wait(PointArray()), "runs=PointArray is neither a run nor"),
        (lambda: hpckit.sample(PointArray()), "command=PointArray must be a list"),
        (lambda: hpckit.map(double, PointArray()), "PointArray is not a list of items"),
        (lambda: hpckit.script("ddp", "x.py", args=PointArray()), "args=PointArray must be"),
        (lambda: hpckit.script("ddp", "x.py", array={"n": PointArray()}), "a list of values"),
        (
            lambda: hpckit.scale("ddp", "x.py", gpus=PointArray()),
            "gpus=PointArray must be a number",
        ),
        (lambda: hpckit.script("ddp", "x.py", zip=Compared()), "--zip Compared must be true or"),
    ],
)
def test_what_does_not_fit_is_refused(here: Path, call: Callable[[], object], says: str) -> None:
    with pytest.raises(hpckit.RequestError, match=says):
        call()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("option", ["partition", "name", "gpus", "time", "template", "settings"])
def test_a_mapping_sets_no_other_option(here: Path, option: str) -> None:
    """`partition={"nodes": 5}` asked for five nodes."""
    write_files(here, {"train.py": "print(1)\n"})
    with pytest.raises(hpckit.RequestError, match="nodes"):
        hpckit.script("ddp", "train.py", **{option: {"nodes": 5}})


@pytest.mark.parametrize(
    "asked", [{"array": {"a=b": [1, 2]}}, {"settings": {"a=b": 1}}, {"sbatch": {"comment=b": 1}}],
    ids=lambda asked: "".join(asked),
)  # fmt: skip
def test_no_part_of_a_key_becomes_a_part_of_its_value(here: Path, asked: dict[str, Any]) -> None:
    """`array={"a=b": [1, 2]}` gave the first task `--a b=1`, and the second `--a 2`."""
    write_files(here, {"train.py": "print(1)\n"})
    with pytest.raises(hpckit.RequestError, match=r"the key '\w+=b' must not contain '='"):
        hpckit.script("serial", "train.py", gpus=0, **asked)


def test_what_has_runs_stands_for_them() -> None:
    """The calls of a map yield their results, which passed for ids of jobs."""
    waited = SimpleNamespace(job_id="5")

    class Calls(list[int]):
        runs = (waited,)

    assert spec_values({"after": Calls([7, 8])}) == {"after": ("5",)}
    assert hpckit.wait(hpckit.Calls([])) == []


def test_a_list_may_have_arrays_and_maps_beside_runs(here: Path) -> None:
    """`hpckit.wait([run, array])` said that a list is neither a run nor the id of one."""
    made = [make_run(here / "runs", f"a-{at}", job_id=f"{at}", executor="local") for at in range(4)]
    one, *rest = map(handle, made)
    given = [one, hpckit.RunList(rest[:2]), hpckit.Calls(rest[2:]), 7]  # type: ignore[type-var]
    assert runs_or_ids(given) == [one, *rest, "7"]
    assert runs_or_ids(one.dir) == runs_or_ids([one.dir]) == [str(one.dir)]
    with pytest.raises(hpckit.RequestError, match=r"a number of many digits is neither a run"):
        hpckit.wait(10**5000)
    with pytest.raises(hpckit.RequestError, match=r"job=a number of many digits must be a run"):
        hpckit.find(10**5000)
    assert spec_values({"after": given}) == {"after": ("0", "1", "2", "3", "7")}
    with pytest.raises(hpckit.RequestError, match=r"\{'a': 1\} is neither a run"):
        hpckit.cancel({"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array", [{"lr": [0.1, 0.2]}, ["lr=0.1,0.2"], "lr=0.1,0.2", ["lr=@v"]], ids=str
)
def test_an_array_is_given_as_values_or_as_the_command_lines_texts(
    here: Path, array: Mapping[str, Sequence[object]] | Sequence[str]
) -> None:
    (here / "train.py").touch()
    (here / "v").write_text("0.1\n0.2\n")
    assert "#SBATCH --array=0-1" in hpckit.script("serial", "train.py", gpus=0, array=array)


@pytest.mark.parametrize(  # a set is written in another order in each process, as no id may be
    "args", ["--lr 0.1", b"--lr", {"--lr": 0.1}, {"--lr", 0.1}, frozenset({"--lr"})],
    ids=["text", "bytes", "dict", "set", "frozenset"],
)  # fmt: skip
def test_arguments_of_a_program_are_a_list(here: Path, args: object) -> None:
    """A mapping lost its values: the program was started with `--lr` alone."""
    write_files(here, {"train.py": "print(1)\n"})
    with pytest.raises(hpckit.RequestError, match=r"args=.* must be a list, as in args=\["):
        hpckit.script("ddp", "train.py", args=args)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dpp", "mpi_vi", ""])
def test_a_call_has_a_strategy_and_no_workload(here: Path, name: str) -> None:
    """The error said how to submit a file of hpckit's own."""
    with pytest.raises(hpckit.RequestError, match=f"strategy='{name}' must be one of serial, dp,"):
        hpckit.call(double, 1, strategy=name)


def test_jobs_to_wait_for_are_no_mapping(here: Path) -> None:
    with pytest.raises(hpckit.RequestError, match=r"after=\{'afterok': 5\} must be a run"):
        spec_values({"after": {"afterok": 5}})


def test_a_time_of_a_session_is_a_timedelta_too(here: Path) -> None:
    words = {"executor": "slurm"}
    for idle in (timedelta(minutes=30), "30m", 30):
        shell = prepare_shell(words, idle=idle, runs=None, preview=True)
        assert shell.session is not None
        assert shell.session["idle_s"] == 1800.0
    with pytest.raises(hpckit.RequestError, match="--idle '0s' is not a duration"):
        hpckit.start_shell(idle=timedelta(0))
    assert _seconds(timedelta(seconds=90)) == 120


def test_a_shell_takes_no_arguments(here: Path) -> None:
    """`bash x` was submitted, which ended at once."""
    with pytest.raises(hpckit.RequestError, match=r"takes no arguments: type there"):
        hpckit.start_shell(args=["x"])


def test_a_program_whose_folder_is_gone_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a FileNotFoundError of Python's, which no `except hpckit.HpckitError` catches."""
    (tmp_path / "work").mkdir()
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work").rmdir()
    asked: list[Callable[[], object]] = [
        hpckit.runs,
        hpckit.collections,
        lambda: hpckit.find("latest"),
        lambda: hpckit.script("serial", tmp_path / "train.py", executor="slurm"),
        lambda: hpckit.call(double, 1, gpus=0),
    ]
    for ask in asked:
        with pytest.raises(hpckit.OutsideError, match="works in no longer exists"):
            ask()


@pytest.mark.parametrize("words", [(double, 3), ("serial", double)], ids=["target", "program"])
def test_a_function_is_told_how_it_runs(here: Path, words: tuple[Any, ...]) -> None:
    for call in (hpckit.submit, hpckit.script, hpckit.check):
        with pytest.raises(hpckit.RequestError, match=r"is a function: hpckit\.call\(function"):
            call(*words)


def test_numbers_of_other_libraries_are_numbers(here: Path) -> None:
    found = spec_values(
        {
            "nodes": Whole(2),
            "mem_gb": Whole(4),
            "after": [Whole(7)],
            "sample_interval": Broad(2),
            "array": {"lr": iter([0.1, 0.2])},
        }
    )
    assert found == {
        "nodes": 2,
        "mem_gb": 4,
        "after": ("7",),
        "sample_interval_s": 2.0,
        "array": ("lr=0.1,0.2",),
    }
    assert [type(found[name]) for name in ("nodes", "sample_interval_s")] == [int, float]
    for call in (hpckit.find, hpckit.wait, hpckit.cancel):
        with pytest.raises(hpckit.NotFoundError, match="There is no run '99999999'"):
            call(Whole(99999999))  # type: ignore[operator]


def test_a_number_with_a_name_is_a_number(here: Path) -> None:
    """`nodes=<Named.SEVEN: 7> must be a whole number` is no answer to who gave one."""
    found = spec_values({"nodes": Named.SEVEN, "after": [Named.SEVEN], "mem_gb": Named.SEVEN})
    assert found == {"nodes": 7, "after": ("7",), "mem_gb": 7}
    assert type(found["nodes"]) is int
    assert _sizes(Named.SEVEN, "nodes") == 7
    assert _sizes([1, Named.SEVEN], "nodes") == [1, 7]
    assert runs_or_ids(Named.SEVEN) == ["7"]
    with pytest.raises(hpckit.RequestError, match="must be true or false"):
        hpckit.script("ddp", "x.py", zip=Named.SEVEN)


def test_what_has_keys_alone_is_one_thing(here: Path) -> None:
    """A map over a data set that knows no end never ended; a job with keys was asked for them."""
    assert spec_values({"after": Keyed()}) == {"after": ("5",)}
    assert not is_several(Keyed())
    with pytest.raises(hpckit.RequestError, match=r"Keyed\( \[1\]\) is not a list of items"):
        hpckit.map(double, Keyed())  # type: ignore[arg-type]
    with pytest.raises(hpckit.RequestError, match=r"name Keyed\( \[1\]\) must be a text\.$"):
        hpckit.script("ddp", "x.py", name=Keyed())


def test_sizes_of_a_study_are_any_list_of_numbers(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[str, object]] = []
    monkeypatch.setattr("hpckit.api.scale.plan_study", lambda spec, lists, **_: asked.append(lists))
    monkeypatch.setattr("hpckit.api.scale.send_study", lambda plan: None)
    for given in ([1, 2], (1, 2), iter([1, 2]), [Whole(1), Whole(2)]):
        hpckit.scale("ddp", gpus=0, tasks_per_node=given)
    assert asked == [{"gpus": 0, "nodes": None, "tasks_per_node": [1, 2]}] * 4
    for wrong in (1.5, [1, 2.5], True, {"a": 1.5}.values()):
        with pytest.raises(hpckit.RequestError, match="must be a number, or a list of them"):
            hpckit.scale("ddp", gpus=wrong)


def test_a_program_of_a_pipe_has_no_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python - <<END` was told that '<stdin>' is part of its code and cannot be read."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "<stdin>", raising=False)
    assert [row.file for row in _sources(double)] == [Path(__file__).resolve(), here]
    monkeypatch.setattr(double, "__module__", "__main__")
    assert [row.file for row in _sources(double)] == [here]
