"""Each workload.yaml and its script's own arguments say the same."""

import importlib.util
import re
import sys
from argparse import Action
from types import ModuleType

import pytest
import yaml

pytest.importorskip("torch")

from tests.workloads.processes import WORKLOADS

pytestmark = pytest.mark.torch
NAMES = sorted(folder.name for folder in WORKLOADS.iterdir() if (folder / "workload.yaml").exists())


def described(name: str) -> dict:
    return yaml.safe_load((WORKLOADS / name / "workload.yaml").read_text())


def script(name: str) -> ModuleType:
    path = WORKLOADS / name / described(name)["script"]
    spec = importlib.util.spec_from_file_location(f"workload_{name}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as for a script: modules lie beside some
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def said(action: Action) -> list:
    kind = "bool" if action.const is True else getattr(action.type, "__name__", "str")
    default = action.default
    if isinstance(default, list):  # words of one value
        default = " ".join(default)
    return [kind, default, list(action.choices) if action.choices else None]


@pytest.mark.parametrize("name", NAMES)
def test_names_types_defaults_and_choices(name: str) -> None:
    actions = script(name).make_parser()._actions
    known = {action.option_strings[-1].removeprefix("--"): said(action) for action in actions}
    del known["help"], known["out"]
    assert known == {
        parameter: [row["type"], row["default"], row.get("choices")]
        for parameter, row in described(name)["parameters"].items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_minima(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = script(name).make_parser()
    for parameter, row in described(name)["parameters"].items():
        if row["type"] in ("int", "float"):
            parser.parse_args([f"--{parameter}", str(row["minimum"])])
            with pytest.raises(SystemExit) as ended:
                parser.parse_args([f"--{parameter}={row['minimum'] - 1}"])
            assert ended.value.code == 2
            line = f"--{parameter}: must be at least {row['minimum']}, not {row['minimum'] - 1}"
            assert line in capsys.readouterr().err


def test_the_training_workloads_have_the_same_words() -> None:
    same = {"model", "data", "batch-size", "epochs", "seed", "lr", "limit", "resume"}
    for name in ("ddp", "dp", "mirrored", "from_scratch"):
        assert same <= described(name)["parameters"].keys(), name


@pytest.mark.parametrize("name", ["ddp", "dp", "mirrored", "from_scratch"])
def test_helps(name: str) -> None:
    """A workload's folder is whole by itself, so the words stand in each: they are the same."""
    helps = {
        action.option_strings[-1].removeprefix("--"): re.sub(r" \([^()]*\)$", "", action.help or "")
        for action in script(name).make_parser()._actions
    }
    rows = described(name)["parameters"].items()
    assert {key: row["help"] for key, row in rows} == {key: helps[key] for key, _ in rows}
