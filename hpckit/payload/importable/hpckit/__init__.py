"""hpckit for the scripts of jobs, whose Python may be another one that does not have it.

On their PYTHONPATH this folder gives them `hpckit.parallel` and `hpckit.inference`, nothing else of
the environment that hpckit is installed in.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[3])]

from hpckit.version import __version__  # needs the path

__all__ = ["__version__"]
