"""Every read of a file that others may have written goes through `hpckit/files.py`."""

import ast
from pathlib import Path

import pytest

import hpckit

PACKAGE = Path(hpckit.__file__).parent
# Modules that read by themselves, and what.
PROC, OWN, WRITES = "the kernel's files", "the package's own files", "writes"
NULL = "/dev/null, in a stream's place"
ALLOWED = {
    "__main__.py": NULL,
    "cli/output.py": NULL,
    "cli/written.py": "a page or picture that this command has just made, in a folder of its own",
    "api/jupyter.py": "a browser is opened: nothing is read",
    "code/making.py": "a project's files, hashed as they are copied, no link followed; writes",
    "code/writing.py": "the same files: read by pieces, and written once",
    "payload/environment.py": OWN,
    "detect/login_node.py": PROC,
    "schedulers/local/state.py": PROC,
    "payload/importable/hpckit_kept_code.py": "bytecode in a folder of the user's alone; writes",
    "payload/importable/hpckit_meeting.py": "the script itself, in its own process",
    "payload/rendezvous.py": PROC,
    "schedulers/local/local_job.py": "a run's folder held open: nothing is read",
    "schedulers/local/stragglers.py": PROC,
    "payload/sweep.py": PROC,
    "processes.py": PROC,
    "beside.py": PROC,
    "payload/handlers.py": PROC,
    "stop_marks.py": "a rank's own file, of a page at most; scripts read it, too",
    "stats/sampler/cgroup.py": PROC,
    "stats/sampler/node.py": PROC,
    "collections/scaffold.py": WRITES,
    "run_folders/ledger.py": "a folder held open, and writes",
    "run_folders/run_files.py": WRITES,
    "stats/sampler/start.py": WRITES,
    "stats/sampler/writer.py": WRITES,
    "stats/sampler/amd_smi.py": "a GPU's device: whether it may be opened; nothing is read",
    "submission/folders.py": "folders held open, and writes",
    "submission/job_process.py": "a pickle's folder held open",
    "payload/bundle.py": "likewise; read before `hpckit.files` is there",
    "payload/function.py": "likewise, under any Python, where hpckit is not",
    "lint.py": "shellcheck's answer",
    "cli/completing.py": OWN,
    "payload/container.py": "namespaces and variables of the job's own process, in /proc",
    "cli/completion.py": "the start file of the user's shell, which that shell runs anyway; writes",
    "files.py": "the door",
    "file_locks.py": "files of the user alone, opened to lock them or append to them",
    "notify/claims.py": WRITES,
}
READS = {"read_text", "read_bytes", "open"}


def direct_reads(path: Path) -> set[str]:
    """Return the calls of a module that read a file, or parse JSON, without the door."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id="json"), attr="load" | "loads"):
                found.add("json")
            case ast.Attribute(value=ast.Name(id="os"), attr="open"):
                found.add("os.open")
            case ast.Attribute(attr=name) if name in READS:
                found.add(name)
            case ast.Name(id="open"):
                found.add("open")
    return found


@pytest.mark.long
def test_files_of_others_are_read_through_one_door() -> None:
    modules = {
        str(path.relative_to(PACKAGE)): direct_reads(path)
        for path in PACKAGE.rglob("*.py")
        # The scripts' side reads what its user names, in jobs.
        if path.relative_to(PACKAGE).parts[0] not in ("parallel", "inference")
    }
    reading = {name for name, found in modules.items() if found}
    assert reading - {*ALLOWED} == set(), "read through hpckit/files.py"
    assert {*ALLOWED} - reading == set(), "no longer true"
