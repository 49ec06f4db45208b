#!/bin/bash
# hpckit VERSION: workload ddp, strategy ddp, run RUN
# 2 nodes x 2 ranks, 4 GPUs in all, site box, launcher srun
# workload ddp of built-in, sha256:HASH, /hpckit/workloads/ddp
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/none.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/none.sh.j2
# template environments/pyxis.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/pyxis.sh.j2
#SBATCH --job-name=ddp
#SBATCH --partition=gpu
#SBATCH --account=proj-1
#SBATCH --qos=normal
#SBATCH --nodes=2
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

# Container: Pyxis starts it on each node, in a step beside the ranks, which enter it. The step ends
# when nothing holds its stdin any more: with this script, or what takes its place.
hpckit_pipe=$(mktemp -d) && mkfifo "$hpckit_pipe/said" || exit 1
exec {hpckit_box}> >(exec srun --overlap --mem=0 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --mpi=none --kill-on-bad-exit=1 '--container-image=nvcr.io#it'"'"'s/torch:24.01-py3' --container-mounts=/proj/runs:/proj/runs,/proj/code:/proj/code,/hpckit/workloads/ddp:/hpckit/workloads/ddp,/hpckit/hpckit:/hpckit/hpckit:ro,/proj/data:/proj/data,/scratch:/mnt:ro --container-mount-home sh -c 'echo "hpckit-container $SLURMD_NODENAME $$"; exec cat >/dev/null' >"$hpckit_pipe/said")
hpckit_step=$! HPCKIT_CONTAINERS='' hpckit_missing=2
exec {hpckit_said}<"$hpckit_pipe/said"
rm -r "$hpckit_pipe"
while [ "$hpckit_missing" -gt 0 ] && read -r hpckit_word hpckit_node <&"$hpckit_said"; do
    if [ "$hpckit_word" = hpckit-container ]; then
        HPCKIT_CONTAINERS="$HPCKIT_CONTAINERS${HPCKIT_CONTAINERS:+,}$hpckit_node"
        hpckit_missing=$((hpckit_missing - 1))
    fi
done
if [ "$hpckit_missing" -gt 0 ]; then
    echo "hpckit: Pyxis could not start a container of" 'nvcr.io#it'"'"'s/torch:24.01-py3' "on each node; the lines above say why. If srun does not know --container-image, this cluster has no Pyxis: --env apptainer:IMAGE" >&2
    exit 1
fi
export HPCKIT_CONTAINERS
export HPCKIT_CONTAINER_STEP="$hpckit_step $hpckit_box"
hpckit_leave() {
    exec {hpckit_box}>&-
    wait "$hpckit_step" 2>/dev/null || :
}
trap hpckit_leave EXIT

set -euo pipefail

# One host and port for all ranks, tried on this node just now.
hpckit_rendezvous=$(PYTHON -E -P -u -m hpckit.payload.rendezvous)
export MASTER_ADDR=${hpckit_rendezvous% *} MASTER_PORT=${hpckit_rendezvous#* }

# Each process started here is hpckit's supervisor of one or more ranks. It starts:
#   python /hpckit/workloads/ddp/train.py --model cnn --data auto --epochs 10 --batch-size 64 --lr 0.005 --lr-scaling none --optimizer adam --seed 0 --checkpoint-every 1 --resume auto --log-every 10 --accumulate 1 --precision fp32 --data-on device
export SUBMITIT_EXECUTOR=slurm
exec PYTHON -E -P -u -m hpckit.submission.follow_up retry /proj/runs/RUN 0 -- srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 --wait=0 --unbuffered --cpus-per-task=16 PYTHON -E -P -u -m hpckit.submission.in_job /proj/runs/RUN/submitit
