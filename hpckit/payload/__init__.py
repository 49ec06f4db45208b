"""What runs inside the job: rank environment, supervisor, signals, the local scheduler's stand-ins.

It runs under hpckit's own interpreter, which may not be the one of the user's script: the script
is always a child process, so that any python (module, venv, conda, container) works unchanged.

- Before ranks: `rendezvous` (host and port, in the job script), `bundle` (hpckit's modules in one
  file, for many ranks), `task` (what the job has to do).
- The ranks: `supervisor`, `rank`, `environment` (argv, device, threads), `recorder` (logs and
  record), `children`, `container` (enters Pyxis's). `last_memory` and `other_nodes` say why a rank
  ended; `last_line` is what a process says at its end.
- Signals: `notice` passes Slurm's warning on, to who has `handlers`; `ending` finds out what a
  SIGTERM means.
- What ranks run where it is not the script itself: `function` (a pickled one), and `mpi_script`: a
  rank that fails must not wait in MPI_Finalize. It tells its status to the supervisor first
  (`end_line`), because PMIx may end the step, supervisors included, once a rank is gone.
- On the script's PYTHONPATH: `importable/`, for any Python from 3.6 on. Its sitecustomize.py keeps
  bytecode away from collections' sources, and has ranks say at their end whether they met.
- For local runs: `keeper` (in slurmstepd's place), `spawn` (in srun's), `sweep` (ends what stays).
"""
