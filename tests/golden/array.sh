#!/bin/bash
# hpckit VERSION: workload ddp, strategy ddp, run RUN
# 1 node x 1 rank, 1 GPU in all, site generic, launcher srun
# site generic of built-in, sha256:HASH, /hpckit/templates/sites/generic.yaml
# workload ddp of built-in, sha256:HASH, /hpckit/workloads/ddp
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/none.sh.j2
# template environments/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/none.sh.j2
#SBATCH --job-name=ddp
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --time=01:00:00
#SBATCH --array=0-2%2
#SBATCH --dependency=afterok:9
#SBATCH --chdir=/proj/code
#SBATCH --output=/proj/runs/RUN_%a/job.out
#SBATCH --open-mode=append
#SBATCH --signal=USR2@90
#SBATCH --requeue

# No modules.

# Python: PYTHON

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(PYTHON -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts, with the task's own values added:
#   PYTHON /hpckit/workloads/ddp/train.py --model cnn --data auto --epochs 10 --batch-size 64 --lr-scaling none --optimizer adam --seed 0 --checkpoint-every 1 --resume auto --log-every 10 --accumulate 1 --precision fp32 --data-on device
export SUBMITIT_EXECUTOR=slurm
# sh: until hpckit's Python has started, Slurm's warnings (SIGUSR2, SIGTERM) are ignored; they would end that Python.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --distribution=block --kill-on-bad-exit=1 --wait=0 --unbuffered /bin/sh -c 'trap "" USR2 TERM; exec "$@"' sh PYTHON -E -P -u -m hpckit.submission.in_job /proj/runs/RUN/submitit
