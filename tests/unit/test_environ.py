import pytest

from hpckit.environ import scrubbed_environment


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_JOB_ID",
        "SLURM_CPU_BIND",
        "SLURM_TIME_FORMAT",
        "SLURMD_NODENAME",
        "SBATCH_PARTITION",
        "SRUN_CPUS_PER_TASK",
        "SALLOC_PARTITION",
        "PMI_RANK",
        "PMI2_RANK",
        "PMIX_NAMESPACE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_MCA_orte_hnp_uri",
        "OMPI_MCA_ess_base_jobid",
        "OMPI_MCA_cpu_type",  # this and the next: Open MPI 5
        "OMPI_MCA_PREFIXES",
        "PRTE_MCA_prte_base_jobid",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "SUBMITIT_EXECUTOR",
        "TORCHELASTIC_RUN_ID",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "HPCKIT_RUN_DIR",
        "HPCKIT_RESTART",
        "HPCKIT_DEVICE",
        "HPCKIT_CPU_REPLICAS",
    ],
)
def test_what_belongs_to_a_job_is_dropped(name: str) -> None:
    assert scrubbed_environment({name: "1"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "SLURM_CONF",  # submitit issue 1814: without it sbatch finds no cluster
        "SLURM_CLUSTERS",
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_btl",
        "HPCKIT_RUNS",
        "HPCKIT_SITE",
        "RANKING",
    ],
)
def test_what_belongs_to_the_user_is_kept(name: str) -> None:
    assert scrubbed_environment({name: "1"}) == {name: "1"}


def test_an_allow_list_passes_what_it_names_and_what_every_job_needs() -> None:
    environ = dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", "PATH", "LMOD_CMD", "RANK"), "1")
    assert set(scrubbed_environment(environ, ["WANDB_*"])) == {"WANDB_API_KEY", "PATH", "LMOD_CMD"}
    assert set(scrubbed_environment(environ, [])) == {"PATH", "LMOD_CMD"}


def test_what_mpirun_and_perhaps_the_user_set_goes_where_mpirun_was() -> None:
    both = {"OMPI_MCA_mca_base_component_path": "/usr/lib/pmix", "OPAL_USER_PARAMS_GIVEN": "1"}
    assert scrubbed_environment(both) == both
    assert scrubbed_environment(both | {"OMPI_COMM_WORLD_RANK": "0"}) == {}


def test_threads_that_hpckit_set_do_not_go_into_a_nested_job() -> None:
    own = {"OMP_NUM_THREADS": "4", "HPCKIT_THREADS": "4"}
    assert scrubbed_environment(own) == {}
    assert scrubbed_environment(own | {"OMP_NUM_THREADS": "8"}) == {"OMP_NUM_THREADS": "8"}
    assert scrubbed_environment({"OMP_NUM_THREADS": "8"}) == {"OMP_NUM_THREADS": "8"}
