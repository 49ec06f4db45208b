"""From what was asked to a `Submission`: site, workload, scheduler, job. It submits nothing."""

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.collections import Collection, survey
from hpckit.environ import own_python
from hpckit.environments import NO_MODULES, module_templates, not_here
from hpckit.errors import CommandError, ConfigError, OutsideError, PlanError, RequestError
from hpckit.job import Job
from hpckit.job.checks import off_switch
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job_spec.spec import JobSpec
from hpckit.launchers import named_launcher
from hpckit.owners import user_name
from hpckit.paths import bad_nodes_path, config_folder, here, is_there
from hpckit.render import load, spellings
from hpckit.run_folders.runs import new_run_id, runs_root
from hpckit.schedulers.base import AUTO, SCHEDULERS, Scheduler, automatic, find_scheduler
from hpckit.sites import GENERIC, Site, find_site
from hpckit.slurm.client import ask, own_job_id, patience, sbatch_answers
from hpckit.strategies import STRATEGIES, find_strategy
from hpckit.submission.code_plan import CodePlan, kept_files, plan_code
from hpckit.submission.model import Submission, preflight, refuse_unusable
from hpckit.workloads import Workload, find_workload, known_workload, list_workloads

if TYPE_CHECKING:
    from hpckit.bad_nodes.node_memory import NodeEvent
    from hpckit.code.project import Source
    from hpckit.run_folders.run_record import LeftOut

__all__ = ["Submission", "beside_own_job", "chosen_otherwise", "preflight", "prepare"]

_ACCOUNT_OPTIONS = ("--account", "-A")


def load_jinja() -> None:
    """Import now what renders scripts; `prepare` would do it later."""
    load()


@patience()
def prepare(
    spec: JobSpec,
    runs: Path | None,
    *,
    preview: bool = False,
    tell: Callable[[str], None] = lambda _text: None,
    bad: "Sequence[NodeEvent]" = (),
    sources: "Sequence[Source]" = (),
    again: bool = False,
    code: CodePlan | None = None,
) -> Submission:
    """Work out all that is to be submitted. `preview` needs no Slurm; `again`: it was before.

    `tell` is called at once for collections that are left out, since later errors may follow from
    that. `bad` are events of bad nodes that are not in the user's file yet; `sources` are the files
    of a function that the job calls. `code` is which code the job runs, where that is settled.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm was asked for, and is not here.
    """
    around = survey()
    collections = around.collections
    refuse_unusable(around.unusable, _asked_for(spec), spec)
    site = find_site(spec.site, collections)
    refuse_unusable(around.unusable, frozenset({f"templates/sites/{site.name}.yaml"}), spec)
    for row in around.unusable:
        tell(row.left_out())
    workload = _workload(spec, collections)
    scheduler = choose_scheduler(spec.executor, preview=preview)
    site, of_mpi = _with_mpi(spec, site, workload, scheduler, preview=preview)
    site, of_modules = _with_modules(spec, site, workload, collections)
    machine, kept = scheduler.machine(), kept_files(code)
    job = resolve(
        spec, site, workload, python=own_python()[0], machine=machine, scheduler=scheduler,
        notes=of_mpi + of_modules, kept=kept,
    )  # fmt: skip
    job = _with_notes(job, spec, again=again)
    job, left_out = _bad_nodes(job, spec, preview=preview, bad=bad)
    job = _with_notify(job, spec)
    root, run_id = runs_root(runs, site.runs, os.environ), new_run_id(job.name)
    job, dependencies = _dependencies(job, spec, root, preview=preview)
    code = code or plan_code(spec, job, here(), sources)
    return Submission(
        spec=spec,
        job=job,
        place=RunPlace(
            run_id=run_id,
            dir=root / run_id,
            cwd=str(here()),
            after=tuple(word for word, _ in dependencies),
            copy=code.copy,
            project=code.root,
        ),
        collections=collections,
        unusable=around.unusable,
        site=site.found,
        after_dirs=tuple(row for _, folders in dependencies for row in folders),
        left_out=left_out,
        code=code,
    )


def _with_notes(job: Job, spec: JobSpec, *, again: bool) -> Job:
    """Return a job with what people should know of its environment, `--retry` and its account."""
    rules: tuple[str, ...] = ()
    if job.retry:
        from hpckit.submission.retry import look_at_rules  # noqa: PLC0415  # few jobs have rules

        rules = look_at_rules(job, spec.retries, again=again)
    notes = [*job.notes]
    if missing := not_here(job.environment):
        where = f"environment {job.environment.name!r}: {missing} is not on this machine"
        notes.append(f"{where}: it is looked for on the node")
    return replace(job, notes=(*notes, *rules, *account_note(job, spec)))


def _asked_for(spec: JobSpec) -> frozenset[str]:
    """Return the files of a collection that a request names, by their paths in it."""
    names = {f"templates/{name}" for name in spellings(spec.template)}
    if spec.of_workload:
        others = (spec.target.replace("_", "-"), spec.target.replace("-", "_"))
        names |= {f"workloads/{name}/workload.yaml" for name in (spec.target, *others)}
    if spec.site:
        names.add(f"templates/sites/{spec.site}.yaml")
    return frozenset(names)


def _with_mpi(
    spec: JobSpec, site: Site, workload: Workload | None, scheduler: Scheduler, *, preview: bool
) -> tuple[Site, tuple[str, ...]]:
    """Find out how srun starts MPI ranks, if the site does not say it."""
    strategy = find_strategy(workload.strategy if workload else spec.target)
    launcher = named_launcher(spec.launcher or (workload.launcher if workload else None))
    tells = strategy.mpi and launcher.takes_mpi_kind and not scheduler.one_machine
    if not tells or site.mpi is not None:
        return site, ()
    try:
        return _asked_mpi(site) if sbatch_answers() else (site, ())
    except CommandError as error:
        if not preview:
            raise
        return site, (
            f"MPI: Slurm does not say what srun takes, so the script has no --mpi. {error}",
        )


def _asked_mpi(site: Site) -> tuple[Site, tuple[str, ...]]:
    """Ask Slurm how srun starts MPI ranks.

    Raises:
        RequestError: in no way that hpckit knows. CommandError: Slurm does not answer.
    """
    # Few submissions need it.
    from hpckit.detect.answers import choose_mpi, own_default  # noqa: PLC0415
    from hpckit.slurm.cluster import config, mpi_types  # noqa: PLC0415

    configured = config()
    if default := own_default(configured.get("MpiDefault", "")):
        return site, (f"MPI: srun's own default, {default}",)
    kinds = mpi_types()
    chosen = choose_mpi(kinds, configured)
    if chosen is None:
        raise RequestError(
            f"srun can start no MPI ranks that hpckit knows (it lists {', '.join(kinds)}): "
            "give --launcher mpirun, or 'launch: {mpi: NAME}' in the site's YAML."
        )
    why = f"of {', '.join(kinds)}; 'launch: {{mpi: NAME}}' in the site's YAML chooses"
    return replace(site, mpi=chosen), (f"MPI: srun --mpi={chosen} ({why})",)


def _with_modules(
    spec: JobSpec, site: Site, workload: Workload | None, collections: tuple[Collection, ...]
) -> tuple[Site, tuple[str, ...]]:
    """Find out the module system, as `hpckit init` does, where no site's file could say it."""
    if site.name != GENERIC or site.modules != NO_MODULES:
        return site, ()
    environment = site.find_environment(spec.env or (workload.environment if workload else None))
    if not (environment.load or environment.use):
        return site, ()
    # Few submissions need it.
    from hpckit.detect.login_node import module_systems  # noqa: PLC0415

    found = module_systems(os.environ, os.path.isfile, module_templates(collections))
    if not found:  # modules/none.sh.j2 refuses, with what to do
        return site, ()
    chosen = found[0]
    note = f"modules: {chosen.name}, by {chosen.evidence} here (hpckit init writes a site's file)"
    return replace(site, modules=chosen.name), (note,)


def _workload(spec: JobSpec, collections: tuple[Collection, ...]) -> Workload | None:
    if spec.of_workload:
        known = list_workloads(collections)
        if spec.target in STRATEGIES and find_workload(spec.target, known) is None:
            raise RequestError(
                f"{spec.target!r} is a strategy, and no workload has that name: give "
                f"your program, as in `hpckit submit {spec.target} train.py`."
            )
        return known_workload(spec.target, known)
    if spec.target not in STRATEGIES:
        raise RequestError(_no_strategy(spec))
    return None


def _no_strategy(spec: JobSpec) -> str:
    name = Path(spec.program or "").name
    if name in STRATEGIES:
        line = shlex.join([name, spec.target])
        return f"The strategy comes first, then the script: hpckit submit {line}"
    words = ["-m", spec.module] if spec.module is not None else [spec.program or "PROGRAM"]
    return (
        f"{spec.target!r} is not a strategy; a program needs one of {', '.join(STRATEGIES)}: "
        f"hpckit submit ddp {shlex.join(words)}. A workload's arguments go after `--`."
    )


def _bad_nodes(
    job: Job, spec: JobSpec, *, preview: bool, bad: "Sequence[NodeEvent]"
) -> "tuple[Job, LeftOut | None]":
    """Leave known bad nodes out of a job, or say that this can be asked for."""
    asked = spec.exclude_bad or job.site.defaults.get("exclude_bad")
    if not (asked or bad or job.site.bad_nodes or is_there(bad_nodes_path())):
        return job, None
    from hpckit.submission.leaving_out import without_bad_nodes  # noqa: PLC0415  # few know some

    return without_bad_nodes(job, spec, preview=preview, learned=bad)


def _with_notify(job: Job, spec: JobSpec) -> Job:
    """Add who is notified of the job, by a process in it or by Slurm's mail.

    Raises:
        ConfigError: the user's file is wrong, or others could read it.
    """
    config = config_folder() / "config.yaml"
    if "notify" in spec.skip_checks or (job.site.notify is None and not is_there(config)):
        return job
    from hpckit.sinks import find_notify, mail_options  # noqa: PLC0415  # few jobs have one

    try:
        found = find_notify(job.site.notify)
    except ConfigError as error:
        raise ConfigError(f"{error.why} {off_switch('notify')}", at=error.at) from error
    if found is None:
        return job
    job = replace(job, notify=found.public)
    mail = found.mail_by_slurm
    if mail is None:
        return job
    if job.scheduler.one_machine:
        return replace(job, notes=(*job.notes, "no mail: Slurm sends it, and this is a local run"))
    given = {text.partition("=")[0] for text in job.sbatch}
    more = [text for text in mail_options(mail) if text.partition("=")[0] not in given]
    return replace(job, sbatch=(*job.sbatch, *more))


def choose_scheduler(word: str, *, preview: bool) -> Scheduler:
    """Return the scheduler `word`; `auto` is Slurm if sbatch answers, and this machine otherwise.

    Raises:
        RequestError: there is none of that name. OutsideError: it cannot be used here.
    """
    if word == "auto":
        return find_scheduler(AUTO[0]) if preview else automatic()
    if not SCHEDULERS.knows(word):
        known = ", ".join(("auto", *SCHEDULERS))
        raise RequestError(f"--executor {word!r} must be one of {known}.")
    chosen = find_scheduler(word)
    if not preview and (why := chosen.why_not()):
        raise OutsideError(why)
    return chosen


def chosen_otherwise(submission: Submission) -> str | None:
    """Say that submitting would choose another scheduler than this preview shows, or fail."""
    if submission.spec.executor in SCHEDULERS:
        return None
    try:
        chosen = automatic()
    except CommandError as error:  # a preview needs no Slurm
        return f"this is the script for Slurm, which could not be submitted now: {error}"
    if chosen is submission.job.scheduler:
        return None
    return (
        "this is the script for Slurm. No Slurm answers here, so without --dry-run it "
        "would run on this machine: --executor local prints that script"
    )


def beside_own_job(submission: Submission) -> str | None:
    """Say that a submission from inside a job, as in a shell of salloc, does not use that job."""
    own = own_job_id()
    if not own or submission.job.scheduler.one_machine:
        return None
    said = (
        f"you are in job {own}. This is a new job: it waits in the queue, and does not use the "
        f"nodes of job {own}"
    )
    if "HPCKIT_RUN_ID" in os.environ:  # a rank or a session, whose own step has these nodes
        return said
    return f"{said}. A program runs on those with: srun hpckit sample -- PROGRAM"


def _dependencies(
    job: Job, spec: JobSpec, root: Path, *, preview: bool
) -> tuple[Job, list[tuple[str, tuple[str, ...]]]]:
    """Return a job with notes, and what `--after` means; refuse what cannot come any more."""
    if not spec.after:
        return job, []
    from hpckit.submission.after import (  # noqa: PLC0415
        asked_once,
        dependency,
        refuse_beside_chain,
        refuse_hopeless,
    )

    ask = asked_once()
    if not preview and "after" not in spec.skip_checks:
        refuse_hopeless(spec.after, root, ask)
    found = [dependency(word, job.scheduler.name, root, ask) for word in spec.after]
    more = bool(spec.chain or spec.parallel)
    refuse_beside_chain(spec.after, [text for text, _ in found], more=more)
    if job.scheduler.accounting:
        from hpckit.submission.awaited import notes_on  # noqa: PLC0415  # not of local runs

        job = replace(job, notes=(*job.notes, *notes_on(spec.after, found, root)))
    return job, found


def account_note(job: Job, spec: JobSpec) -> tuple[str, ...]:
    """Return a note on the account of a job that names none, if the site needs one.

    The user's default account in Slurm is as good as one that was named.

    Raises:
        PlanError: no account was named, and Slurm has no default for this user.
    """
    given = job.options["account"] or any(
        word.startswith(_ACCOUNT_OPTIONS) for word in job.site.sbatch_args
    )
    needed = job.scheduler.accounting and job.site.account_required
    if given or not needed or "account" in spec.skip_checks:
        return ()
    # Few submissions need it.
    from hpckit.slurm.cluster import (  # noqa: PLC0415
        associations_argv,
        default_account_argv,
        parse_associations,
    )

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
