"""What other programs call what hpckit has under another name, for those who come from them."""

# Options of `hpckit submit`.
OPTIONS = {
    "-n": "--gpus or --tasks-per-node",
    "--ntasks": "--gpus or --tasks-per-node",
    "--ntasks-per-node": "--gpus or --tasks-per-node",
    "--nproc-per-node": "--gpus or --tasks-per-node",
    "--nproc_per_node": "--gpus or --tasks-per-node",
    "-c": "--cpus-per-task",
    "--cpus": "--cpus-per-task",
    "--mem": "--mem-gb",
    "--nnodes": "--nodes",
    "--job-name": "--name",
    "--walltime": "--time",
    "--dependency": "--after",
}
_MEETING = "hpckit starts the ranks and lets them meet: leave it out."
# Those of torchrun and accelerate that have no such name here.
LAUNCHERS = {
    **dict.fromkeys(
        (
            *("--standalone", "--node-rank", "--machine-rank", "--multi-gpu"),
            *("--master-addr", "--master-port", "--main-process-ip", "--main-process-port"),
            *("--rdzv-backend", "--rdzv-conf", "--rdzv-endpoint", "--rdzv-id"),
        ),
        _MEETING,
    ),
    "--max-restarts": "Use --retry, or --max-requeues for jobs that Slurm takes away.",
    "--num-machines": "Use --nodes.",
    "--num-processes": "Use --gpus or --tasks-per-node, per node.",
}
# What sacct, squeue and others have for what is an argument here.
JOBS = ("-j", "--job", "--job-id", "--jobid", "--jobs")
# What other programs have as commands, and hpckit as options.
AS_OPTION = ("completion", "help", "version")
# What Slurm and other programs call what hpckit's commands do.
COMMANDS = {
    **dict.fromkeys(("run", "sbatch", "launch", "exec"), "submit"),
    **dict.fromkeys(("history", "list", "ls", "ps", "queue", "runs", "sacct", "squeue"), "jobs"),
    **dict.fromkeys(("info", "show", "state"), "status"),
    **dict.fromkeys(("delete", "kill", "scancel", "stop"), "cancel"),
    **dict.fromkeys(("again", "rerun", "restart"), "resubmit"),
    **dict.fromkeys(("job_stats", "jobstats", "seff", "usage"), "stats"),
    **dict.fromkeys(("cat", "log", "output", "tail"), "logs"),
    **dict.fromkeys(("gc", "prune", "rm"), "clean"),
    **dict.fromkeys(("alloc", "salloc", "srun", "ssh"), "shell"),
    **dict.fromkeys(("htop", "nodes", "nvtop", "sinfo", "watch"), "top"),
}
