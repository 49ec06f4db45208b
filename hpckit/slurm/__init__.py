"""What Slurm says, as values: argv in, values out; every parser is a pure function of text.

- `client` runs the programs, and limits the time of all questions of a command together.
- Jobs: `jobs` (squeue, then sacct) by `rows`, `states` (one job), `reasons` in plain words,
  `dependencies`, `preemption` (what a SIGTERM means), `resized`, `gpu_indices`; `control` (scancel,
  sbatch's answers).
- What jobs used: `usage` with `usage_rows`.
- The cluster: `cluster` (partitions, accounts), `nodes`, `free`, `hostlist`.
"""
