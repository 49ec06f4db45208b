"""Each rank writes what it sees into the run's folder: environment, arguments, place."""

import json
import os
import socket
import sys
import time
from pathlib import Path

seen = {
    "env": dict(os.environ),
    "argv": sys.argv[1:],
    "host": socket.gethostname(),
    "cwd": str(Path.cwd()),
    "prefix": sys.prefix,
    "pid": os.getpid(),
}
rank = os.environ["RANK"]
restart = os.environ["HPCKIT_RESTART"]
for name in (f"seen-{rank}.json", f"attempt{restart}-{rank}.json"):
    path = Path(os.environ["HPCKIT_RUN_DIR"], name)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(seen))
    beside.replace(path)
print(f"rank {rank} restart {restart}", flush=True)
if "--hold" in sys.argv:
    print("holding", flush=True)
    go = Path(os.environ["HPCKIT_RUN_DIR"], "go")
    while not go.exists():
        time.sleep(0.1)
