"""What compiling needs: of a machine, checked before the first batch, and of torch."""

import os
import shlex
import shutil
import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

import torch

from hpckit.parallel.errors import SetupError

_TRACES = 8  # torch's own limit


def check_compiler(devices: Iterable[torch.device]) -> None:
    """Refuse to compile where torch would fail in the midst of the first step.

    For the CPU torch calls $CXX or g++, and for GPUs Triton calls $CC, gcc or clang.

    Raises:
        SetupError: there is no compiler, or no Triton.
    """
    kinds = {device.type for device in devices}
    if "cpu" in kinds:
        _check_program("C++", "CXX", ["g++"])
    if "cuda" in kinds:
        if find_spec("triton") is None:
            raise SetupError(
                "--compile needs Triton for GPUs: install torch's own build for CUDA, or leave "
                "--compile out"
            )
        _check_program("C", "CC", ["gcc", "clang"])
    load_compiler()


def load_compiler() -> None:
    """Load torch's compiler now, and not in the first step."""
    with warnings.catch_warnings():
        # Of torch's own modules, whose authors know it.
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("torch._inductor.compile_fx")


def allow_traces(copies: int) -> None:
    """Have torch trace a function for each of several copies of a module, on their devices.

    Torch stops to compile a function that it has traced 8 times. Copies on 8 GPUs take one each,
    and so may threads that begin at once.
    """
    from torch._dynamo import config  # noqa: PLC0415  # slow

    config.cache_size_limit = max(config.cache_size_limit, _TRACES * copies)


def _check_program(language: str, variable: str, names: list[str]) -> None:
    chosen = os.environ.get(variable)
    wanted = shlex.split(chosen)[:1] if chosen else names
    if not any(map(shutil.which, wanted)):
        found = f"${variable} is {chosen!r}" if chosen else f"no {' or '.join(names)} is here"
        raise SetupError(
            f"--compile needs a {language} compiler, and {found}: load a module that has one, set "
            f"${variable}, or leave --compile out"
        )
