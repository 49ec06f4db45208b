"""`hpckit jobs --rebuild`: the index of runs made anew, and what was found on the way."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.api import rebuild
from hpckit.cli.arguments import say_damaged
from hpckit.cli.output import note, print_json, say, say_note, table

if TYPE_CHECKING:
    from hpckit import Rebuilt


def rebuild_index(runs: Path | None, *, json: bool) -> None:
    """Make the index anew and say what is in it."""
    done = rebuild.rebuild_index(runs=runs, tell=say_note)
    if json:
        print_json(_document(done))
        return
    count = sum(len(row.runs) for row in done.folders)
    rows = [(len(row.runs), row.new, len(row.damaged), row.dir) for row in done.folders]
    if rows:
        say(table(("RUNS", "NEW", "DAMAGED", "FOLDER"), rows))
    runs_of = "run" if count == 1 else "runs"
    say(f"The index {done.path} has {count} {runs_of} of yours now.")
    if done.torn:
        note(f"Damaged lines taken out of the index: {done.torn}")
    if done.dropped:
        note(f"Lines of removed runs taken out of the index: {done.dropped}")
    if done.kept:
        folders = dict.fromkeys(str(Path(row).parent) for row in done.kept)
        note(
            f"Lines kept of runs that cannot be looked at now: {len(done.kept)}, "
            f"in {', '.join(folders)}"
        )
    say_damaged([row.error for row in done.folders if row.error])
    say_damaged([str(row.error) for folder in done.folders for row in folder.damaged])
    if not count:
        note("No runs were found. If they are in another folder: hpckit jobs --rebuild --runs DIR")


def _document(done: "Rebuilt") -> dict[str, Any]:
    return {
        "index": str(done.path),
        "folders": [
            {
                "dir": str(row.dir),
                "runs": len(row.runs),
                "new": row.new,
                "damaged": [
                    {"run_dir": str(bad.dir), "why": str(bad.error)} for bad in row.damaged
                ],
                "error": row.error or None,
            }
            for row in done.folders
        ],
        "dropped": done.dropped,
        "torn": done.torn,
        "kept": list(done.kept),
    }
