"""A Slurm that answers from rows given to it, whatever columns it is asked for."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpckit.slurm.usage_rows import FIXED, FREE
from tests.conftest import add_program

_SACCT = """#!{python}
import json, sys
rows = json.load(open({rows!r}))
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
with open({log!r}, "a") as log:
    log.write("sacct " + options.get("--jobs", "") + "\\n")
columns = options.get("--format", "").split(",")
if "--helpformat" in options:
    print(*sorted({{name for row in rows for name in row}}))
    raise SystemExit
whole = set(options["--jobs"].split(",")) if "--jobs" in options else None
for row in rows:
    job = row["JobID"].partition(".")[0].partition("_")[0].partition("+")[0]
    if (whole is None or job in whole) and not ("--allocations" in options and "." in row["JobID"]):
        print(options["--delimiter"].join(row.get(name, "") for name in columns))
"""
# One unknown id is an error, several are none (22.05).
_SQUEUE = """#!/bin/sh
echo "squeue $*" >> {log}
case "$*" in *--jobs=*,*) exit 0 ;; esac
echo 'slurm_load_jobs error: Invalid job id specified' >&2
exit 1
"""
_NO = "#!/bin/sh\nexit 1\n"
_CONFIG = "#!/bin/sh\necho 'JobAcctGatherFrequency = 30'\n"


def keep_accounts(folder: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    """Put sacct, squeue, sstat and scontrol into a folder of PATH; return the log of calls."""
    log = folder / "calls.log"
    log.write_text("")
    written = folder / "rows.json"
    written.write_text(json.dumps([dict.fromkeys((*FIXED, *FREE), "") | dict(row) for row in rows]))
    words = {"python": sys.executable, "log": str(log)}
    add_program(folder / "sacct", _SACCT.format(rows=str(written), **words))
    add_program(folder / "squeue", _SQUEUE.format(log=log))
    add_program(folder / "sstat", _NO)
    add_program(folder / "scontrol", _CONFIG)
    return log


def row(job_id: str, **cells: str) -> dict[str, str]:
    """Return a finished job of one node, or a step of one."""
    usual = {
        "JobID": job_id, "JobIDRaw": job_id, "User": "me", "State": "COMPLETED", "NodeList": "n1",
        "ElapsedRaw": "3600", "Submit": "1789999990", "Start": "1790000000", "End": "1790003600",
        "ExitCode": "0:0", "NNodes": "1", "AllocCPUS": "16", "JobName": "train",
        "Partition": "gpu", "AllocTRES": "cpu=16,gres/gpu=2,mem=64G,node=1",
    }  # fmt: skip
    return usual | cells
