#!/bin/bash
# hpckit VERSION: workload ddp, strategy ddp, run RUN
# 1 node x 2 ranks, 2 GPUs in all, site box, launcher srun
# workload ddp of built-in, sha256:HASH, /hpckit/workloads/ddp
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/none.sh.j2
# template environments/spack.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/spack.sh.j2
#SBATCH --job-name=ddp
#SBATCH --partition=gpu
#SBATCH --account=proj-1
#SBATCH --qos=normal
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:2
#SBATCH --time=01:00:00
#SBATCH --dependency=afterok:9
#SBATCH --chdir=/proj/code
#SBATCH --output=/proj/runs/RUN/job.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
export OMP_NUM_THREADS=4
export NOTE='two words'
umask 027

# No modules.

# Spack environment. A batch shell may lack the function: start it from where Spack lives.
if ! type spack 2>/dev/null | grep -q function; then
    hpckit_spack=${SPACK_ROOT:-}
    if [ -z "$hpckit_spack" ] && command -v spack >/dev/null 2>&1; then
        hpckit_spack=$(spack location -r)
    fi
    if [ -r "$hpckit_spack/share/spack/setup-env.sh" ]; then
        # shellcheck source=/dev/null
        . "$hpckit_spack/share/spack/setup-env.sh"
    fi
fi
if ! type spack >/dev/null 2>&1; then
    echo "hpckit: no 'spack' command on $(hostname): set SPACK_ROOT where you submit, or in the site file under env:" >&2
    exit 1
fi
spack env activate '/proj/a b/spack-env' || {
    echo "hpckit: Spack environment" '/proj/a b/spack-env' "could not be activated on $(hostname). Try: spack env list" >&2
    exit 1
}

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(PYTHON -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts:
#   python /hpckit/workloads/ddp/train.py --model cnn --data auto --epochs 10 --batch-size 64 --lr 0.005 --lr-scaling none --optimizer adam --seed 0 --checkpoint-every 1 --resume auto --log-every 10 --accumulate 1 --precision fp32 --data-on device
export SUBMITIT_EXECUTOR=slurm
srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 --wait=0 --unbuffered --cpus-per-task=16 PYTHON -E -P -u -m hpckit.submission.in_job /proj/runs/RUN/submitit
