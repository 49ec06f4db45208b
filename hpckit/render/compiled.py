"""Templates as Jinja has compiled them before (`hpckit.kept`)."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.kept import kept, stamp
from hpckit.render import sandbox

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment


def keep_compiled(environment: "SandboxedEnvironment") -> None:
    """Let an environment of the sandbox have its templates' code from what is kept."""
    compiled = environment.compile

    def compile_or_read(source: str, name: str, filename: str) -> Any:  # noqa: ANN401
        return kept(lambda: compiled(source, name, filename), source, name, filename, *_makers())

    environment.compile = compile_or_read  # type: ignore[method-assign,assignment]


@cache
def _makers() -> tuple[str, ...]:
    """Return what tells apart versions of what makes code of a template."""
    import jinja2

    return stamp(sandbox.__file__), stamp(str(Path(jinja2.__file__).with_name("compiler.py")))
