"""Why a job, or an attempt of it, ended.

`failures` joins what is known: `causes` by Slurm's state, with what Slurm's programs wrote
(`joblog`) and the ranks (`tracebacks`, `mpi_ends`). `restarts` says why earlier attempts ended.
`hints` is the advice on common errors, by their words in a log.
"""
