"""The machine itself: what everything else stands on."""

import time

from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine

# The driver's window of utilization is at most a second; a display takes some percent.
_READINGS, _IDLE_PERCENT, _ROUNDS = 5, 5, 4


@check("Nobody else computes on the GPU", budget_s=1.5)
def test_alone(report: Recorder, machine: Machine) -> None:
    """Before CUDA is used here: another's job or a display would be in all figures."""
    listed = machine.ask("nvmlDeviceGetComputeRunningProcesses", machine.unit.board)
    report.fact("processes on it", "unknown" if listed is None else str(len(listed)),
                note="one that rests takes memory only")  # fmt: skip
    # A GPU that was off until now (no persistence mode) is busy with itself for a second or two.
    for _ in range(machine.pick(_ROUNDS, 1)):
        known = readings(machine)
        if not known:
            report.not_here("NVML does not tell the utilization, as of a MIG slice")
        if max(known) <= _IDLE_PERCENT:
            break
    report.figure("utilization before the first check", max(known), unit="%",
                  at_most=_IDLE_PERCENT, source="NVML",
                  note="of somebody else's job, or of a display: take a GPU that nobody else uses "
                  "(CUDA_VISIBLE_DEVICES chooses one), or ask the scheduler for a whole one"
                  if max(known) > _IDLE_PERCENT else "")  # fmt: skip


def readings(machine: Machine) -> list[int]:
    """Return what the driver says of its last windows; the first one may be of the time before."""
    found = []
    for _ in range(_READINGS):
        found.append(machine.ask("nvmlDeviceGetUtilizationRates", machine.unit.handle))
        time.sleep(0.2)
    return [row.gpu for row in found[1:] if row is not None]


@check("torch computes on the GPU that NVML names", budget_s=3.5, needs=("torch",))
def test_same_gpu(report: Recorder, machine: Machine) -> None:
    torch = machine.torch
    x = torch.ones(256, 256, device=machine.device)
    machine.synchronize()
    report.figure("sum of a product of ones", float((x @ x).sum()), near=256.0**3, within=0)
    if machine.dry:
        return
    about = torch.cuda.get_device_properties(machine.device)
    report.fact("name", about.name, good=about.name == (machine.unit.info.name or "").strip()
                or bool(machine.unit.info.mig_parent))  # fmt: skip
    uuid = getattr(about, "uuid", None)
    if machine.unit.info.mig_parent:
        report.absent("the GPU's UUID by torch", "of a slice, torch tells another one")
    elif uuid is None:
        report.absent("the GPU's UUID by torch", f"torch {torch.__version__} does not tell it")
    else:
        same = str(uuid).lower() in machine.unit.info.uuid.lower()
        report.fact("torch's first GPU is NVML's", "yes" if same else "no", good=same)
