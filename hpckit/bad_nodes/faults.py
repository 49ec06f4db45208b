"""What a rank wrote of the hardware of its own node: GPUs, links between them, adapters. Pure.

Errors that a program can cause itself are not among them, nor those that only say that another rank
is gone: a timeout of NCCL, a closed connection. Xids are those of `NVIDIA's catalogue
<https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>`_; the other words are those
of CUDA 12's runtime and driver, of its kernel module, and of NCCL 2's plain InfiniBand transport.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from hpckit.run_folders.ranks import Fault

_XID = re.compile(r"\bXid \((?:PCI:)?[0-9a-fA-F:.]{4,20}\): (\d{1,3})\b", re.ASCII)
# Those for which the catalogue wants the GPU reset, replaced or looked at, or which tell of broken
# memory or links. Applications cause 13, 31, 43, 45, 109 and their like.
XIDS: Mapping[int, str] = {
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    62: "the GPU's micro-controller halted",
    63: "GPU memory is remapped",
    64: "GPU memory cannot be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "the GPU's own processor (GSP) does not answer",
    120: "error of the GPU's own processor (GSP)",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "the GPU does not initialize",
    156: "parts of the GPU are retired",
    157: "parts of the GPU cannot be retired",
    158: "the GPU does not answer",
    167: "PCIe timeout",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}
# NVLink 5: the same number for what is fatal, and for what corrects itself or is software's.
_NVLINK_5, _FATAL = range(144, 151), re.compile(r"\bFatal\b")
_SURE: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "CUDA: uncorrectable ECC error",
        re.compile(r"uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE"),
    ),
    (
        "CUDA: uncorrectable NVLink error",
        re.compile(r"uncorrectable NVLink error detected|CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    ),
    (
        "the GPU has fallen off the bus",
        re.compile(r"\bGPU has fallen off the bus|NVRM: .*fallen off the bus|\bGPU is lost\."),
    ),
    (
        "CUDA: the GPUs of the node are not ready",  # its fabric manager is down
        re.compile(
            r"(?:CUDA error:|Error 802:|Cuda failure.*) ?'?system not yet initialized"
            r"|CUDA_ERROR_SYSTEM_NOT_READY"
        ),
    ),
    (
        "NCCL: the network adapter failed",
        re.compile(r"NET/IB ?: .*async (?:fatal )?event ?:.*(?:local catastrophic|port) error"),
    ),
    (
        "no GPU driver",  # `hpckit.payload.rank` writes so where another node of the job has one
        re.compile(r"^hpckit: node \S+ has no GPU driver .*, while \S+ has one: "),
    ),
)
# A program may hide GPUs from itself, or hold them: these say something only beside a rank of
# another node that had its GPU.
_NO_GPU = re.compile(
    r"no CUDA-capable device is detected|CUDA-capable device(?:s|\(s\) is/)? ?are busy or unavail"
    r"|CUDA_ERROR_NO_DEVICE|CUDA_ERROR_DEVICE_UNAVAILABLE|No CUDA GPUs are available"
    r"|Found no NVIDIA driver on your system|couldn't communicate with the NVIDIA driver"
    r"|Driver/library version mismatch"
)
_RANK = re.compile(r"(?<!local )\brank ?[:=]? ?(\d{1,8})\b", re.IGNORECASE | re.ASCII)
_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_MOST_WORDS = 300


def fault_in(text: str, rank: int) -> Fault | None:
    """Return what a rank's log says of its node: the first that is sure, else the first at all.

    `rank`: whose log it is; a line that names another rank speaks of another node.
    """
    found = [fault for line in _said(text) if (fault := _fault(line)) and _own(line, rank)]
    return next((fault for fault in found if fault.sure), found[0] if found else None)


def _said(text: str) -> Iterator[str]:
    """Yield the lines but for source lines of a traceback, which may quote anything."""
    for line in text.splitlines():
        plain = _PREFIX.sub("", line)
        if not plain.startswith("  ") or plain.startswith("  what():"):
            yield line


def _own(line: str, rank: int) -> bool:
    return all(int(match) == rank for match in _RANK.findall(line))


def _fault(line: str) -> Fault | None:
    words = line.strip()[:_MOST_WORDS].strip()
    for number in map(int, _XID.findall(line)):
        if number in XIDS:
            return Fault(what=f"Xid {number}: {XIDS[number]}", words=words)
        if number in _NVLINK_5 and _FATAL.search(line):
            return Fault(what=f"Xid {number}: fatal NVLink error", words=words)
    for what, pattern in _SURE:
        if pattern.search(line):
            return Fault(what=what, words=words)
    if _NO_GPU.search(line):
        return Fault(what="CUDA: no usable GPU", words=words, sure=False)
    return None


_Hosts = Mapping[str, Iterable[Fault]]


def blamed(faults: _Hosts, working: Iterable[str]) -> dict[str, list[Fault]]:
    """Return which faults of an attempt are their nodes' own, by node.

    What all nodes say is the program's own fault.

    Args:
        faults: what each node of the attempt says, also of nodes that say nothing.
        working: nodes whose ranks came further than to ask for a GPU, or failed for another reason.
    """
    found: dict[str, list[Fault]] = {}
    by_what: dict[str, dict[str, Fault]] = {}
    for host, rows in faults.items():
        for row in rows:
            by_what.setdefault(row.what, {}).setdefault(host, row)
    others = set(working)
    for hosts in by_what.values():
        everywhere = len(faults) > 1 and len(hosts) == len(faults)
        for host, row in hosts.items():
            if not everywhere and (row.sure or others - {*hosts}):
                found.setdefault(host, []).append(row)
    return found
