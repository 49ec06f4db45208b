"""Slurm: sbatch, squeue and sacct, scancel, by the questions of `hpckit.slurm`."""
