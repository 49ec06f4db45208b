"""Collections read as a whole: is every file in them right, does every script render and parse?"""

from hpckit.lint.collection import lint_collection
from hpckit.lint.finding import Finding
from hpckit.lint.scripts import bash_errors, late_options, shellcheck
from hpckit.lint.templates import lint_template

__all__ = [
    "Finding",
    "bash_errors",
    "late_options",
    "lint_collection",
    "lint_template",
    "shellcheck",
]
