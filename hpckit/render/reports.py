"""Templates of `templates/report/`: a group's own form of `hpckit report` and `hpckit stats`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from hpckit.collections import Collection, Found
from hpckit.documents import nearest
from hpckit.errors import TemplateError
from hpckit.render.loader import FOLDER, is_report, list_templates
from hpckit.render.rendering import render
from hpckit.render.writers import writer_of

# What is said of a variable where the other command is at work.
ALONE = "alone: use it there"
# The variables of such a template, for `hpckit templates vars`.
REPORT_VARIABLES = {
    "report": "in report/: what `hpckit report --json` prints, as .total.gpu_hours",
    "stats": "in report/: what `hpckit stats JOBID --json` prints, as .summary.gpu_hours",
}


def report_templates(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return the report templates on the search path, by their full names."""
    return {name: row for name, row in list_templates(collections).items() if is_report(name)}


def short_name(name: str) -> str:
    """Return `mail` of `report/mail.txt.j2`."""
    made = _made(name)
    return made.removesuffix(PurePosixPath(made).suffix)


def _made(name: str) -> str:
    """Return `mail.txt` of `report/mail.txt.j2`."""
    return name.removeprefix(FOLDER).removesuffix(".j2")


def shortest_names(known: Iterable[str]) -> dict[str, str]:
    """Return the full names by what is enough to type of each: `mail`, or `wiki.md` of several."""
    names = list(known)
    many = Counter(map(short_name, names))
    return {short if many[short := short_name(name)] == 1 else _made(name): name for name in names}


def find_report_template(name: str, collections: tuple[Collection, ...]) -> Found:
    """Return a report template: `mail`, `mail.txt` or `report/mail.txt.j2`.

    Raises:
        TemplateError: there is none, or several, or it makes files of an unknown kind.
    """
    known = report_templates(collections)
    whole = (name, f"{FOLDER}{name}", f"{FOLDER}{name}.j2")
    called = [word for word in whole if word in known][:1]
    called = called or [word for word in known if short_name(word) == name]
    if len(called) == 1:
        writer_of(known[called[0]])
        return known[called[0]]
    if called:
        words = " or ".join(map(_made, called))
        raise TemplateError(f"Several report templates are called {name!r}. Give {words}.")
    raise TemplateError(_unknown(name, map(short_name, known)))


def _unknown(name: str, known: Iterable[str]) -> str:
    words = sorted(set(known))
    return f"Unknown report template {name!r}. {nearest(name, words)} See `hpckit templates list`."


def render_report(
    name: str, variables: Mapping[str, Any], collections: tuple[Collection, ...]
) -> str:
    """Render a report template; values are written as the kind of file that it makes takes them.

    Args:
        name: as `find_report_template` takes it.
        variables: one of REPORT_VARIABLES, or both.
        collections: the search path.

    Raises:
        TemplateError: there is none, or it is wrong, with its line; or it is of the other command.
    """
    from jinja2 import StrictUndefined

    found = find_report_template(name, collections)
    others = {
        word: StrictUndefined(hint=f"{word!r} is known to `hpckit {word}` {ALONE}")
        for word in REPORT_VARIABLES.keys() - variables.keys()
    }
    return render(found.name, {**others, **variables}, collections, write=writer_of(found)).text
