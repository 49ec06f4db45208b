#!/bin/bash
# hpckit VERSION: script /hpckit/workloads/ddp/train.py, strategy mpi, run RUN
# 2 nodes x 8 ranks, 0 GPUs in all, site box, launcher mpirun
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/none.sh.j2
# template environments/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/none.sh.j2
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --account=proj-1
#SBATCH --qos=normal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=01:00:00
#SBATCH --dependency=afterok:9
#SBATCH --chdir=/proj/code
#SBATCH --output=/proj/runs/RUN/job.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@90
#SBATCH --requeue
# Slurm's warning must not end this script before hpckit, in its place, can act on it.
trap 'export HPCKIT_WARNED=1' USR2
export OMP_NUM_THREADS=4
export NOTE='two words'
umask 027

# No modules.

# Python: PYTHON

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(PYTHON -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts:
#   PYTHON /hpckit/workloads/ddp/train.py
export SUBMITIT_EXECUTOR=slurm
trap '' USR2
exec PYTHON -E -P -u -m hpckit.submission.in_job /proj/runs/RUN/submitit
