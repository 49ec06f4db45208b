"""From a plan to a submitted job: folder, script, submitit, record. All of it or nothing."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpckit import shell
from hpckit.environ import scrubbed_environment
from hpckit.errors import OutsideError, RequestError
from hpckit.find import add_to_index
from hpckit.interpreter import own_python
from hpckit.logs import JOB_LOG
from hpckit.payload.controller import ControllerSpec
from hpckit.payload.task import MAX_JSON_BYTES, Task
from hpckit.plan.model import Plan
from hpckit.render import Rendered
from hpckit.runs import RECORD, Run, open_to_write, write_json, write_text
from hpckit.script import SIGNAL_DELAY_S, submitit_folder
from hpckit.slurm import control
from hpckit.slurm.control import parse_job_id
from hpckit.submission.folders import Root, held_root
from hpckit.submission.in_job import Payload
from hpckit.submission.local import end_local, local_executor, this_machine
from hpckit.submission.model import Submission, render_script
from hpckit.submission.record import make_record
from hpckit.submission.slurm import refused, slurm_executor

ARRAY_RECORD, SCRIPT = "array.json", "job.sh"


def submit(submission: Submission) -> list[Run]:
    """Submit a plan; return one run per job, or per array task.

    Raises:
        SubmissionError: sbatch refused. OutsideError: the run's folder cannot be made or written,
        or others could put their own in its place. Nothing is left behind in any of these cases.
    """
    plan, base = submission.plan, submission.place.dir
    rendered = render_script(submission)
    tasks = [_task(submission, index) for index in range(len(plan.tasks))]
    _refuse_long(tasks)
    _refuse_patterns(base, plan.executor)
    shared = "shared-runs" in submission.request.skip_checks
    with held_root(base.parent, shared=shared) as root:
        runs = _submit_in(root, submission, rendered, tasks)
    add_to_index(runs)
    return runs


def _submit_in(
    root: Root, submission: Submission, rendered: Rendered, tasks: list[Task]
) -> list[Run]:
    plan = submission.plan
    job_ids: list[str] = []
    try:
        _make_folders(root, submission, rendered.text, [task.run_id for task in tasks])
        with root.opened(submission.place.run_id) as base:
            job_ids += _hand_over(submission, submitit_folder(base), rendered.text, tasks)
        return _write_records(root, submission, rendered, tasks, job_ids)
    except BaseException as error:
        if job_ids and plan.executor == "slurm":
            control.cancel(job_ids)
        elif job_ids:
            end_local([task.folder for task in tasks])
        root.remove()
        if isinstance(error, OSError):
            raise _cannot_write(root, error) from error
        raise


def _cannot_write(root: Root, error: OSError) -> OutsideError:
    return OutsideError(
        f"Run folder in {str(root.path)!r} cannot be made or written: "
        f"{error.strerror or error}. Choose another place with --runs DIR or HPCKIT_RUNS."
    )


def _make_folders(root: Root, submission: Submission, script: str, run_ids: list[str]) -> None:
    own = submission.place.run_id
    for name in dict.fromkeys([own, *run_ids]):
        root.make(name)
    for name in run_ids if submission.plan.executor == "slurm" else ():
        # Slurm would make it with the user's umask, which may let a group write.
        with root.opened(name) as folder:
            open_to_write(folder / JOB_LOG).close()
    with root.opened(own) as base:
        submitit_folder(base).mkdir(mode=0o700)
        write_text(base / SCRIPT, script)


def _task(submission: Submission, index: int) -> Task:
    plan, place = submission.plan, submission.place
    run_id = f"{place.run_id}_{index}" if plan.is_array else place.run_id
    site = plan.site
    return Task(
        run_dir=str(place.dir.parent / run_id),
        run_id=run_id,
        executor=plan.executor,
        launcher=plan.launcher.name,
        nodes=plan.nodes,
        tasks_per_node=plan.tasks_per_node,
        command=(*plan.command, *plan.tasks[index]),
        python=plan.environment.command(own_python()[0]),
        device=plan.device,
        mpi=plan.strategy.mpi,
        mpirun=(*site.mpirun.split(), *site.mpirun_args),
        max_requeues=plan.max_requeues,
        handles_stop_signal=plan.handles_stop_signal,
        sample_interval_s=plan.sample_interval_s,
        signal_delay_s=SIGNAL_DELAY_S,
        collection=_collection(plan),
    )


def _collection(plan: Plan) -> str | None:
    """Return the folder of the workload's collection, unless it is hpckit's own."""
    found = plan.workload.found if plan.workload else None
    return str(found.collection.path) if found and found.collection.origin != "built-in" else None


def _refuse_long(tasks: list[Task]) -> None:
    longest = max(len(task.to_json().encode()) for task in tasks)
    if longest > MAX_JSON_BYTES:
        raise RequestError(
            f"The script's arguments take {longest} bytes, over the {MAX_JSON_BYTES} Linux passes "
            "to a program. Put them in a file and pass its name."
        )


def _refuse_patterns(folder: Path, executor: str) -> None:
    """Refuse a place whose name submitit or Slurm would rewrite.

    See JobPaths in submitit/core/utils.py, and sbatch(1), "FILENAME PATTERN".
    """
    why = "in whose place submitit writes an id"
    found = next((word for word in ("%j", "%t", "%a", "%A") if word in str(folder)), None)
    if executor == "slurm" and "\\" in str(folder):
        found, why = "a backslash", "which Slurm takes out of the names of logs"
    if found:
        raise RequestError(
            f"Run folder '{folder}' holds {found}, {why}. "
            "Choose another place with --runs DIR or HPCKIT_RUNS."
        )


def _hand_over(submission: Submission, folder: Path, script: str, tasks: list[Task]) -> list[str]:
    """Give the script and the callables to submitit; return the job ids, one per task."""
    plan = submission.plan
    environ = scrubbed_environment(os.environ, plan.site.pass_env)
    executor: Any
    if plan.executor == "slurm":
        executor = slurm_executor(
            folder,
            lambda: parse_job_id(_sbatch(plan.site.sbatch_args, script, environ)),
            time_min=plan.time_min,
            max_requeues=plan.max_requeues,
            array=plan.is_array,
        )
    else:
        executor = local_executor(
            folder,
            _controller_spec(submission, script, tasks),
            _local_environ(plan, environ),
            array=plan.is_array,
        )
    jobs = executor.submit_array([Payload(task.to_json()) for task in tasks])
    return [str(job.job_id) for job in jobs]


def _sbatch(arguments: Sequence[str], script: str, environ: dict[str, str]) -> str:
    # By its standard input: a file could be another one by the time sbatch reads it. The job
    # inherits sbatch's environment: the user's own locale, not the one for parsing.
    argv = ["sbatch", "--parsable", *arguments]
    result = shell.run(argv, env=environ, timeout_s=120, check=False, own_locale=True, input=script)
    if result.returncode:
        raise refused(result.stderr if result.stderr.strip() else result.stdout)
    return result.stdout


def _controller_spec(submission: Submission, script: str, tasks: list[Task]) -> ControllerSpec:
    plan = submission.plan
    return ControllerSpec(
        script=script,
        run_dirs=tuple(task.run_dir for task in tasks),
        job_ids=(),
        time_min=plan.time_min,
        parallel=plan.parallel or 1,
        max_requeues=plan.max_requeues,
        signal_delay_s=SIGNAL_DELAY_S,
        after=submission.after_dirs,
    )


def _local_environ(plan: Plan, environ: dict[str, str]) -> dict[str, str]:
    gpus = this_machine(environ).gpus if plan.device == "cuda" else ()
    return {**environ, "HPCKIT_NODE_GPUS": ",".join(gpus[: plan.total_gpus])}


def _write_records(
    root: Root,
    submission: Submission,
    rendered: Rendered,
    tasks: list[Task],
    job_ids: Sequence[str],
) -> list[Run]:
    plan = submission.plan
    common = make_record(submission, rendered)
    array_id = job_ids[0].rpartition("_")[0] if plan.is_array else None
    if array_id:
        with root.opened(submission.place.run_id) as base:
            write_json(base / ARRAY_RECORD, {"job_id": array_id, "runs": [t.run_id for t in tasks]})
    runs = []
    for index, (task, job_id) in enumerate(zip(tasks, job_ids, strict=True)):
        record = {
            **common,
            "run_id": task.run_id,
            "job_id": job_id,
            "array": {"job_id": array_id, "index": index} if array_id else None,
            "parameters": {**common["parameters"], **plan.task_settings[index]},
            "command": list(task.command),
        }
        with root.opened(task.run_id) as folder:
            if plan.is_array:
                write_text(folder / SCRIPT, rendered.text)
            write_json(folder / RECORD, record)
        runs.append(Run(dir=task.folder, record=record))
    return runs
