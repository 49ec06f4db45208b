"""What was made of files, kept in the user's cache as Python keeps its bytecode.

Code of templates is among it, and a site's words that end up in scripts. So it is read only where
this user alone can have written it, and all that it was made of stands in its file and is compared.
Where nothing can be kept, things are made each time.
"""

import binascii
import contextlib
import marshal
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path
from typing import Any

from hpckit.files import DamagedFileError, open_regular, replace_file
from hpckit.owners import is_mine_alone, strangers
from hpckit.paths import cache_folder, home_steps, make_folder
from hpckit.version import __version__

# A few thousand bytes each; hpckit's own templates, sites and workloads make some thirty.
_MOST_FILES, _MOST_BYTES = 400, 4 * 2**20
_SUM_BYTES = 4


def kept(make: Callable[[], Any], *made_of: str) -> Any:  # noqa: ANN401
    """Return what was made of the same texts before, else make and keep it.

    It must be code, or plain values as `marshal` takes them; what `make` raises is not kept.
    """
    folder = cache_folder() / "made"
    if not _mine(folder):
        return make()
    wanted = [__version__, MAGIC_NUMBER.hex(), *made_of]
    # Two texts may have the same sum, and then one file after the other.
    path = folder / _sum("\0".join(wanted).encode(errors="surrogateescape")).hex()
    found = _read(path)
    if found is not None and found[0] == wanted:
        return found[1]
    made = make()
    if not sys.dont_write_bytecode:  # whoever wants none of Python's wants none of these
        _write(path, [wanted, made])
    return made


@cache
def stamp(path: str) -> str:
    """Return what tells one version of a file of a program from another."""
    status = os.stat(path)  # noqa: PTH116  # of a module's __file__
    return f"{path} {status.st_mtime_ns} {status.st_size}"


@cache
def makers(*modules: str) -> tuple[str, ...]:
    """Return the stamps of modules, none of which is loaded for it, that are installed."""
    found = map(find_spec, modules)
    return tuple(stamp(spec.origin) for spec in found if spec and spec.origin)


def _mine(folder: Path) -> bool:
    """Say whether nobody else could have put something into a folder, or another in its place."""
    try:
        return not strangers(folder, passed=home_steps())
    except OSError:
        return False


def _sum(content: bytes) -> bytes:
    # For hashlib's sums each command would load OpenSSL.
    return binascii.crc32(content).to_bytes(_SUM_BYTES)


def _read(path: Path) -> list[Any] | None:
    """Return what a file of this user's alone keeps; None: there is none, or it is damaged."""
    try:
        with open_regular(path) as stream:
            if not is_mine_alone(stream.fileno(), os.fstat(stream.fileno())):
                return None
            content = stream.read(_MOST_BYTES)
    except (OSError, DamagedFileError):
        return None
    body = content[_SUM_BYTES:]
    if not body or _sum(body) != content[:_SUM_BYTES]:  # half a file, after the machine's failure
        return None
    found: list[Any] = marshal.loads(body)  # noqa: S302  # as Python's own bytecode, but stricter
    return found


def _write(path: Path, words_and_made: list[Any]) -> None:
    body = marshal.dumps(words_and_made)
    with contextlib.suppress(OSError):  # no room, or not to be written
        make_folder(path.parent, mode=0o700)
        others = os.listdir(path.parent)  # noqa: PTH208  # names are enough
        for name in others if len(others) >= _MOST_FILES else ():
            path.with_name(name).unlink(missing_ok=True)
        replace_file(path, _sum(body) + body, mode=0o600)
