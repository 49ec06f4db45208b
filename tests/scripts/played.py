"""Works for some seconds of a script that the stub NVML plays, with an exact CPU time if asked.

    played.py SECONDS [CPU_SECONDS]

SECONDS count from the script's start. The first rank writes that moment beside the run. All end
sooner once the run's folder has a file `enough`. CPU time is spent once the node's sampler has
written its first sample: it has a low priority, and what was spent before it is not in its figures.
"""

import os
import sys
import time
from pathlib import Path

began = os.environ["NVML_STUB_T0"]
folder, restart = os.environ.get("HPCKIT_RUN_DIR", "."), os.environ.get("HPCKIT_RESTART", "0")
if os.environ.get("RANK", "0") == "0":
    beside = Path(folder, f"began-{os.getpid()}.part")
    beside.write_text(began)
    beside.replace(Path(folder, f"began-{restart}"))
if len(sys.argv) > 2:
    files = f"samples/{os.environ['SLURMD_NODENAME']}.*"
    while not any('{"s":' in path.read_text() for path in Path(folder).glob(files)):
        time.sleep(0.05)
    while time.process_time() < float(sys.argv[2]):
        pass
end = float(began) + float(sys.argv[1])
while (left := end - time.monotonic()) > 0 and not Path(folder, "enough").exists():
    time.sleep(min(left, 0.2))
