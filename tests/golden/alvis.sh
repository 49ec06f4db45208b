#!/bin/bash
# hpckit VERSION: workload ddp, strategy ddp, run RUN
# 2 nodes x 4 ranks, 8 GPUs in all, site alvis, launcher srun
# site alvis of built-in, sha256:HASH, /hpckit/templates/sites/alvis.yaml
# workload ddp of built-in, sha256:HASH, /hpckit/workloads/ddp
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/lmod.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/lmod.sh.j2
# template environments/modules.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/modules.sh.j2
#SBATCH --job-name=ddp
#SBATCH --partition=alvis
#SBATCH --account=NAISS2026-1-1
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=A100:4
#SBATCH --time=01:00:00
#SBATCH --dependency=afterok:9
#SBATCH --chdir=/proj/code
#SBATCH --output=/proj/runs/RUN/job.out
#SBATCH --open-mode=append
#SBATCH --no-requeue

# Modules (Lmod). A batch shell may lack the function: start it from where Lmod lives.
if ! type module >/dev/null 2>&1; then
    for hpckit_init in "${LMOD_PKG:-/nonexistent}/init/bash" "${LMOD_ROOT:-/nonexistent}/lmod/init/bash" \
        /usr/share/lmod/lmod/init/bash /opt/apps/lmod/lmod/init/bash /etc/profile.d/lmod.sh \
        /etc/profile.d/modules.sh /etc/profile.d/z00_lmod.sh; do
        # shellcheck source=/dev/null
        if [ -r "$hpckit_init" ]; then . "$hpckit_init"; break; fi
    done
fi
if ! type module >/dev/null 2>&1; then
    echo "hpckit: no 'module' command on $(hostname): is Lmod installed there? Site file: modules: lmod" >&2
    exit 1
fi
module purge
module load PyTorch-bundle/2.1.2-foss-2023a-CUDA-12.1.1 || {
    echo "hpckit: module" PyTorch-bundle/2.1.2-foss-2023a-CUDA-12.1.1 "could not be loaded on $(hostname). Try: module spider" PyTorch-bundle/2.1.2-foss-2023a-CUDA-12.1.1 >&2
    exit 1
}
module load matplotlib/3.7.2-gfbf-2023a || {
    echo "hpckit: module" matplotlib/3.7.2-gfbf-2023a "could not be loaded on $(hostname). Try: module spider" matplotlib/3.7.2-gfbf-2023a >&2
    exit 1
}
module list 2>&1

# Python: python

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(PYTHON -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts:
#   python /hpckit/workloads/ddp/train.py --model cnn --data auto --epochs 10 --batch-size 64 --lr 0.005 --lr-scaling none --optimizer adam --seed 0 --checkpoint-every 1 --resume auto --log-every 10 --accumulate 1 --precision fp32 --data-on device
export SUBMITIT_EXECUTOR=slurm
srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --distribution=block --kill-on-bad-exit=1 --wait=0 --unbuffered PYTHON -E -P -u -m hpckit.submission.in_job /proj/runs/RUN/submitit
