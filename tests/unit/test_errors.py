import ast
import re
from pathlib import Path

import pytest

from hpckit import errors

PACKAGE = Path(errors.__file__).parent


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.HpckitError, 1),
        (errors.JobError, 1),
        (errors.RequestError, 2),
        (errors.ConfigError, 2),
        (errors.TemplateError, 2),
        (errors.PlanError, 2),
        (errors.NotFoundError, 2),
        (errors.OutsideError, 3),
        (errors.CommandError, 3),
        (errors.SubmissionError, 3),
    ],
)
def test_each_error_has_its_exit_status_and_stands_in_the_tree(
    kind: type[errors.HpckitError], status: int
) -> None:
    assert kind("no").exit_code == status
    assert issubclass(kind, errors.HpckitError)
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__


def test_a_command_error_carries_what_was_run_and_said() -> None:
    error = errors.CommandError("no", argv=["squeue", "-h"], returncode=1, stderr="down")
    assert (error.argv, error.returncode, error.stderr) == (("squeue", "-h"), 1, "down")
    assert str(error) == "no"


@pytest.mark.long
def test_where_a_file_is_wrong_is_a_value_and_no_part_of_the_text() -> None:
    """`templates lint` sorts and merges by file and line: it must not read them out of prose."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id in ("ConfigError", "TemplateError", "MissingKeyError"):
                text = ast.unparse(node.args[0])
                if re.match(r"""f['"]+\{[^}]*(\.at\(|\bmark|path)[^}]*\}:""", text):
                    found.append(f"{path}:{node.lineno}: {text}")
    assert found == []
