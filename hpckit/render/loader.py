"""Templates on the search path: listing, finding, reading, and Jinja's way to ask for one."""

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from hpckit.collections import Collection, Found, content_hash, find_all
from hpckit.documents import nearest
from hpckit.errors import Location, TemplateError
from hpckit.files import DamagedFileError, open_regular, reason
from hpckit.frozen import changeable
from hpckit.owners import way_in
from hpckit.render.limits import MAX_SOURCE_BYTES
from hpckit.render.quoting import quoted_expression


def list_templates(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return every template on the search path by its name under `templates/`."""
    return find_all("**/*.j2", "templates", collections)


def find_template(name: str, collections: tuple[Collection, ...]) -> Found:
    """Return the template `name`: a full name, or the short one of `--template` (`base`).

    Raises:
        TemplateError: there is no such template.
    """
    return _find(name, list_templates(collections))


FOLDER = "report/"


def is_report(name: str) -> bool:
    """Say whether a template, by its full name, is one of a report, and none of a script."""
    return name.startswith(FOLDER)


def spellings(name: str) -> tuple[str, ...]:
    """Return the full names that a template's name may stand for, in the order they are tried."""
    return (name, f"slurm/{name}.sh.j2", f"{name}.sh.j2")


def _find(name: str, known: Mapping[str, Found]) -> Found:
    for candidate in spellings(name):
        if candidate in known:
            return known[candidate]
    scripts = (key for key in known if not is_report(key))
    short = [key.removeprefix("slurm/").removesuffix(".sh.j2") for key in scripts]
    raise TemplateError(
        f"Unknown template {name!r}. {nearest(name, short)} See `hpckit templates list`."
    )


@changeable()
class Loader:
    """Finds templates on the search path, reads each once, and remembers which were used.

    A template that extends its own name gets the next one down the path; `NAME:path` reaches into
    the collection called NAME. Inside Jinja such a template is called `NAME:path`. `script`: they
    make one for bash, and no expression may stand inside quotes.
    """

    collections: tuple[Collection, ...]
    script: bool = True
    used: dict[str, Found] = field(default_factory=dict)
    _read: dict[str, str] = field(default_factory=dict)
    _listed: dict[int, dict[str, Found]] = field(default_factory=dict)

    def find(self, name: str) -> Found:
        """Return the template `name`, as `find_template`."""
        return _find(name, self.templates())

    def templates(self, start: int = 0) -> dict[str, Found]:
        """Return the templates of the path from a collection on; the folders are read once."""
        if start not in self._listed:
            self._listed[start] = list_templates(self.collections[start:])
        return self._listed[start]

    def as_jinja(self) -> Any:  # noqa: ANN401
        """Return the loader as Jinja wants it."""
        from jinja2 import FunctionLoader

        return FunctionLoader(self._load)

    def resolve(self, template: str, parent: str) -> str:
        """Return the name `template` stands for when `parent` extends or includes it."""
        if ":" in template:
            return template
        _, _, parent_path = parent.rpartition(":")
        if template != parent_path or parent not in self.used:
            return template
        shadowed = self.used[parent].shadows
        if not shadowed:
            raise TemplateError(
                f"extends itself, but no later collection on the search path has {template!r}.",
                at=self.used[parent].path,
            )
        return f"{shadowed[0].name}:{template}"

    def _load(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        owner, _, path = name.rpartition(":")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise TemplateError(f"Template name {path!r} points outside the collections.")
        names = [collection.name for collection in self.collections]
        if owner and owner not in names:
            raise TemplateError(f"Unknown collection {owner!r}. {nearest(owner, names)}")
        start = names.index(owner) if owner else 0
        found = self.templates(start).get(path)
        if found is None or (owner and found.collection.name != owner):
            return None
        if name not in self._read:
            self._read[name] = read_template(found, script=self.script)
        self.used[name] = found
        return self._read[name], str(found.path), lambda: True


def read_template(found: Found, *, script: bool = True) -> str:
    """Read a template's source; in one of a script, refuse expressions inside quotes.

    Raises:
        TemplateError: unreadable, or an expression inside quotes or a here-document.
    """
    try:
        with open_regular(found.path) as stream:
            content = stream.read(MAX_SOURCE_BYTES + 1)
        source = content.decode()
    except (OSError, DamagedFileError) as error:
        let = way_in(found.path, error)
        raise TemplateError(f"cannot be read: {reason(error)}.{let}", at=found.path) from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"cannot be read: {error}.", at=found.path) from error
    if len(content) > MAX_SOURCE_BYTES:
        raise TemplateError(f"the template is longer than {MAX_SOURCE_BYTES} bytes.", at=found.path)
    if script and (fault := quoted_expression(source)):
        line, expression = fault
        raise TemplateError(
            f"{expression} is inside quotes or a here-document. "
            "Remove the quotes: hpckit quotes every value.",
            at=Location(found.path, line),
        )
    return source


def template_record(found: Found) -> dict[str, str]:
    """Describe a template for `run.json`."""
    return {
        "name": found.name,
        "collection": found.collection.name,
        "revision": found.collection.revision,
        "path": str(Path(found.path)),
        "hash": content_hash(found.path),
    }
