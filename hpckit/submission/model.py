"""What is about to be submitted. Apart from what submits it, which a dry run need not import."""

from dataclasses import dataclass
from pathlib import Path

from hpckit.collections import Collection
from hpckit.plan.model import Plan
from hpckit.plan.request import Request
from hpckit.script import RunPlace


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """What is about to be submitted, and what its record will say."""

    request: Request
    plan: Plan
    place: RunPlace
    collections: tuple[Collection, ...]
    site_path: Path | None = None
    site_collection: str = ""
    after_dirs: tuple[str, ...] = ()
