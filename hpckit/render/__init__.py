"""The only module that knows Jinja: strict, sandboxed, and values quoted for the shell by itself.

Every `{{ value }}` is quoted as the environment prints it, so a template's author cannot forget it.
An author who writes quotes round an expression would undo that (`"{{ x }}"` lets `$(…)` run), so
such a template is refused when it is loaded.

- To render: `loader` (templates on the search path), `rendering`, `sandbox` with `filters`,
  `rewriting` (what goes by the sandbox), `quoting`, `limits`.
- What is wrong with a template, without rendering it: `template_faults`, `included`, `left_out`;
  `written_out` says what one that extends another amounts to.
- Reports' templates: `reports`, `writers` (values as the kind of file takes them).
"""

from hpckit.render.loader import (
    find_template,
    is_report,
    list_templates,
    read_template,
    spellings,
    template_record,
)
from hpckit.render.rendering import Rendered, load, render

__all__ = [
    "Rendered",
    "find_template",
    "is_report",
    "list_templates",
    "load",
    "read_template",
    "render",
    "spellings",
    "template_record",
]
