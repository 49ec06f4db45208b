"""What ranks write of their nodes' hardware, in the words of drivers, CUDA, NCCL and torch."""

import pytest

from hpckit.bad_nodes.faults import XIDS, blamed, fault_in
from hpckit.run_folders.ranks import Fault

# The forms are those of public logs: NVIDIA's driver, torch 2, TensorFlow, NCCL 2.
SURE = {
    "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset "
    "gpu to activate.": "Xid 63: GPU memory is remapped",
    "[1843.3] NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off "
    "the bus.": "Xid 79: the GPU has fallen off the bus",
    "kernel: NVRM: Xid (PCI:0000:3b:00): 119, pid=2, Timeout after 6s of waiting for RPC response "
    "from GPU0 GSP!": "Xid 119: the GPU's own processor (GSP) does not answer",
    "NVRM: Xid (0000:03:00): 48, An uncorrectable double bit error (DBE) has been detected": (
        "Xid 48: double-bit ECC error"
    ),
    "NVRM: Xid (PCI:0018:01:00): 145, RLW_SRC_TRACK Fatal XC0 i0 Link 11 (0x2 0x0)": (
        "Xid 145: fatal NVLink error"
    ),
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": (
        "CUDA: uncorrectable ECC error"
    ),
    "  what():  CUDA error: uncorrectable ECC error encountered": "CUDA: uncorrectable ECC error",
    "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered": (
        "CUDA: uncorrectable ECC error"
    ),
    "Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: "
    "uncorrectable ECC error encountered": "CUDA: uncorrectable ECC error",
    "n7:984:1357 [4] NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'": (
        "CUDA: uncorrectable ECC error"
    ),
    "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with "
    "exception: CUDA error: uncorrectable NVLink error detected during the execution": (
        "CUDA: uncorrectable NVLink error"
    ),
    "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system": (
        "the GPU has fallen off the bus"
    ),
    "NVRM: fallen off the bus and is not responding to commands.": "the GPU has fallen off the bus",
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
    "initialized (Triggered internally at CUDAFunctions.cpp:108.)": (
        "CUDA: the GPUs of the node are not ready"
    ),
    "n7:9:9 [0] NCCL WARN Cuda failure 802 'system not yet initialized'": (
        "CUDA: the GPUs of the node are not ready"
    ),
    "n7:9:9 [0] NCCL WARN NET/IB : mlx5_0:1 Got async fatal event: local catastrophic error": (
        "NCCL: the network adapter failed"
    ),
    "hpckit: node g7 has no GPU driver (no /proc/driver/nvidia, no /dev/kfd), while g1 has one: "
    "the job ends": "no GPU driver",
}
UNSURE = [
    "RuntimeError: CUDA error: no CUDA-capable device is detected",
    "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "error=46 : all CUDA-capable devices are busy or unavailable",
    "RuntimeError: No CUDA GPUs are available",
]
NONE = [
    # A program's own: NVIDIA's catalogue tells to look at the application.
    *(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1, name=python" for number in (13, 31, 43, 45)),
    "NVRM: Xid (PCI:0018:01:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 11",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA error: device-side assert triggered",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "ModuleNotFoundError: No module named 'transformers'",
    # These only say that somebody else is gone, or slow.
    "[rank3]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE",
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited "
    "or there was a network error. ncclRemoteError: A call failed possibly due to a network error",
    "n7:1:2 [4] NCCL WARN NET/IB : Got completion from peer 10.2.1.6<5486> with status=12 opcode=0",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer",
    "NCCL WARN Cuda failure 1 'invalid argument'",
    # Another rank's, relayed.
    "[Rank 5] terminated: CUDA error: uncorrectable ECC error encountered",
    "rank 12 said: uncorrectable ECC error encountered",
    # A line of the source, quoted by a traceback.
    '    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")',
    "[rank3]:     raise Error('uncorrectable ECC error encountered')",
]


@pytest.mark.parametrize(("line", "what"), SURE.items())
def test_words_that_no_program_causes_are_the_nodes_own(line: str, what: str) -> None:
    found = fault_in(f"step 1\n{line}\nCompile with TORCH_USE_CUDA_DSA\n", 3)
    assert found == Fault(what=what, words=line.strip()[:300])


@pytest.mark.parametrize("line", UNSURE)
def test_a_missing_gpu_is_not_sure(line: str) -> None:
    found = fault_in(line, 3)
    assert found is not None
    assert (found.what, found.sure) == ("CUDA: no usable GPU", False)
    sure = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus."
    assert (later := fault_in(f"{line}\n{sure}", 3)) is not None
    assert later.what.startswith("Xid 79")


@pytest.mark.parametrize("line", NONE)
def test_words_of_programs_and_of_lost_peers_blame_no_node(line: str) -> None:
    assert fault_in(line, 3) is None


def test_each_xid_has_a_name_and_application_errors_have_none() -> None:
    for number, name in XIDS.items():
        found = fault_in(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=7", 0)
        assert found is not None
        assert found.what == f"Xid {number}: {name}"
    assert not {13, 31, 32, 43, 45, 69, 109, 137, 154} & {*XIDS}


def test_a_long_line_is_cut_and_another_languages_digits_are_no_number() -> None:
    found = fault_in("x" * 5000 + " uncorrectable ECC error encountered", 0)
    assert found is not None
    assert len(found.words) == 300
    assert fault_in("NVRM: Xid (PCI:0000:3b:00): \u0667\u0669, pid=7", 0) is None


ECC, NO_GPU = Fault(what="ecc", words="e"), Fault(what="gpu", words="g", sure=False)


@pytest.mark.parametrize(
    ("faults", "working", "expected"),
    [
        ({"a": [ECC], "b": []}, [], {"a": [ECC]}),
        ({"a": [ECC]}, [], {"a": [ECC]}),  # a job of one node
        ({"a": [ECC], "b": [ECC]}, [], {}),  # what all say is the program's
        ({"a": [ECC, NO_GPU], "b": [NO_GPU]}, [], {"a": [ECC]}),
        ({"a": [NO_GPU], "b": []}, [], {}),  # the other may have come as far, or not
        ({"a": [NO_GPU], "b": []}, ["b"], {"a": [NO_GPU]}),
        ({"a": [NO_GPU], "b": []}, ["a"], {}),  # its own other rank says nothing
        ({"a": [NO_GPU]}, [], {}),
        ({"a": [NO_GPU], "b": [NO_GPU], "c": []}, ["c"], {"a": [NO_GPU], "b": [NO_GPU]}),
        ({}, [], {}),
    ],
)
def test_who_is_blamed(
    faults: dict[str, list[Fault]], working: list[str], expected: dict[str, list[Fault]]
) -> None:
    assert blamed(faults, working) == expected
