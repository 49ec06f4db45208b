"""What a child may inherit, and hpckit's own Python, safe from what a job's modules set.

One job's identity must not reach the next: a submission made from inside a job, an salloc shell or
a torchrun rank would otherwise inherit that job's size and rendezvous. submitit's own clean-up
drops every SLURM_* and with them SLURM_CONF, after which sbatch no longer finds its cluster.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

_DROPPED_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "PMI",  # PMI_*, PMI2_*, PMIX_*: MPI's own rendezvous
    "OMPI_",
    "PRTE_",
    "MPI_LOCAL",  # Intel MPI and MPICH: MPI_LOCALRANKID, MPI_LOCALNRANKS
    "SUBMITIT_",
    "TORCHELASTIC_",
)
_DROPPED = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "HPCKIT_BUNDLE",
        "HPCKIT_RUN_DIR",
        "HPCKIT_RESTART",
        "HPCKIT_DEVICE",
        "HPCKIT_CPU_REPLICAS",
        "HPCKIT_MPI_SCRIPT",
        "HPCKIT_SIGNALS",
        "HPCKIT_END_FD",
        "HPCKIT_END_INODE",
        "HPCKIT_SOURCES_ONLY",
        "HPCKIT_WATCHED",
        "HPCKIT_THREADS",
    }
)
# What hpckit set for a rank; where it is this still, nobody else has set it.
THREADS, OWN_THREADS = "OMP_NUM_THREADS", "HPCKIT_THREADS"
_KEPT_PREFIXES = ("OMPI_MCA_",)  # how this user tunes Open MPI, except:
# What Open MPI's mpirun itself writes there for its ranks (seen with 4.1.4, 5.0.7 and 6.0.0rc2).
_MPIRUN_OWN = (
    "OMPI_MCA_PREFIXES",
    "OMPI_MCA_cpu_type",
    "OMPI_MCA_ess",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_num_procs",
    "OMPI_MCA_num_restarts",
    "OMPI_MCA_orte_app_num",
    "OMPI_MCA_orte_bound_at_launch",
    "OMPI_MCA_orte_ess_",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_jobfam_session_dir",
    "OMPI_MCA_orte_launch",
    "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_num_nodes",
    "OMPI_MCA_orte_precondition_transports",
    "OMPI_MCA_orte_tmpdir_base",
    "OMPI_MCA_orte_top_session_dir",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
)
# What a launcher writes for its ranks beside its own words (seen with Open MPI 4.1.4 and 5.0.7, and
# torch 2.13).
# A user may set these too, so they go only where such a launcher is known by its mark.
_LAUNCHER_SETS = {
    "OMPI_COMM_WORLD_RANK": (
        "OMPI_MCA_pmix",
        "OMPI_MCA_rmaps_base_mapping_policy",
        "OMPI_MCA_rmaps_base_oversubscribe",
        "OMPI_MCA_mpi_oversubscribe",
        "OMPI_MCA_hwloc_base_binding_policy",
        "OMPI_MCA_mca_base_component_path",
        "OPAL_USER_PARAMS_GIVEN",
        "IPATH_NO_BACKTRACE",
        "HFI_NO_BACKTRACE",
    ),
    "TORCHELASTIC_RUN_ID": ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "PET_SIGNALS_TO_HANDLE"),
}
# Where the cluster is, and a consent the user gave; neither belongs to a job.
_KEPT = frozenset(
    {
        "SLURM_CONF",
        "SLURM_CLUSTERS",
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    }
)


# What a job needs to find its shell, programs, modules, Python and cluster; never a secret.
_ALWAYS_PASSED = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_*", "TZ", "TERM", "TMPDIR", "XDG_*"),
    *("LD_LIBRARY_PATH", "MANPATH", "MODULE*", "LMOD_*", "__LMOD*", "LOADEDMODULES", "_LMFILES_"),
    *("BASH_ENV", "BASH_FUNC_*", "PYTHON*", "VIRTUAL_ENV", "CONDA_*", "CUDA_VISIBLE_DEVICES"),
    *("SLURM_*", "OMPI_*", "OMP_*", "HPCKIT_*"),
)


def scrubbed_environment(
    environ: Mapping[str, str], allowed: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the part of an environment that belongs to the user and not to a job.

    Args:
        environ: of the submitting shell.
        allowed: names, or shell patterns of names, that a job may have beside those without
            which none starts; None means all, as sbatch itself does.
    """
    of_launcher = {
        name for mark, names in _LAUNCHER_SETS.items() if mark in environ for name in names
    }
    if environ.get(THREADS) == environ.get(OWN_THREADS, ""):
        of_launcher.add(THREADS)
    return {
        name: value
        for name, value in environ.items()
        if name not in of_launcher
        and _belongs_to_user(name)
        and (allowed is None or any(fnmatchcase(name, row) for row in (*_ALWAYS_PASSED, *allowed)))
    }


def _belongs_to_user(name: str) -> bool:
    if name in _KEPT:
        return True
    if name.startswith(_KEPT_PREFIXES):
        return not name.startswith(_MPIRUN_OWN)
    return name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)


def own_python(environ: dict[str, str] | None = None) -> tuple[str, ...]:
    """Return the argv prefix of hpckit's own interpreter, safe from the job's modules.

    `-E` ignores PYTHONPATH and its kin, which modules set for *their* python; `-P` keeps the
    working directory off the path. Where hpckit itself was found through PYTHONPATH (installed as
    a module), `-E` would lose it.
    """
    paths = (os.environ if environ is None else environ).get("PYTHONPATH", "").split(":")
    home = Path(__file__).resolve().parent.parent
    by_path = any(path and Path(path).resolve() == home for path in paths)
    return (sys.executable, *(() if by_path else ("-E",)), "-P", "-u")
