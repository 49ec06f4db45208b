"""Templates: job scripts' texts, and what is wrong with them or with all that collections hold."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.api import Tell, log, searched
from hpckit.collections import Collection, Found, content_hash, survey
from hpckit.errors import OutsideError, RequestError, TemplateError
from hpckit.files import DamagedFileError, read_text, reason, replace_file
from hpckit.frozen import frozen
from hpckit.job_spec.arguments import FUNCTION, checked
from hpckit.owners import way_in
from hpckit.render import (
    find_template,
    is_report,
    list_templates,
    read_template,
    spellings,
)
from hpckit.render.included import is_part, is_piece
from hpckit.render.reports import (
    REPORT_VARIABLES,
    find_report_template,
    report_templates,
    shortest_names,
)
from hpckit.render.written_out import written_out
from hpckit.text import in_line

if TYPE_CHECKING:
    from hpckit.lint import Finding


@frozen(kw_only=True)
class Template(Found):
    """A template, where it comes from, and the collections whose same-named one it shadows."""

    def text(self) -> str:
        """Return its source.

        Raises:
            TemplateError: it cannot be read, or an expression in a script's stands inside quotes.
        """
        return read_template(self, script=not is_report(self.name))

    def hash(self) -> str:
        """Return the hash of its bytes, as `run.json` has it."""
        return content_hash(self.path)

    def diff(self) -> str:
        """Return how it differs from the one it shadows; "" if they are the same.

        One that extends the other is compared as what it amounts to: the other's text, with the
        blocks that it changes.

        Raises:
            RequestError: it shadows none. TemplateError: one of the two cannot be read.
        """
        if not self.shadows:
            raise RequestError(
                f"{self.name} of {self.collection.label()} does not shadow another template."
            )
        below = self.shadows[0].path / "templates" / self.name
        *_, old, new = self._written_out()
        return "".join(
            difflib.unified_diff(
                old.splitlines(keepends=True),
                new.splitlines(keepends=True),
                fromfile=str(below),
                tofile=str(self.path),
            )
        )

    def _written_out(self) -> Iterator[str]:
        """Yield what each template of its name amounts to, from the end of the path to this one."""
        text, names = "", set[str]()
        for collection in reversed((self.collection, *self.shadows)):
            text = written_out(_text(collection.path / "templates" / self.name), text, names)
            yield text
            names = {self.name, f"{collection.name}:{self.name}"}


def _template(found: Found) -> Template:
    return Template(
        name=found.name, path=found.path, collection=found.collection, shadows=found.shadows
    )


@checked(tell=FUNCTION)
def templates(*, tell: Tell = log) -> list[Template]:
    """Return the templates, by name."""
    return [_template(found) for found in list_templates(searched(tell)).values()]


@checked(name=str, tell=FUNCTION)
def template(name: str, *, tell: Tell = log) -> Template:
    """Return a template by its name, or the short one of `template=` in `hpckit.submit`.

    Or that of `Report.render`, unless a script's template has it.

    Raises:
        TemplateError: there is none.
    """
    return _template(_any_template(name, searched(tell)))


def _any_template(name: str, collections: tuple[Collection, ...]) -> Found:
    """Return a template of a script or a report, by its full name or a short one."""
    known = list_templates(collections)
    if known.keys().isdisjoint(spellings(name)):
        name = shortest_names(report_templates(collections)).get(name, name)
    return find_template(name, collections)


@checked(name=str, tell=FUNCTION)
def report_template(name: str, *, tell: Tell = log) -> Template:
    """Return a template of `templates/report/` by its name, as `Report.render` takes it.

    Raises:
        TemplateError: there is none, or several, or it makes files of an unknown kind.
    """
    return _template(find_report_template(name, searched(tell)))


def template_variables() -> dict[str, str]:
    """Return the variables that a template may use, and what they mean: a script's, a report's."""
    from hpckit.job.script import VARIABLES  # noqa: PLC0415  # most lists need none of it

    return {**VARIABLES, **REPORT_VARIABLES}


@frozen(kw_only=True)
class Linted:
    """What lint found in one thing.

    Attributes:
        subject: a template with its collection, `advice`, or `collections`.
        tried: how much of it: `12 plans`, `29 rules`, `12 documents`.
        findings: what is wrong, a line each, most with the file and its line.
    """

    subject: str
    tried: str
    findings: tuple[str, ...] = ()


@checked(names=str)
def lint(*names: str) -> Iterator[Linted]:
    """Yield what is wrong with templates: each is rendered for a matrix of plans and parsed.

    Those of reports are rendered with all figures, and with none. Without names: with every script
    and report template on the search path, and all else that collections hold: manifests, other
    templates, sites, workloads, rules of advice, and who can write them.

    Raises:
        TemplateError: there is no such template.
    """
    from hpckit.lint import lint_collection, read_faults  # noqa: PLC0415  # half of hpckit

    # A manifest at fault is one more finding, and no reason to stop.
    collections = survey(broken=[]).collections
    found: list[Finding] = []
    if not names:
        for collection in collections:
            found += lint_collection(collection, collections)
        yield Linted(
            subject="collections",
            tried=f"{len(collections)} collections",
            findings=_new(found, ()),
        )
    for name in names or _whole(collections):
        place = _any_template(name, collections)
        read = list(read_faults(place, collections)) if names else []
        tried, findings = _rendered(place.name, collections)
        yield Linted(
            subject=f"{place.name} ({place.collection.label()})",
            tried=tried,
            findings=(*_new(read, ()), *_new(findings, [*found, *read])),
        )
    if not names:
        yield _advice(collections, [row.message for row in found])


def _whole(collections: tuple[Collection, ...]) -> Iterator[str]:
    """Yield the script and report templates that are no parts of others."""
    known = template_variables()
    scripts = {
        name: row for name, row in list_templates(collections).items() if name.startswith("slurm/")
    }
    for name, row in (scripts | report_templates(collections)).items():
        piece = name in scripts and is_piece(row, collections)
        if not piece and not is_part(row, known, collections):
            yield name


def _rendered(name: str, collections: tuple[Collection, ...]) -> "tuple[str, Sequence[Finding]]":
    """Return with what a template was rendered, and what is wrong."""
    if is_report(name):
        from hpckit.api.lint_reports import lint_report  # noqa: PLC0415  # schemas, likewise

        count, findings = lint_report(name, collections)
        return f"{count} documents", findings
    from hpckit.lint import lint_template  # noqa: PLC0415  # likewise

    count, findings = lint_template(name, collections)
    return f"{count} plans", findings


def _advice(collections: tuple[Collection, ...], known: Sequence[str]) -> Linted:
    from hpckit.stats.advice.loading import check_rules, list_rules  # noqa: PLC0415  # likewise

    problems = check_rules(collections)
    return Linted(
        subject="advice",
        tried=f"{len(list_rules(collections))} rules",
        findings=tuple(
            in_line(text) for text in problems if not any(fault in text for fault in known)
        ),
    )


def _new(findings: "Sequence[Finding]", before: "Sequence[Finding]") -> tuple[str, ...]:
    """Return findings, each place once: what was found by reading shows again in each plan."""
    places = {(row.path, row.line) for row in before} | {(row.path, row.message) for row in before}
    files = {row.path for row in before}
    return tuple(
        in_line(str(row))
        for row in findings
        if not places & {(row.path, row.line), (row.path, row.message)}
        and not (row.line == 0 and row.path in files)
    )


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, DamagedFileError) as error:
        let = way_in(path, error)
        raise TemplateError(f"cannot be read: {reason(error)}.{let}", at=path) from error


# Where schemas are kept, beside `templates/`: what scaffolds write names them from there.
SCHEMAS = ".hpckit"


def schema_kinds() -> dict[str, str]:
    """Return the kinds of files that have a schema, each with where such files are."""
    from hpckit.schemas import KINDS  # noqa: PLC0415  # few commands need them

    return {kind: place for kind, (_, place) in KINDS.items()}


@checked(kind=str)
def file_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a kind of file: collection, site, workload, rule, ...

    It says which keys and values the file may have. `lint` asks what reads such files, which sees
    more: names that other files must have, values that must fit one another.

    Raises:
        RequestError: there is no such kind.
    """
    from hpckit.schemas import schema  # noqa: PLC0415  # few commands need them

    return schema(kind)


def write_schemas(folder: Path | str, kinds: Sequence[str] = ()) -> list[Path]:
    """Write schemas, all or of some kinds, into `.hpckit/` of a collection; return what changed.

    Raises:
        OutsideError: the folder is not there, or cannot be written.
    """
    from hpckit.schemas import schema_text  # noqa: PLC0415  # few commands need them

    place, changed = Path(folder) / SCHEMAS, []
    try:
        place.mkdir(exist_ok=True)
        if place.is_symlink():  # a checkout of others may have one to anywhere
            raise OutsideError(f"{place} is a symbolic link: schemas are not written through it.")
        for kind in kinds or schema_kinds():
            path, text = place / f"{kind}.schema.json", schema_text(kind)
            if not path.is_file() or read_text(path) != text:
                replace_file(path, text)
                changed.append(path)
    except (OSError, DamagedFileError) as error:
        raise OutsideError(f"{place}: cannot be written: {reason(error)}.") from error
    return changed
