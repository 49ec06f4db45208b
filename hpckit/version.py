"""The version of hpckit, and the name under which pip knows it.

On PyPI `hpckit` is another project, which has the same import name and the same command.
"""

__version__ = "0.1.0"
DISTRIBUTION = "hpckit-slurm"
