"""Packages that only this workload needs; what is missing is said in one line."""

import importlib
from types import ModuleType

from hpckit.parallel.errors import SetupError


def need(name: str) -> ModuleType:
    """Import a package or one of its modules.

    Raises:
        SetupError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SetupError(
            f"{name} cannot be imported ({error}): install it with "
            f"'pip install {name.partition('.')[0]}', or hpckit with its extra 'science'"
        ) from error
