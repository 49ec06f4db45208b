"""Workloads: programs that hpckit can submit."""

from hpckit.api import Tell, log, readable, searched
from hpckit.job_spec.arguments import FUNCTION, checked
from hpckit.workloads import Parameter, Workload, list_workloads, load_workload, read_workload

__all__ = ["Parameter", "Workload", "workload", "workloads"]


@checked(tell=FUNCTION)
def workloads(*, tell: Tell = log) -> list[Workload]:
    """Return the workloads, by name; `tell` hears of those whose file is wrong."""
    return [*readable(list_workloads(searched(tell)).values(), read_workload, tell)]


@checked(name=str, tell=FUNCTION)
def workload(name: str, *, tell: Tell = log) -> Workload:
    """Return a workload: its program, its parameters with types, defaults and help.

    Raises:
        RequestError: there is no such workload. ConfigError: its file is wrong.
    """
    return load_workload(name, searched(tell))
