import pytest

from hpckit import errors


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
