"""The machine itself: what everything else stands on."""

from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine


@check("torch computes on the GPU that NVML names", budget_s=4, needs=("torch",))
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
