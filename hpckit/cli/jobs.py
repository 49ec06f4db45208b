"""`hpckit jobs`: the user's runs as a table, an array on one line."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from hpckit import RunStatus
from hpckit.api.choice import Choice, Listed, listed, owner_of
from hpckit.cli.arguments import JsonOption, RunsOption, TasksOption, say_damaged, settled_root
from hpckit.cli.output import note, print_json, show_table
from hpckit.cli.view import clock, counted_states, progress_text, say_uncertain
from hpckit.errors import RequestError
from hpckit.text import counted, in_line, settings_text, simulated, state_colour
from hpckit.units import format_seconds

# So many runs where nothing else says which.
_NEWEST = 20
_GIVEN = 40
Tasks = Sequence[RunStatus]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        min=0,
        metavar="N",
        show_default=False,
        help="How many, the newest; 0 shows all. [default: 20; all that other options choose]",
    ),
]
ActiveOption = Annotated[bool, typer.Option("--active", help="Only runs that are not over.")]
StateOption = Annotated[
    str | None,
    typer.Option(
        metavar="STATE", help="Only runs in this state, in Slurm's words; several with commas."
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="AGE|DAY", help="Only runs submitted since: 12h, 7d, 2026-11-01."),
]
NameOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only runs of this name; * stands for any letters."),
]
UserOption = Annotated[
    str | None,
    typer.Option("--user", "-u", metavar="USER", help="Only this user's runs in the folder."),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="COLUMNS",
        help="Which columns, with commas; a wrong one names all there are.",
    ),
]
RebuildOption = Annotated[
    bool,
    typer.Option("--rebuild", help="Find all your runs again, and write their index anew."),
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(jobs)


def jobs(
    limit: LimitOption = None,
    active: ActiveOption = False,
    state: StateOption = None,
    since: SinceOption = None,
    name: NameOption = None,
    user: UserOption = None,
    tasks: TasksOption = False,
    columns: FormatOption = None,
    rebuild: RebuildOption = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """List your runs, newest first, with their states."""
    if rebuild:
        from hpckit.cli.rebuild import rebuild_index  # noqa: PLC0415  # seldom

        rebuild_index(runs, json=json)
        return
    heads = _heads(columns)
    chosen = Choice.of(state=state, since=since, name=name, user=user, active=active)
    most = (None if chosen.selects else _NEWEST) if limit is None else limit or None
    root = settled_root(runs)
    shown = listed(root, chosen, most, arrays_as_one=not tasks, here_only=runs is not None)
    if json:
        said = [{"run_dir": str(row.dir), "why": str(row.error)} for row in shown.runs.damaged]
        rows = [row.document() for line in as_lines(shown.found) for row in line]
        print_json({"jobs": rows, "damaged": said})
        return
    lines = as_lines(shown.found)
    if tasks:
        lines = [(row,) for line in lines for row in line]
        if columns is None and any(row.run.parameters for row in shown.found):
            heads = [*_OF_TASKS]
    if lines:
        cells = [[_COLUMNS[head](line) for head in heads] for line in lines]
        show_table([head.upper() for head in heads], cells, _paint)
    _say_more(shown, most, "" if runs is None else f" in {in_line(str(root))}")


def _say_more(shown: Listed, most: int | None, where: str) -> None:
    """Say on stderr what the table cannot: what is uncertain, damaged, or left out."""
    found = shown.found
    say_uncertain(found)
    say_damaged([str(row.error) for row in shown.runs.damaged])
    say_damaged([f"{row.run.run_id}: {text}" for row in found for text in row.damaged[:1]])
    if not shown.runs and not shown.runs.damaged:
        note(f"No runs yet{where}. Start one: hpckit submit ddp")
    elif not found:
        note(f"None of your {counted(len(shown.runs), 'run')} is so.")
    elif shown.more:
        newest = "This is the newest run" if most == 1 else f"These are the newest {most} runs"
        note(f"{newest}; --limit 0 shows all.")


def as_lines(found: Sequence[RunStatus]) -> list[Tasks]:
    """Return runs as lines of a list: the tasks of an array together, in order."""
    arrays: dict[object, list[RunStatus]] = {}
    for row in found:
        arrays.setdefault(_array(row), []).append(row)
    return [sorted(rows, key=lambda row: row.run.task) for rows in arrays.values()]


def _array(status: RunStatus) -> object:
    run = status.run
    return (run.dir.parent, run.run_id.rpartition("_")[0]) if run.array_job_id else run.dir


def _paint(head: str, cell: str) -> str | None:
    return state_colour(cell) if head == "STATE" else None


def _heads(words: str | None) -> list[str]:
    """Read the words of --format.

    Raises:
        RequestError: one is not a column.
    """
    asked = [*_DEFAULT] if words is None else [word.strip().lower() for word in words.split(",")]
    if wrong := [word for word in asked if word not in _COLUMNS]:
        what = f"there is no column {wrong[0]!r}" if wrong[0] else "a column's name is empty"
        raise RequestError(f"--format {words!r}: {what}. Columns: {', '.join(_COLUMNS)}.")
    return asked


def _state(tasks: Tasks) -> str:
    return str(tasks[0].state) if len(tasks) == 1 else counted_states(tasks)


def _job_id(tasks: Tasks) -> str:
    return tasks[0].run.job_id if len(tasks) == 1 else str(tasks[0].run.whole)


def _run_id(tasks: Tasks) -> str:
    run = tasks[0].run
    return run.run_id if len(tasks) == 1 else run.run_id.rpartition("_")[0]


def _parameters(tasks: Tasks) -> str | None:
    """Return what a task of an array alone was given; of several, which parameters differ."""
    values = tasks[0].run.parameters
    text = settings_text(values, _GIVEN) if len(tasks) == 1 else ", ".join(values)
    return text or None


def _elapsed(tasks: Tasks) -> str | None:
    known = [row.elapsed_s for row in tasks if row.elapsed_s is not None]
    return format_seconds(max(known)) if known else None


def _reason(tasks: Tasks) -> str | None:
    reasons = dict.fromkeys(row.reason for row in tasks if row.reason)
    return ", ".join(reasons) or None


def _start(tasks: Tasks) -> str | None:
    """Return when the first began, or is expected to."""
    began = [row.start_time for row in tasks if row.start_time]
    if began:
        return clock(min(began))
    expected = [row.expected_start for row in tasks if row.expected_start]
    return f"expected {clock(min(expected))}" if expected else None


def _nodes(tasks: Tasks) -> str | None:
    return ",".join(dict.fromkeys(host for row in tasks for host in row.nodes)) or None


def _progress(tasks: Tasks) -> str | None:
    if len(tasks) > 1:
        ended = sum(row.finished for row in tasks)
        return f"{ended}/{len(tasks)} tasks"
    return progress_text(tasks[0])


def _of_record(*keys: str) -> Callable[[Tasks], object]:
    def cell(tasks: Tasks) -> object:
        value: object = tasks[0].run.record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return cell


def _gpus(tasks: Tasks) -> str:
    plan = tasks[0].run.record["plan"]
    return f"{plan['total_gpus']}{simulated(plan['total_gpus'], plan.get('device'), 'CPU')}"


def _submitted(tasks: Tasks) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(tasks[0].run.submitted_at))


# What of a line stands in which column; several tasks are an array.
_COLUMNS: dict[str, Callable[[Tasks], object]] = {
    "jobid": _job_id,
    "name": _of_record("name"),
    "state": _state,
    "nodes": _of_record("plan", "nodes"),
    "gpus": _gpus,
    "elapsed": _elapsed,
    "submitted": _submitted,
    "run": _run_id,
    "parameters": _parameters,
    "reason": _reason,
    "start": _start,
    "progress": _progress,
    "tasks": len,
    "restarts": lambda tasks: max(
        (row.restarts for row in tasks if row.restarts is not None), default=None
    ),
    "exit": lambda tasks: next((row.exit_code for row in tasks if row.exit_code is not None), None),
    "hosts": _nodes,
    "user": lambda tasks: owner_of(tasks[0].run),
    "partition": _of_record("plan", "partition"),
    "account": _of_record("plan", "account"),
    "strategy": _of_record("plan", "strategy"),
    "workload": lambda tasks: tasks[0].run.workload,
    "dir": lambda tasks: tasks[0].run.dir,
}
_DEFAULT = ("jobid", "name", "state", "nodes", "gpus", "elapsed", "submitted", "run")
_OF_TASKS = ("jobid", "name", "parameters", *_DEFAULT[2:])
