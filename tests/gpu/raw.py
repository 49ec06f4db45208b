"""Raw readings behind the figures, a line of JSON each: gpu-report.raw.jsonl, beside the report.

Who gets a machine with a GPU once must be able to tell from these why a limit was missed: whether
the sampler, the load, the witness or the limit was wrong. Secrets are taken out as in the report.
"""

import getpass
import json
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tests.gpu.document import scrubbed

ROOT = Path(__file__).parents[2]
NAME = "gpu-report.raw.jsonl"
Keep = Callable[[str, object], None]
# Names that tell of nobody, and stand in other words of a report.
_NOBODY = ("/", "/tmp", "root", "localhost", "user", "ubuntu", "gpu", "node", "test", "vm")
# What came back from a machine once was at most 16 MiB.
_MOST_BYTES = 12 * 2**20


def keeper(journal: Path | None, check: str) -> Keep:
    """Return what writes a check's readings beside its journal; without one, they are not kept."""
    if journal is None:
        return lambda _what, _value: None
    path = journal.with_name(NAME)
    words = secrets()

    def keep(what: str, value: object) -> None:
        row = {"check": check.rpartition("/")[2], "what": what, "value": plain(value)}
        line = json.dumps(scrubbed(row, words), default=str) + "\n"
        with path.open("a", encoding="utf-8") as stream:
            if stream.tell() + len(line) < _MOST_BYTES:
                stream.write(line)

    return keep


def secrets() -> list[str]:
    """Return what a report must not have: it is pasted where everybody reads it."""
    host = socket.gethostname()
    found = [host, host.partition(".")[0], str(ROOT), tempfile.gettempdir()]
    with suppress(RuntimeError):  # a container's user without a name and a home
        found.append(str(Path.home()))
    with suppress(KeyError, OSError, ImportError):
        found.append(getpass.getuser())
    return [word for word in found if word not in _NOBODY]


def plain(value: Any) -> Any:
    """Return records as JSON has them: named, without what is unknown."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {row.name: getattr(value, row.name) for row in fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items() if one is not None}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value
