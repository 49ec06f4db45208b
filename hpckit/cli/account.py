"""Who pays: a site whose jobs need an account, and a request that names none."""

from hpckit.detect.ask import user_name
from hpckit.errors import CommandError, PlanError
from hpckit.job.checks import off_switch
from hpckit.job.job import Job
from hpckit.job.spec import JobSpec
from hpckit.slurm.accounts import associations_argv, default_account_argv, parse_associations
from hpckit.slurm.client import ask

_OPTIONS = ("--account", "-A")


def account_note(job: Job, spec: JobSpec) -> tuple[str, ...]:
    """Return what to say of a job that names no account where one is needed.

    Slurm's own default account of the user is as good as one that was named.

    Raises:
        PlanError: there is none, and Slurm has no default for this user.
    """
    given = job.account or any(word.startswith(_OPTIONS) for word in job.site.sbatch_args)
    needed = job.executor == "slurm" and job.site.account_required
    if given or not needed or "account" in spec.skip_checks:
        return ()
    user = user_name()
    try:
        default = ask(default_account_argv(user)).stdout.strip().partition("\n")[0]
        if default:
            return (f"account: {default}, your default in Slurm",)
        rows = parse_associations(ask(associations_argv(user)).stdout)
    except CommandError:
        return (
            f"site {job.site.name!r} needs an account. You gave none, and Slurm does not answer "
            "which one is your default: give --account NAME",
        )
    yours = ", ".join(dict.fromkeys(row.account for row in rows)) or "none"
    raise PlanError(
        f"Site {job.site.name!r} needs an account. You gave none, and Slurm has no default for "
        f"you. Give --account NAME (your accounts in Slurm: {yours}). {off_switch('account')}"
    )
