"""What compiling needs: of a machine, checked before the first batch, and of torch."""

import os
import shlex
import shutil
import sysconfig
import warnings
from collections.abc import Collection, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch

from hpckit.parallel.errors import SetupError

_TRACES = 8  # torch's own limit


def check_compiler(devices: Iterable[torch.device]) -> None:
    """Refuse to compile where torch would fail in the midst of the first step.

    Raises:
        SetupError: as `check_programs` says.
    """
    check_programs({device.type for device in devices})
    load_compiler()


def check_programs(kinds: Collection[str]) -> None:
    """Check what lies beside torch: compilers, Triton, Python's headers; load nothing.

    For the CPU torch calls $CXX or g++, and for GPUs Triton calls $CC, gcc or clang. Both make
    modules for Python, of which `python3-dev` or the like may be missing.

    Args:
        kinds: of devices, `cpu` and `cuda`.

    Raises:
        SetupError: there is no compiler, no Triton, or no Python.h.
    """
    if "cpu" in kinds:
        _check_program("C++", "CXX", ["g++"])
    if "cuda" in kinds:
        if find_spec("triton") is None:
            raise SetupError(
                "--compile needs Triton for GPUs: install torch's own build for CUDA, or leave "
                "--compile out"
            )
        _check_program("C", "CC", ["gcc", "clang"])
    _check_headers()


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


def _check_headers() -> None:
    # Debian's own scheme names a folder that nothing is installed to; INCLUDEPY is the right one.
    places = [sysconfig.get_path("include"), sysconfig.get_config_var("INCLUDEPY")]
    for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"):
        places += os.environ.get(name, "").split(os.pathsep)
    if not any((Path(place) / "Python.h").is_file() for place in places if place):
        raise SetupError(
            f"--compile needs Python's headers, and {places[0]} has no Python.h: install them "
            "(python3-dev, python3-devel), name their folder in $CPATH, or leave --compile out"
        )
