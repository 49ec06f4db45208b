"""Workloads: programs that hpckit can submit."""

from hpckit.api import Tell, log, searched
from hpckit.workloads import Parameter, Workload, list_workloads, load_workload, read_workload

__all__ = ["Parameter", "Workload", "workload", "workloads"]


def workloads(*, tell: Tell = log) -> list[Workload]:
    """Return the workloads, by name.

    Raises:
        ConfigError: a workload's file is wrong.
    """
    return [read_workload(found) for found in list_workloads(searched(tell)).values()]


def workload(name: str, *, tell: Tell = log) -> Workload:
    """Return a workload: its program, its parameters with types, defaults and help.

    Raises:
        RequestError: there is no such workload. ConfigError: its file is wrong.
    """
    return load_workload(name, searched(tell))
