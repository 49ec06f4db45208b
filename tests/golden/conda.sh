#!/bin/bash
# hpckit VERSION: workload ddp, strategy ddp, run RUN
# 1 node x 2 ranks, 2 GPUs in all, site box, launcher srun
# workload ddp of built-in, sha256:HASH, /hpckit/workloads/ddp
# template slurm/base.sh.j2 of built-in, sha256:HASH, /hpckit/templates/slurm/base.sh.j2
# template modules/tmod.sh.j2 of built-in, sha256:HASH, /hpckit/templates/modules/tmod.sh.j2
# template environments/conda.sh.j2 of built-in, sha256:HASH, /hpckit/templates/environments/conda.sh.j2
#SBATCH --job-name=ddp
#SBATCH --partition=gpu
#SBATCH --account=proj-1
#SBATCH --qos=normal
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:2
#SBATCH --mem=64G
#SBATCH --time=01:00:00
#SBATCH --dependency=afterok:9
#SBATCH --chdir=/proj/code
#SBATCH --output=/proj/runs/RUN/job.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
export OMP_NUM_THREADS=4
export NOTE='two words'
umask 027

# Modules (Environment Modules). A batch shell may lack the function: start it from where it lives.
if ! type module >/dev/null 2>&1; then
    for hpckit_init in "${MODULESHOME:-/nonexistent}/init/bash" /usr/share/modules/init/bash \
        /usr/share/Modules/init/bash /etc/profile.d/modules.sh /opt/modules/default/init/bash; do
        # shellcheck source=/dev/null
        if [ -r "$hpckit_init" ]; then . "$hpckit_init"; break; fi
    done
fi
if ! type module >/dev/null 2>&1; then
    echo "hpckit: no 'module' command on $(hostname): are Environment Modules installed there? Site file: modules: tmod" >&2
    exit 1
fi
module purge
module load Anaconda3/2024.02 || true
# Old versions return success for a module that does not exist, so look at what is loaded.
hpckit_module=Anaconda3/2024.02
case ":${LOADEDMODULES:-}:" in
    *:"$hpckit_module":* | *:"$hpckit_module"/*) ;;
    *)
        echo "hpckit: module $hpckit_module could not be loaded on $(hostname). Try: module avail $hpckit_module" >&2
        exit 1
        ;;
esac
module list 2>&1

# Conda environment. A batch shell may lack the function: start it from where conda lives.
hpckit_conda=conda
if ! type conda 2>/dev/null | grep -q function; then
    if hpckit_exe=${CONDA_EXE:-$(command -v conda)}; then
        # shellcheck source=/dev/null
        . "$("$hpckit_exe" info --base)/etc/profile.d/conda.sh"
    elif hpckit_exe=${MAMBA_EXE:-$(command -v mamba || command -v micromamba)}; then
        hpckit_conda=$(basename "$hpckit_exe")
        eval "$("$hpckit_exe" shell hook --shell bash)"
    else
        echo "hpckit: no 'conda', 'mamba' or 'micromamba' on $(hostname). Load its module in the site's environment, under load:, or name its start file under conda_init:" >&2
        exit 1
    fi
fi
"$hpckit_conda" activate torch || {
    echo "hpckit: conda environment" torch "could not be activated on $(hostname). Try: $hpckit_conda env list" >&2
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
