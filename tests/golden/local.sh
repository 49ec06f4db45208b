#!/bin/bash
# hpckit VERSION: workload ddp, strategy ddp, run RUN
# 2 nodes x 4 ranks, 8 GPUs in all (simulated on CPUs), site generic, launcher srun
# site generic of built-in, sha256:HASH, /hpckit/templates/sites/generic.yaml
# workload ddp of built-in, sha256:HASH, /hpckit/workloads/ddp
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/none.sh.j2
# template environments/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/none.sh.j2

# No modules.

# Python: PYTHON

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(PYTHON -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts:
#   PYTHON /hpckit/workloads/ddp/train.py --model cnn --data auto --epochs 10 --batch-size 64 --lr 0.005 --lr-scaling none --optimizer adam --seed 0 --checkpoint-every 1 --resume auto --log-every 10 --accumulate 1 --precision fp32 --data-on device
export SUBMITIT_EXECUTOR=local
PYTHON -E -P -u -m hpckit.payload.spawn 2 4 -- PYTHON -E -P -u -m hpckit.submission.in_job /proj/runs/RUN/submitit
