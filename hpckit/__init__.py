"""hpckit: submit multi-GPU work to Slurm with one line, and see what the GPUs did with it."""

__version__ = "0.1.0"
