"""The only module that knows Jinja: strict, sandboxed, and values quoted for the shell by itself.

Every `{{ value }}` is quoted as the environment prints it, so a template's author cannot forget it.
An author who writes quotes round an expression would undo that (`"{{ x }}"` lets `$(…)` run), so
such a template is refused when it is loaded.
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
