"""Which code a run used: the git commit of the user's script, and whether it was changed since."""

from pathlib import Path
from typing import Any

from hpckit import shell
from hpckit.errors import CommandError


def code_version(script: Path) -> dict[str, Any] | None:
    """Return git root, commit and dirty flag of the checkout a script lies in; None outside git.

    Untracked files are not asked for: listing them can take minutes on a shared file system.
    """
    # No program that a checkout's configuration names: it may be somebody else's.
    plain = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    where = ("-C", str(script.parent))
    argv = ["git", *plain, *where, "status", "--porcelain=v2", "--branch", "-uno"]
    try:
        status = shell.run(argv, timeout_s=10, check=False)
    except CommandError:  # no git here, or it hangs: provenance is then unknown, not a failure
        return None
    if status.returncode != 0:
        return None
    lines = status.stdout.splitlines()
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit = heads.get("branch.oid", "(initial)")
    return {
        "commit": None if commit == "(initial)" else commit,
        "branch": heads.get("branch.head"),
        "dirty": any(not line.startswith("#") for line in lines),
    }
