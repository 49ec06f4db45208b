"""Every argument of every public function, with values of other types: each is refused by name.

What a public function takes stands in a table by its name, so that a new argument needs a row.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.api.options import Options
from tests.conftest import write_files

NAN = float("nan")
THING = object()
FLAG = (None, 1, "no", [True], THING, NAN)
TEXT = (None, 5, True, ["x"], THING, NAN)
MAYBE_TEXT = TEXT[1:]
PLACE = (5, True, ["x"], THING, NAN, b"x", "a\0b")
NUMBER = (-1, True, "x", [1], THING, NAN)
HEARD = (None, 5, "x", THING)
JOB = (None, True, [1], THING, NAN, b"1")
SPAN = (True, [1], THING, NAN, -1, 2.5)
TEXTS = (5, True, [5], [None], THING, NAN)
WHEN = (True, [], THING, NAN, "soon")
RUNS = (None, True, [None], [2.5], THING, NAN)

# Wrong values of arguments by their names; of some functions by function and name.
WRONG: dict[str, tuple[object, ...]] = {
    "accounts": TEXTS,
    "active": FLAG,
    "array": (5, True, [1], ["lr=1,2", 3], "lr", "", [], THING, NAN, {"lr": 5}, {"lr": [THING]}),
    "by": MAYBE_TEXT,
    "cluster": MAYBE_TEXT,
    "command": (None, 5, "true", [5], [None], THING),
    "doctor_gpu.nodes": (0, True, "x", [1], THING, NAN, 2.5),
    "doctor_mpi.nodes": (0, 3, True, "x", [1], THING, NAN),
    "dry_run": FLAG,
    "efficiency": (None, 0, 2, True, "x", [1], THING, NAN),
    "env": (5, True, ["x"], THING, NAN),
    "every": FLAG,
    "every_attempt": FLAG,
    "everyone": FLAG,
    "everything": FLAG,
    "file_schema.kind": (*TEXT, "x"),
    "find.job": JOB,
    "folder": (None, *PLACE),
    "follow": FLAG,
    "force": FLAG,
    "found": (5, "x", THING, {}),
    "site_page.found": (None, 5, "x", THING, {}),
    "full_epochs": (0, *NUMBER),
    "status": (5, "x", THING, [], {}),
    "stream": (5, "x", THING, []),
    "full_steps": (0, *NUMBER),
    "function": (None, 5, "x", THING),
    "gpus": (True, [1], THING, NAN, -1, 2.5, "x"),
    "hide_names": FLAG,
    "host": (None, *TEXTS, [], "a b"),
    "idle": SPAN,
    "in_turn": FLAG[1:],
    "interval": (None, *NUMBER),
    "iterable": (None, 5, THING),
    "iterables": (None, 5, THING),
    "job": JOB[1:],
    "larger": SPAN,
    "least": (None, "x", True, ["x"], THING, NAN),
    "limit": (*NUMBER, 2.5),
    "look": HEARD[1:],
    "module": MAYBE_TEXT,
    "name": MAYBE_TEXT,
    "names": TEXT,
    "nodes": (0, True, [0], THING, NAN, "x"),
    "older": WHEN,
    "parallel": (*NUMBER, 2.5),
    "path": (None, *PLACE),
    "program": PLACE,
    "project": FLAG,
    "rank": (*NUMBER, 2.5),
    "repeat": (None, True, "x", [1], THING, NAN, 2.5),
    "right_size": FLAG,
    "rule": TEXT,
    "runs": PLACE,
    "cancel.runs": RUNS,
    "same_code": FLAG,
    "sample.folder": PLACE,
    "samples": PLACE,
    "scale.gpus": (True, [THING], THING, NAN, -1, "x"),
    "since": WHEN,
    "site": MAYBE_TEXT,
    "source": TEXT,
    "state": (*TEXTS, "SOON"),
    "stats.job": JOB,
    "study.name": TEXT,
    "target": (*TEXT, b"x"),
    "tasks_per_node": (0, True, [0], THING, NAN, "x"),
    "template": TEXT,
    "template.name": TEXT,
    "tell": HEARD,
    "timeout": NUMBER,
    "to": MAYBE_TEXT,
    "trust": FLAG,
    "trusted": FLAG,
    "unset": TEXTS,
    "until": WHEN,
    "user": MAYBE_TEXT,
    "add_collection.user": FLAG,
    "users": TEXTS,
    "wait": FLAG,
    "wait.runs": RUNS,
    "wasteful": NUMBER,
    "weak": (5, [5], THING, NAN),
    "why": (*TEXT, " "),
    "within": (None, *SPAN),
    "workload.name": TEXT,
    "partition": MAYBE_TEXT,
    "account": MAYBE_TEXT,
}
# What they are given beside it, where it must be given.
GIVEN: dict[str, object] = {
    "command": ["true"], "found": None,
    "folder": "x", "function": len, "host": "n1", "iterable": [[1]],
    "job": "1", "kind": "site", "least": 1.0, "name": "x", "path": "x.html", "rule": "x",
    "runs": [], "source": "x", "template": "mail", "target": "serial",
    "why": "slow", "program": "train.py",
}  # fmt: skip
# Of the options of `submit`; those of None are not asked for.
OPTIONS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("zip", "exclude_bad", "no_code"), FLAG[1:]),
    **dict.fromkeys(("parallel", "cpus_per_task", "mem_gb", "nodes"), (0, *NUMBER, 2.5)),
    **dict.fromkeys(("max_requeues", "chain", "retries"), (*NUMBER, 2.5)),
    **dict.fromkeys(
        ("site", "partition", "account", "qos", "constraint", "reservation", "exclude", "template",
         "launcher", "executor", "name", "checkpoint"), MAYBE_TEXT,
    ),
    "args": ("--lr 1", 5, [THING], [None], [b"x"], [len], ["a\0b"], THING),
    "settings": (5, [5], THING, {"lr": THING}, {"lr": None}, {5: 1}, {"lr": len}),
    "sbatch": (5, [5], THING, {"comment": THING}, {5: 1}),
    "time": (True, [1], THING, NAN, -1, 2.5, "soon"),
    "env": (5, True, ["x"], THING, NAN),
    "after": (True, [None], [THING], THING, NAN),
    "retry": (5, True, [THING], THING, NAN),
    "sample_interval": (*NUMBER,),
    "skip_check": TEXTS,
    "gpus": (True, [1], THING, NAN, -1, 2.5, "x"),
    "tasks_per_node": (0, *NUMBER, 2.5),
}  # fmt: skip
# Values that others of hpckit's made, checked by what they are used for.
HANDED = {"difference", "index", "options", "changes", "args"}


def public() -> Iterator[tuple[str, Callable[..., Any], tuple[object, ...]]]:
    """Yield every public function and method, with an empty object for `self`."""
    for name in hpckit.__all__:
        found = getattr(hpckit, name)
        if inspect.isfunction(found):
            yield name, found, ()
        elif inspect.isclass(found) and found.__module__.startswith("hpckit.api"):
            for word, method in inspect.getmembers(found, inspect.isfunction):
                if not word.startswith("_") and method.__module__.startswith("hpckit.api"):
                    yield f"{name}.{word}", method, (found.__new__(found),)


def cases() -> Iterator[tuple[str, str, list[Callable[[], object]]]]:
    """Yield each argument, what it is called, and calls with wrong values of it."""
    for name, function, own in public():
        rows = list(inspect.signature(function).parameters.values())[len(own) :]
        needed = {
            row.name: GIVEN[row.name]
            for row in rows
            if row.default is row.empty and row.kind not in (row.VAR_POSITIONAL, row.VAR_KEYWORD)
        }
        for row in rows:
            if row.name in HANDED:
                continue
            values = WRONG.get(f"{name}.{row.name}") or WRONG[row.name]
            calls = [asked(function, own, rows, needed, row, value) for value in values]
            yield f"{name} {row.name}", row.name, calls


def asked(
    function: Callable[..., Any], own: tuple[object, ...], rows: list[inspect.Parameter],
    needed: dict[str, object], row: inspect.Parameter, value: object,
) -> Callable[[], object]:  # fmt: skip
    given = {**needed, row.name: value}
    first = [given.pop(each.name) for each in rows if each.kind == each.POSITIONAL_ONLY]
    more = [given.pop(row.name)] if row.kind == row.VAR_POSITIONAL else []
    return lambda: [function(*own, *first, *more, **given)]


CASES = list(cases())
# What an error calls an argument, where that is not its name.
CALLED = {
    "runs": r"runs|neither a run nor the id", "host": "host|not the name of one node", "why": "why",
    "iterable": "not a list of items", "iterables": "not a list of items",
    "function": "not a function", "kind": "kind|schema", "settings": "set|key|word of a command",
    "sample_interval": "sample-interval", "args": "args",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "calls"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_an_argument_of_another_type_is_refused(
    here: Path, name: str, calls: list[Callable[[], object]]
) -> None:
    for call in calls:
        assert_refused(call, name)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("option", OPTIONS)
def test_so_is_an_option(here: Path, option: str) -> None:
    write_files(here, {"train.py": "print(1)\n"})
    for value in OPTIONS[option]:
        for function in (hpckit.script, hpckit.submit):
            assert_refused(partial(function, "serial", "train.py", **{option: value}), option)
    assert [path.name for path in here.iterdir()] == ["train.py"]


def assert_refused(call: Callable[[], object], name: str) -> None:
    """Call what is refused with an error that calls the argument by its name."""
    with pytest.raises(hpckit.RequestError) as error:
        call()
    words = CALLED.get(name, name).replace("_", "[-_]")
    assert re.search(words, str(error.value), re.IGNORECASE), error.value


def test_every_option_is_in_the_table() -> None:
    assert OPTIONS.keys() == Options.__annotations__.keys()
