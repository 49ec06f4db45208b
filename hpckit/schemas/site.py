"""The schema of a site, `templates/sites/NAME.yaml`, and of what it shares with config.yaml."""

from typing import get_args

from hpckit.environments import EnvironmentKind
from hpckit.job_spec.spec import OPTIONS, TYPES, Option
from hpckit.schemas.words import (
    Schema,
    choice,
    document,
    either,
    flag,
    integer,
    mapping,
    named,
    needed,
    number,
    scalar,
    scalars,
    text,
    texts,
    word,
)
from hpckit.sinks import ALL, ANY, BODIES, EVENTS, PROGRAM, SLURM
from hpckit.sites.prometheus import SCHEMES

_VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"
_DAY = r"^20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"


def site() -> Schema:
    """Return the schema of a site."""
    return document(
        "hpckit: a site (docs/sites.md)",
        {
            "description": needed(text("What the cluster is.")),
            "contact": text("Who helps its users."),
            "url": text("Its documentation."),
            "login": text("The name by which its login nodes are reached from outside."),
            "identify": named(text(), "What tells its login nodes: hostname, or a variable, to a "
                              "shell pattern. All must match."),
            "account_required": flag("A job without account is refused."),
            "defaults": _defaults(),
            "gpus": _gpus(),
            "partitions": named(_partition(), "Limits; leave unknown ones out."),
            "modules": text("lmod, tmod, spack, none, or NAME of templates/modules/NAME.sh.j2."),
            "environments": named(_environment(), "Where a job's python comes from."),
            "launch": _launch(),
            "env": named(text(), "Variables that each job exports.", names=_VARIABLE),
            "pass_env": texts("Variables of your shell that jobs inherit; shell patterns."),
            "setup": texts("Shell lines, printed as they are."),
            "runs": text("Where runs lie."),
            "ledger": text("A folder's whole path, for `hpckit report`.", pattern="^[/$~]"),
            "grafana": text("An address with {jobid}, {start_ms}, {end_ms}."),
            "prometheus": _prometheus(),
            "notify": notify(trusted=False),
            "bad_nodes": mapping(
                {"days": number(), "hosts": texts("Nodes, as n[1-3].")},
                "Nodes to leave out, and for how long others are remembered.",
            ),
            "advice": _advice(),
            "costs": mapping(
                {
                    "gpu_hour": number("The price of a GPU-hour."),
                    "currency": text(),
                    "pue": number("Power of the machine room / of the computers.", least=1.0),
                    "co2_g_per_kwh": number(),
                },
                "For `hpckit report`.",
            ),
            "sources": named(_source(), "Where values were read."),
        },
        required=("description",),
    )  # fmt: skip


def _defaults() -> Schema:
    """Return the defaults of options: of those that say that a site may give them."""
    keys = {row.word: _default(name, row) for name, row in OPTIONS.items() if row.site}
    return mapping({**keys, "environment": text("One of environments:, or none.")})


def _default(name: str, row: Option) -> Schema:
    if row.is_word or row.read:
        return text(row.help) if row.is_word or row.sbatch else texts(row.help)
    return flag(row.help) if bool in (TYPES[name], *get_args(TYPES[name])) else scalar(row.help)


def _gpus() -> Schema:
    return mapping(
        {
            "request": choice(("gpus-per-node", "gres"), "How jobs ask for GPUs."),
            "per_node": integer(least=1),
            "cpus_per_gpu": integer("What a job has for each GPU where it does not say.", least=1),
            "types": named(integer(least=1), "How many of a type one node has."),
            "default_type": text("One of types:."),
            "type_required": flag("A job that names no type is refused."),
            "cpu_masks": texts("The cores beside each GPU, for srun --cpu-bind=mask_cpu:"),
        }
    )


def _partition() -> Schema:
    return mapping(
        {
            "max_time": text("As 2-00:00:00, 12h or minutes."),
            "max_nodes": integer("Of one job.", least=1),
            "gpus_per_node": integer(),
            "cpus_per_node": integer(least=1),
            "mem_gb_per_node": integer("In GiB (Slurm's G).", least=1),
            "whole_nodes": flag("A job gets, and is charged for, whole nodes."),
        }
    )


def _environment() -> Schema:
    return mapping(
        {
            "kind": choice(EnvironmentKind, "modules, where it does not say."),
            "path": text("Of a venv, its folder; of conda and Spack, the name or folder."),
            "image": text("Of apptainer and pyxis, the container image."),
            "load": texts("Modules."),
            "use": texts("Folders with modules."),
            "conda_init": text("The file that starts conda."),
            "binds": texts("Of apptainer and pyxis: folders to show inside."),
            "options": texts("Of pyxis: its options of srun, as --container-mount-home."),
            "python": text("The program; python, where it does not say."),
        }
    )


def _launch() -> Schema:
    return mapping(
        {
            "mpi": text("srun --mpi=..., for strategy mpi."),
            "srun_args": texts(),
            "mpirun": text("The program."),
            "mpirun_args": texts(),
            "sbatch_args": texts("On sbatch's command line."),
        },
        "How ranks are started.",
    )


def _prometheus() -> Schema:
    rows = {
        "url": needed(text()),
        "scheme": choice(SCHEMES),
        "match": named(text(), names=_VARIABLE),
        "job_label": word(_VARIABLE),
        "host_label": word(_VARIABLE),
        "timeout_s": number(least=0.1),
        "token_env": word(_VARIABLE),
        "token_file": text(),
        "headers_env": named({**word(_VARIABLE), "type": "string"}),
        "ca_file": text(),
    }
    return either(text(), mapping(rows, required=("url",)), about="The site's monitoring.")


def _advice() -> Schema:
    value: Schema = either({"type": ["number", "boolean"]}, scalars())
    off: Schema = {"enum": [False, "off"]}
    return named(either(off, {**named(value), "type": "object"}), "Rules: off, or thresholds.")


def _source() -> Schema:
    return mapping(
        {
            "url": needed(text(pattern=r"^https?://[^\s/]+(/\S*)?$")),
            "read": {**word(_DAY, "The day of reading."), "type": "string"},
            "edition": {**word(_DAY, "The date of the text."), "type": "string"},
            "gives": {**texts("Keys of this file."), "type": ["array", "string", "number"]},
        },
        required=("url", "read", "gives"),
    )


def notify(*, trusted: bool) -> Schema:
    """Return the schema of `notify:`; not `trusted` is that of a site."""
    events = texts("Which of " + ", ".join(EVENTS))
    events["items"] = {"enum": list(EVENTS)}
    mail = {"events": events, "by": choice((SLURM, PROGRAM))}
    idle = either(text("As 30m."), mapping({"for": text("As 30m."), "gpus": choice((ALL, ANY))}))
    keys = {"events": events, "idle": idle, "mail": mapping(mail)}
    if trusted:
        keys["mail"] = mapping({**mail, "to": text("An address.")})
        keys["webhooks"] = named(mapping(_webhook(events)))
        command = {
            "events": events,
            "run": {**texts("argv"), "type": ["array", "string", "number"]},
        }
        keys["commands"] = named(mapping(command, required=("run",)))
    return mapping(keys, "Who is told of jobs.")


def _webhook(events: Schema) -> dict[str, Schema]:
    return {
        "events": events,
        "body": choice(BODIES),
        "url": text(),
        "url_env": word(_VARIABLE),
        "url_file": text(),
        "token": text(),
        "token_env": word(_VARIABLE),
        "token_file": text(),
        "ca_file": text(),
    }


def config() -> Schema:
    """Return the schema of the user's own ~/.config/hpckit/config.yaml."""
    bad_nodes = {"days": number(), "exclude": flag("Jobs leave them out.")}
    return document(
        "hpckit: your configuration (docs/notify.md)",
        {"notify": notify(trusted=True), "bad_nodes": mapping(bad_nodes)},
    )
