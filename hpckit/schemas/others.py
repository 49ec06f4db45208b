"""The schemas of the other files of a collection: its manifest, workloads, rules, its lock file."""

from hpckit.collections.collection import NEEDED
from hpckit.collections.lockfile import COMMIT, FILE_HASH, FORMAT, HASH
from hpckit.launchers import LAUNCHERS
from hpckit.schemas.words import (
    Schema,
    any_number,
    choice,
    document,
    flag,
    integer,
    mapping,
    named,
    needed,
    scalar,
    scalars,
    text,
    texts,
)
from hpckit.stats.advice.namespace import SUBJECTS
from hpckit.stats.advice.rules import DEVICES, DRIVER, SAMPLES, SLURM, Severity
from hpckit.strategies import STRATEGIES
from hpckit.workloads import TYPES


def collection() -> Schema:
    """Return the schema of `hpckit.yaml`."""
    return document(
        "hpckit: a collection (docs/collections.md)",
        {
            "name": text(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"),
            "description": text(),
            "contact": text("Whom to ask."),
            "url": text(),
            "hpckit": text("The version it needs, as '>=0.2'.", pattern=f"^{NEEDED}$"),
            "ledger": text("A folder's whole path, for `hpckit report`.", pattern="^[/$~]"),
            "code": mapping(
                {
                    "keep": flag("Whether a run keeps the project's files."),
                    "include": texts("Patterns of files to keep although they would be left out."),
                    "exclude": texts("Patterns of files to leave out."),
                    "max_mb": integer("Megabytes that are kept at most.", least=1),
                },
                "Of a project: what of its files is kept with a run.",
            ),
        },
    )


def workload() -> Schema:
    """Return the schema of `workloads/NAME/workload.yaml`."""
    resources = {
        "gpus": integer("Per node."),
        "cpus_per_task": integer(least=1),
        "mem_gb": integer("Per node, in GiB (Slurm's G).", least=1),
        "time_min": integer("Minutes.", least=1),
    }
    parameter = {
        "type": choice(TYPES),
        "default": scalar(),
        "help": needed(text()),
        "choices": scalars(),
        "minimum": any_number(),
        "maximum": any_number(),
    }
    return document(
        "hpckit: a workload (docs/workloads.md)",
        {
            "description": needed(text()),
            "strategy": {**choice(STRATEGIES), "enum": list(STRATEGIES)},
            "script": text("A file of this folder; or give program:."),
            "program": text("A file of this folder, or a name that its environment has."),
            "environment": text("One of the site's, or as --env has it."),
            "launcher": text(f"One of {', '.join(LAUNCHERS)}."),
            "handles_stop_signal": flag("It stops well at Slurm's warning."),
            "resources": mapping(resources),
            "sbatch": texts("More options of sbatch, as KEY or KEY=VALUE."),
            "parameters": named(
                mapping(parameter, required=("help",)), names="^[A-Za-z0-9][A-Za-z0-9_-]*$"
            ),
            "weak_scaling": texts("Parameters that grow with the ranks."),
        },
        required=("description", "strategy"),
    )


def rule() -> Schema:
    """Return the schema of `templates/advice/ID.yaml`."""
    variable: Schema = {"anyOf": [{"type": ["number", "boolean"]}, {**scalars(), "type": "array"}]}
    return document(
        "hpckit: a rule of advice (docs/advice.md)",
        {
            "title": needed(text()),
            "why": needed(text()),
            "for_each": choice(SUBJECTS),
            "rests_on": choice((SAMPLES, SLURM, DRIVER)),
            "variables": named(variable, "Thresholds; a site may change them."),
            "figures": named(needed(text()), "Named expressions, in order."),
            "when": text("What must be true at any severity."),
            "levels": {
                **mapping({severity: text() for severity in Severity}),
                "type": "object",
                "minProperties": 1,
            },
            "message": needed(text()),
            "evidence": needed(text()),
            "lost_gpu_hours": text(),
            "devices": mapping({kind: text() for kind in DEVICES}),
            "since": text(),
            "until": text(),
            "during": text(),
            "action": text(),
            "action_sbatch": text(),
            "action_otherwise": text(),
            "sources": texts(),
            "silences": texts(),
            "enabled": flag(),
        },
        required=("title", "why", "levels", "message", "evidence"),
    )


def lock() -> Schema:
    """Return the schema of `hpckit.lock`, which hpckit writes."""
    word: Schema = {"type": "string"}
    commit: Schema = {"type": ["string", "null"], "pattern": f"^({COMMIT})$"}
    keys = {
        "name": word,
        "source": word,
        "rev": {"type": ["string", "null"]},
        "commit": commit,
        "previous": commit,
        "owner": {"type": ["string", "null"]},
        "hash": {**word, "pattern": f"^{HASH}$"},
        "files": {
            "type": "object",
            "additionalProperties": {**word, "pattern": f"^{FILE_HASH}$"},
        },
    }
    # A later version may have written more of an entry, and the reader passes over that.
    entry = {"type": "object", "properties": keys, "required": ["name", "source", "hash"]}
    return document(
        "hpckit: what was added, pinned (docs/collections.md)",
        {
            "format": {"const": FORMAT},
            "collections": {"type": "array", "items": entry},
        },
        required=("format", "collections"),
    )
