#!/bin/bash
# hpckit 0.1.0: script /tmp/runs-0.1/work/train.py, strategy ddp, run requeued-20261122-111923-1d7594
# 1 node(s) x 2 rank(s), 2 GPU(s) in all, site generic, launcher srun
# site generic of built-in, sha256:56c61a38dcc486e6, /tmp/old-eb37/templates/sites/generic.yaml
# template slurm/base.sh.j2 of built-in, sha256:b7b3eccee0c6e994, /tmp/old-eb37/templates/slurm/base.sh.j2
# template modules/none.sh.j2 of built-in, sha256:33aba24eb909002c, /tmp/old-eb37/templates/modules/none.sh.j2
# template environments/none.sh.j2 of built-in, sha256:a62aea73c6485474, /tmp/old-eb37/templates/environments/none.sh.j2

# No modules.

# Python: /tmp/old-eb37/.venv/bin/python

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(/tmp/old-eb37/.venv/bin/python -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts:
#   /tmp/old-eb37/.venv/bin/python /tmp/runs-0.1/work/train.py --requeue
export SUBMITIT_EXECUTOR=local
/tmp/old-eb37/.venv/bin/python -E -P -u -m hpckit.payload.spawn 1 2 -- /tmp/old-eb37/.venv/bin/python -E -P -u -m hpckit.submission.in_job /tmp/runs-0.1/work/runs/requeued-20261122-111923-1d7594/submitit
