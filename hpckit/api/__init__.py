"""What Python programs, notebooks and the command line call; `hpckit` has its names.

Nothing in here prints: what a user should know comes back as values, or goes to the logger
`hpckit`, which is silent unless its program wants to hear it. Nothing changes the folder.

- To submit: `submit` over `prepare`, `options` (types of keywords); `resubmit` with
  `earlier_request`, `evidence`, `twins` and `failed_tasks`; `call` and `call_result` (functions as
  jobs); `scale` over `study_plan`; `retry`, which runs in the failed job.
- Runs: `run` and `run_list` with `run_status`; `lookup` and `choice` (which runs are meant),
  `array_tasks`, `cancel`, `clean`, `rebuild`, `code`.
- Figures: `stats` with `job_stats`, `report`, `sample`, `top`.
- Sessions: `sessions` with `terminals` and `jupyter`; `ssh_config` with `login`.
- The cluster, and what people write: `sites`, `free`, `bad_nodes`, `doctor`, `workloads`,
  `collections`, `templates` with `lint_reports`; `names`, for the Tab key.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hpckit.errors import ConfigError

if TYPE_CHECKING:
    from hpckit.collections import Collection, Found

T = TypeVar("T")
Tell = Callable[[str], None]


def log(text: str) -> None:
    """Tell the logger `hpckit` what nobody asked for; silent unless the program listens."""
    import logging  # noqa: PLC0415  # seldom

    logger = logging.getLogger("hpckit")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.info(text)


@contextmanager
def slow_answers_told(tell: Tell) -> Iterator[None]:
    """Say inside, once for each of Slurm's programs, that it takes long to answer."""
    from hpckit.slurm import client  # noqa: PLC0415  # not every command asks Slurm

    with client.slow_answers_told(tell):
        yield


def home_folder() -> Path:
    """Return this user's home.

    Raises:
        OutsideError: neither `$HOME` nor the machine says where it is.
    """
    from hpckit.paths import home  # noqa: PLC0415  # few commands write there by themselves

    return home()


def searched(tell: Tell = log) -> "tuple[Collection, ...]":
    """Return the collections that can be used, in their order; `tell` hears why others cannot.

    Raises:
        ConfigError: a folder of `$HPCKIT_COLLECTIONS` or a manifest is wrong.
    """
    from hpckit.collections import survey  # noqa: PLC0415  # not every command searches

    around = survey()
    for row in around.unusable:
        tell(row.left_out())
    return around.collections


def readable(places: "Iterable[Found]", read: "Callable[[Found], T]", tell: Tell) -> Iterator[T]:
    """Yield what can be read of a list; `tell` hears which files are wrong: others still count."""
    for place in places:
        try:
            row = read(place)
        except ConfigError as error:
            tell(f"left out: {error}")
        else:
            yield row
