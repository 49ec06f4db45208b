"""A Python with hpckit and a package that brings the launcher `fork`, as pip would install it."""

import sys
import sysconfig
import venv
from pathlib import Path

from tests.conftest import write_files

HERE = Path(__file__).parent
METADATA = "Metadata-Version: 2.1\nName: fork-launcher\nVersion: 1\n"


def install(folder: Path, entry_points: str) -> Path:
    """Make that Python in a folder; return the folder of its programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    theirs = sysconfig.get_paths()["purelib"]
    write_files(site, {
        "fork_launcher.py": (HERE / "fork_launcher.py").read_text(),
        "fork_launcher-1.dist-info/METADATA": METADATA,
        "fork_launcher-1.dist-info/entry_points.txt": f"[hpckit.launchers]\n{entry_points}\n",
        "hpckit.pth": f"{HERE.parents[1]}\n{theirs}\n",
    })  # fmt: skip
    return folder / "bin"


def command(programs: Path) -> list[str]:
    """Return the argv of hpckit under that Python."""
    assert (programs / "python").resolve() == Path(sys.executable).resolve()
    return [str(programs / "python"), "-m", "hpckit"]
