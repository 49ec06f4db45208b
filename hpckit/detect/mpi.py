"""Which kind of MPI srun is to start, where the site does not say."""

from collections.abc import Sequence

# Best known first.
KINDS = ("pmix", "cray_shasta", "pmi2")
_NONE = ("", "none", "(null)")


def own_default(text: str) -> str | None:
    """Return what srun does by itself, from MpiDefault of `scontrol show config`."""
    return None if text in _NONE else text


def choose_mpi(kinds: Sequence[str]) -> str | None:
    """Return the kind hpckit takes of those that `srun --mpi=list` names; None: it knows none.

    Without `--mpi` many a Slurm starts each rank as a world of its own.
    """
    return next((kind for kind in KINDS if kind in kinds), None)
