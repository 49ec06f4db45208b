"""One template: read as it is, and as a job script rendered for the matrix of plans."""

import functools
from collections.abc import Iterator
from pathlib import Path

from hpckit.collections import Collection, Found
from hpckit.errors import TemplateError
from hpckit.job.job import Job
from hpckit.job.script import VARIABLES, RunPlace, make_script
from hpckit.lint.finding import Finding, finding
from hpckit.lint.matrix import matrix
from hpckit.lint.scripts import bash_errors, late_options, shellcheck
from hpckit.render import Rendered, template_faults

_PLACE = RunPlace(run_id="lint", dir=Path("/runs/it's 100%/lint"), cwd="/home/a b")


def read_faults(found: Found, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what is wrong with a template without rendering it."""
    try:
        for line, message in template_faults(found, VARIABLES, collections):
            yield Finding(path=str(found.path), line=line, message=message)
    except TemplateError as error:
        yield finding(str(error), str(found.path))


def lint_template(name: str, collections: tuple[Collection, ...]) -> tuple[int, list[Finding]]:
    """Render a script template for the matrix; return how many plans, and what is wrong.

    Raises:
        OutsideError: there is no bash or shellcheck here.
    """
    findings: dict[tuple[str, int, str], Finding] = {}
    count = 0
    for case, job in matrix(name):
        count += 1
        for found in _lint_case(case, job, collections):
            findings.setdefault((found.path, found.line, found.message), found)
    return count, list(findings.values())


def _lint_case(case: str, job: Job, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    try:
        rendered = make_script(job, _PLACE, collections, trace=True)
    except TemplateError as error:
        yield finding(str(error), job.template, case)
        return
    for line, message in (*late_options(rendered.text), *_checked(rendered.text)):
        path, number = _origin(rendered, line)
        yield Finding(path=path, line=number, message=message, case=case)


@functools.cache
def _checked(text: str) -> tuple[tuple[int, str], ...]:
    """Check a script's text once: many plans give the same."""
    # Of what bash cannot read shellcheck says the same again.
    return tuple(bash_errors(text)) or tuple(shellcheck(text))


def _origin(rendered: Rendered, line: int) -> tuple[str, int]:
    """Return the template's file and line for a line of the script, or the nearest one above."""
    for origin in reversed(rendered.origins[:line]):
        if origin:
            return origin
    return str(rendered.templates[0].path), 1
