"""Who queues jobs: one module or folder per scheduler, found by its name.

`base` is what a scheduler must do, and the table of them: `slurm`, and `local` for this machine. No
other code compares a scheduler's name. `pickles` alone gives callables to submitit.
"""
