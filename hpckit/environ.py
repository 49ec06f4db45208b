"""What a child may inherit: keeps one job's identity out of the next job's environment.

A submission made from inside a job, an salloc shell or a torchrun rank would otherwise inherit
that job's size and rendezvous. submitit's own clean-up drops every SLURM_* and with them
SLURM_CONF, after which sbatch no longer finds its cluster.
"""

from collections.abc import Mapping

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
        "HPCKIT_RUN_DIR",
        "HPCKIT_RESTART",
        "HPCKIT_DEVICE",
    }
)
_KEPT_PREFIXES = ("OMPI_MCA_",)  # how this user tunes Open MPI, except:
# What Open MPI 4's mpirun itself writes there for its ranks (seen with 4.1.4).
_MPIRUN_OWN = (
    "OMPI_MCA_ess",
    "OMPI_MCA_initial_wdir",
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
# Where the cluster is, and a consent the user gave; neither belongs to a job.
_KEPT = frozenset(
    {
        "SLURM_CONF",
        "SLURM_CLUSTERS",
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    }
)


def scrubbed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that belongs to the user and not to a job."""
    return {name: value for name, value in environ.items() if _belongs_to_user(name)}


def _belongs_to_user(name: str) -> bool:
    if name in _KEPT:
        return True
    if name.startswith(_KEPT_PREFIXES):
        return not name.startswith(_MPIRUN_OWN)
    return name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
