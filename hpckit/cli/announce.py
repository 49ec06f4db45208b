"""What a submission comes to, said on stderr before or after it is sent."""

from hpckit.api.prepare import Submission, chosen_otherwise
from hpckit.cli.output import by, note, print_json, show_text
from hpckit.text import format_minutes


def say_job(submission: Submission) -> None:
    """Say on stderr what a submission comes to."""
    job = submission.job
    count = f"{len(job.tasks)} x " if job.is_array else ""
    shape = f"{job.nodes} node(s) x {job.gpus_per_node} GPU(s) = {job.total_gpus} GPU(s)"
    if not job.gpus_per_node:
        shape = f"{job.nodes} node(s), no GPU"
    note(
        f"{job.name}: {count}{shape}, {job.ranks} rank(s){by(submission.launched_by)}, "
        f"limit {format_minutes(job.time_min)}, on {job.scheduler.where(job)}"
    )
    found = job.workload.found if job.workload else None
    if found and found.collection.origin != "built-in":
        at = found.collection.revision and f" at {found.collection.revision}"
        note(f"workload {found.path.parent} of collection {found.collection.label()}{at}")
    for row in submission.collections:
        if row.changed:
            note(f"note: {row.name} has changed since it was pinned: hpckit collections verify")
    for line in job.notes:
        note(f"note: {line}")


def say_which_script(submission: Submission) -> None:
    """Say on stderr whose script a dry run prints, where a submission would not use it."""
    if chosen_otherwise(submission):
        note(
            "note: this is the script for Slurm. No Slurm answers here, so without --dry-run it "
            "would run on this machine: --executor local prints that script"
        )


def show_script(submission: Submission, *, json: bool) -> None:
    """Print the script of a dry run."""
    if json:
        print_json({"run_id": submission.place.run_id, "script": submission.rendered.text})
    else:
        show_text(submission.rendered.text)
