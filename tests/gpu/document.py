"""The report: what checks said, as one document, as JSON and as Markdown. Pure.

People paste it where everybody reads it, so names of the host and of users, paths of this checkout
and of homes, and UUIDs are taken out of every text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.gpu.checks import Figure, shown
from tests.gpu.journal import ABSENT, CRASHED, FAILED, PASSED, RUNNING, Made

VERSION = 1
LIMIT_S = 480.0
GO_ON = "`make test-gpu ARGS=--go-on` makes them, with `ARGS='--go-on --limit 900'` in more time."
# The check that tells whether others compute here.
ALONE = "test_alone"
LEFT_OUT = "names of the host and of users, paths above the checkout, UUIDs and serial numbers"
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_WORDS = {PASSED: "passed", FAILED: "FAILED", CRASHED: "CRASHED", ABSENT: "not here"}
_HEAD = {
    "gpu": "GPU", "gpus_visible": "GPUs that this process sees", "memory_mib": "memory, MiB",
    "driver": "driver", "cuda_driver": "CUDA of the driver", "torch": "torch",
    "torch_cuda": "CUDA of torch", "cudnn": "cuDNN", "nccl": "NCCL", "python": "Python",
    "kernel": "kernel", "machine": "machine", "cores": "cores", "root": "as root",
    "slurm_job": "in a Slurm job", "mig": "MIG", "persistence": "persistence mode", "ecc": "ECC",
    "sm_mhz_now": "SM clock at the start, MHz", "sm_mhz_most": "highest, MHz",
    "memory_mhz_now": "memory clock at the start, MHz", "memory_mhz_most": "highest, MHz",
    "power_limit_w": "power limit, W", "pcie": "PCIe", "gpm": "GPM (activities of SMs and memory)",
    "commit": "hpckit's commit", "date": "date",
}  # fmt: skip


def scrubbed(value: Any, secrets: Sequence[str]) -> Any:
    """Return a value without the given words and without UUIDs, in all its texts.

    Args:
        value: of JSON.
        secrets: words to leave out; those of fewer than three letters stay, for they stand in
            other words too.
    """
    if isinstance(value, str):
        for word in sorted({row for row in secrets if len(row) > 2}, key=len, reverse=True):
            # A name between letters is part of another word; a path may go on.
            value = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "…", value)
        return _UUID.sub("UUID", value)
    if isinstance(value, Mapping):
        return {name: scrubbed(one, secrets) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(one, secrets) for one in value]
    return value


def make_document(
    head: Mapping[str, Any],
    checks: Sequence[Made],
    *,
    expected: Sequence[str] = (),
    seconds: float = 0.0,
    over: bool = True,
    dry: bool = False,
    only: str = "",
    secrets: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the report.

    Args:
        head: of `tests.gpu.head`.
        checks: those that were begun.
        expected: ids of all that should be made.
        seconds: how long it took so far.
        over: false while it goes on.
        dry: no GPU was used.
        only: the words that chose a part of all checks.
        secrets: see `scrubbed`.
    """
    counts = {word: sum(row.verdict == word for row in checks) for word in _WORDS}
    begun = {row.id for row in checks}
    missing = [name for name in expected if name not in begun]
    found = {
        "report": "hpckit make test-gpu",
        "version": VERSION,
        "verdict": verdict(counts, missing, over=over, dry=dry),
        "dry": dry,
        "only": only,
        "seconds": round(seconds, 1),
        "limit_s": LIMIT_S,
        "counts": {name.replace(" ", "_"): count for name, count in counts.items()},
        "head": {**dict.fromkeys(_HEAD), **{k: v for k, v in head.items() if k in _HEAD}},
        "checks": [_check(row) for row in checks],
        "not_made": missing,
        "not_on_this_machine": [
            *({"check": row.title, "what": "", "why": row.why}
              for row in checks if row.verdict == ABSENT),
            *({"check": row.title, "what": what, "why": why}
              for row in checks for what, why in row.absences),
        ],
        "left_out": LEFT_OUT,
    }  # fmt: skip
    return scrubbed(found, secrets)  # type: ignore[no-any-return]


def verdict(counts: Mapping[str, int], missing: Sequence[str], *, over: bool, dry: bool) -> str:
    """Return one word for the whole: only what was made in full, and kept all limits, passed."""
    if not over:
        return "unfinished"
    bad = counts[FAILED] or counts[CRASHED] or missing or not counts[PASSED]
    return "failed" if bad else "dry" if dry else "passed"


def _check(row: Made) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "verdict": row.verdict,
        "why": row.why,
        "seconds": row.seconds,
        "budget_s": row.budget_s,
        "figures": row.figures,
    }


def summary(document: Mapping[str, Any]) -> str:
    """Return the counts as a sentence."""
    made, missing = document["counts"], len(document["not_made"])
    return (
        f"{made['passed']} checks passed, {made['failed']} failed, {made['crashed']} crashed; "
        f"{made['not_here']} cannot be made on this machine, {missing} were not made. "
        f"{document['seconds']:.0f} s of {document['limit_s']:g} s."
    )


def markdown(document: Mapping[str, Any]) -> str:
    """Return the report for people."""
    where = "no GPU" if document["dry"] else document["head"]["gpu"] or "an unknown GPU"
    lines = [f"# hpckit on {where}: {document['verdict']}", ""]
    if document["dry"]:
        lines += ["**A dry run: no GPU was used, and no figure means anything.**", ""]
    if document["only"]:
        lines += [f"**Only a part of the checks: `{_line(document['only'])}`.**", ""]
    if alone := _disturbance(document):
        lines += [f"**{alone}**", ""]
    lines += [
        f"{summary(document)} "
        f"`make test-gpu`, report version {document['version']}. "
        f"Left out on purpose: {document['left_out']}.",
        "",
        "| machine | |", "|---|---|",
        *(f"| {_HEAD[k]} | {_cell(_word(v))} |" for k, v in document["head"].items()),
        "",
        "| check | verdict | time, s | of |", "|---|---|---|---|",
        *(
            f"| {_cell(row['title'])} | {_WORDS.get(row['verdict'], row['verdict'])} "
            f"| {row['seconds']:.1f} | {row['budget_s']:g} |"
            for row in document["checks"]
        ),
        "",
    ]  # fmt: skip
    for row in document["checks"]:
        if row["verdict"] != ABSENT:
            lines += _section(row)
    lines += ["## Not on this machine", ""]
    lines += [
        f"- {_line(row['check'])}{': ' + _line(row['what']) if row['what'] else ''}: "
        f"{_line(row['why'])}"
        for row in document["not_on_this_machine"]
    ] or ["Nothing was missing."]
    if document["not_made"]:
        lines += ["", "## Not made", "", GO_ON, ""]
        lines += [f"- `{name}`" for name in document["not_made"]]
    return "\n".join(lines) + "\n"


def _disturbance(document: Mapping[str, Any]) -> str:
    """Return what the check of others' work means for the rest of the report, if it failed."""
    rows = [row for row in document["checks"] if row["id"].endswith(f"::{ALONE}")]
    if not any(row["verdict"] == FAILED for row in rows):
        return ""
    return (
        "Something else computed on this GPU when the checks began (another job, or a display): it "
        "may be in all figures below. Run it again on a GPU that nobody else uses."
    )


def _section(row: Mapping[str, Any]) -> list[str]:
    lines = [f"## {_line(row['title'])}", ""]
    if row["verdict"] in (FAILED, CRASHED, RUNNING):
        lines += [f"**{_WORDS.get(row['verdict'], row['verdict'])}**", "", "```text"]
        lines += [row["why"].replace("```", "'''"), "```", ""]
    if row["figures"]:
        lines += [
            "| figure | value | limit | kept | by | against | |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_figure(Figure(**figure)) for figure in row["figures"]]
        lines += [""]
    return lines


def _figure(row: Figure) -> str:
    kept = {None: "", True: "yes", False: "**NO**"}[row.met]
    cells = (row.name, shown(row), row.limit, kept, row.source, row.peer, row.note)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
