"""What is about to be submitted, and its script. What submits it a dry run need not import."""

from dataclasses import dataclass
from functools import cached_property

from hpckit.collections import Collection, Found, Unusable
from hpckit.errors import ConfigError
from hpckit.job.checks import off_switch
from hpckit.job.job import Job
from hpckit.job.script import RunPlace, make_script
from hpckit.render import Rendered
from hpckit.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is about to be submitted, and what its record will say."""

    spec: JobSpec
    job: Job
    place: RunPlace
    collections: tuple[Collection, ...]
    unusable: tuple[Unusable, ...] = ()
    site: Found | None = None
    after_dirs: tuple[str, ...] = ()

    @cached_property
    def rendered(self) -> Rendered:
        """The job script, rendered once: what is shown, checked and submitted is the same.

        Raises:
            TemplateError: the template is missing or wrong. ConfigError: part of it would come from
                a collection that cannot be used now.
        """
        rendered = make_script(self.job, self.place, self.collections)
        names = frozenset(f"templates/{found.name}" for found in rendered.templates)
        refuse_unusable(self.unusable, names, self.spec)
        return rendered


def refuse_unusable(unusable: tuple[Unusable, ...], names: frozenset[str], spec: JobSpec) -> None:
    """Refuse a request in which a file may be another than the one that was pinned.

    Raises:
        ConfigError: one of `names` would come from a collection that cannot be used.
    """
    for row in unusable:
        if row.has(names) and "collections" not in spec.skip_checks:
            what = ", ".join(sorted(names & (row.provides or frozenset()))) or "what is submitted"
            raise ConfigError(
                f"Collection {row.name!r}, from which {what} may come, cannot be used: {row.why} "
                f"{off_switch('collections')}"
            )
