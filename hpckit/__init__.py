"""hpckit: submit multi-GPU work to Slurm with one line, and see what the GPUs did with it."""

from hpckit.version import __version__

__all__ = ["__version__"]
