"""Whether the job script of this site is sound, and whether Slurm would take it."""

from collections.abc import Iterator

from hpckit.doctor.model import Check, bad, good, unknown
from hpckit.lint.scripts import bash_errors, late_options
from hpckit.submission.check import check_with_slurm
from hpckit.submission.model import Submission, render_script


def script_checks(submission: Submission) -> Iterator[Check]:
    """Render a small job, read it with bash, and ask `sbatch --test-only`: nothing is submitted."""
    rendered = render_script(submission)
    template = rendered.templates[0].path
    faults = [*late_options(rendered.text), *bash_errors(rendered.text)]
    for line, message in faults:
        todo = f"hpckit templates lint {submission.job.template}"
        yield bad(f"line {line} of the job script: {message}", todo)
    if not faults:
        yield good(f"template {template} gives a valid job script")
    if submission.job.executor == "slurm":
        yield good(check_with_slurm(submission).removesuffix("."))
    else:
        yield unknown(
            "whether Slurm would accept a job", "no Slurm answers here; jobs run on this machine"
        )
