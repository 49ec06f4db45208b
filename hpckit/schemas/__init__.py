"""JSON Schemas of the files that people write, for editors and for programs.

They say what the strict readers accept; `hpckit templates lint` asks the readers, which see more:
names that other files must have, values that must fit. A test holds both against one another
(tests/unit/test_schemas.py). `words` has a schema for each method of `documents.Fields`; `site` and
`others` are made of these.
"""

import json
from collections.abc import Callable, Mapping

from hpckit.errors import RequestError
from hpckit.schemas.others import collection, lock, rule, workload
from hpckit.schemas.site import config, site
from hpckit.schemas.words import Schema

KINDS: Mapping[str, tuple[Callable[[], Schema], str]] = {
    "collection": (collection, "hpckit.yaml"),
    "site": (site, "templates/sites/NAME.yaml"),
    "workload": (workload, "workloads/NAME/workload.yaml"),
    "rule": (rule, "templates/advice/ID.yaml"),
    "lock": (lock, "hpckit.lock"),
    "config": (config, "~/.config/hpckit/config.yaml"),
}
"""The kinds of files: what makes the schema of each, and where such files are."""


def schema(kind: str) -> Schema:
    """Return the schema of a kind of file.

    Raises:
        RequestError: there is no such kind.
    """
    if kind not in KINDS:
        from hpckit.documents import nearest  # noqa: PLC0415  # errors alone

        raise RequestError(f"There is no kind of file {kind!r}. {nearest(kind, KINDS)}")
    return KINDS[kind][0]()


def schema_text(kind: str) -> str:
    """Return the same as the text of a file."""
    return json.dumps(schema(kind), indent=2) + "\n"
