"""One rank of `hpckit doctor gpu`: touch the GPU of its number, and say what it is.

By torch, which also multiplies on it; else by NVML, AMD SMI or nvidia-smi, which only look.
"""

import json
import os
import socket
import sys

MARK = "hpckit-doctor "
_SIZE = 1024
# Products of single precision over 1024 terms agree to about 1e-5 of their size; TF32 to 1e-3.
_TOLERANCE = 1e-2
Found = dict[str, object]


def main() -> int:
    """Print one line of JSON, also where there is no GPU, or it computes wrong.

    That is what was asked, and no failure: the ranks of other GPUs would be ended before they look.
    """
    index = int(os.environ.get("LOCAL_RANK", "0"))
    found = _by_torch(index) or _by_library(index) or _by_nvidia_smi(index)
    found |= {"host": socket.gethostname(), "index": index}
    print(MARK + json.dumps(found), flush=True)
    return 0


def _by_torch(index: int) -> Found:
    """Return what torch sees; nothing where this Python has no torch, or torch no GPU."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    if index >= torch.cuda.device_count():
        return {
            "fault": f"torch sees {torch.cuda.device_count()} GPUs, but this rank needs GPU {index}"
        }
    device = torch.device("cuda", index)
    about = torch.cuda.get_device_properties(device)
    left = torch.randn(_SIZE, _SIZE, generator=torch.Generator().manual_seed(1))
    here = left @ left.T
    there = (left.to(device) @ left.to(device).T).cpu()
    error = float((there - here).abs().max() / here.abs().max())
    fault = (
        {} if error < _TOLERANCE else {"fault": f"its matrix product has an error of {error:.1e}"}
    )
    memory = about.total_memory
    return {"by": f"torch {torch.__version__}", "name": about.name, "memory_bytes": memory, **fault}


def _by_library(index: int) -> Found:
    """Return what the vendor's library sees, NVML or AMD SMI; nothing where there is none."""
    try:
        from hpckit.stats.sampler.gpu_library import GpuLibraryError, open_library
    except ImportError:
        return {}
    try:
        library, units, failures = open_library()
    except GpuLibraryError:
        return {}  # nvidia-smi says why
    if index >= len(units):
        return {"fault": "; ".join(map(str, failures)) or _sees(library.name, len(units))}
    about = units[index].info
    return {"by": library.name, "name": about.name, "memory_bytes": about.memory_total_bytes}


def _sees(name: str, count: int) -> str:
    return f"{name} sees {count} GPU{'s' if count != 1 else ''}"


def _by_nvidia_smi(index: int) -> Found:
    from hpckit import shell
    from hpckit.errors import CommandError

    if shell.which("nvidia-smi") is None:
        return {"fault": "no GPU driver: torch, NVML, AMD SMI and nvidia-smi find no GPU"}
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        rows = shell.run(query, timeout_s=30).stdout.splitlines()
    except CommandError as error:
        return {"fault": f"no GPU driver answers: {error}"}
    if index >= len(rows):
        return {"fault": f"{_sees('nvidia-smi', len(rows))}, but this rank needs GPU {index}"}
    name, _, memory = rows[index].rpartition(",")
    size = int(memory) << 20 if memory.strip().isdecimal() else None
    return {"by": "nvidia-smi", "name": name.strip(), "memory_bytes": size}


if __name__ == "__main__":
    sys.exit(main())
