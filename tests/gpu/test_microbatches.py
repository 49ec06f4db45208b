"""MicrobatchTrainer on a GPU: gradients of microbatches are those of the whole batch."""

from typing import Any

from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine


@check("Microbatches: weights after five steps", budget_s=5, needs=("torch",))
def test_microbatches(report: Recorder, machine: Machine) -> None:
    one, two = machine.pick(("cuda:0", "cuda:0 x 2"), ("cpu", "cpu:2"))
    whole = stepped(machine, one)
    cpu = stepped(machine, "cpu")
    gap = distance(whole, cpu)
    report.figure("a GPU's whole batches, from the CPU's", gap, at_most=2e-5, note="largest weight")
    for name, devices, options, within in (
        ("microbatches of 16", one, {"microbatch": 16}, 2e-5),
        ("microbatches of 16 on two replicas of one GPU", two, {"microbatch": 16}, 2e-5),
        ("a GPU and a CPU", machine.pick(["cuda:0", "cpu"], ["cpu"]), {"microbatch": 16}, 2e-5),
        ("microbatches in bf16", one, {"microbatch": 16, "amp": "bf16"}, 5e-2),
        ("microbatches in fp16, scaled", one, {"microbatch": 16, "amp": "fp16"}, 5e-2),
    ):
        if machine.dry and options.get("amp") == "fp16":
            report.absent(name, "fp16 needs a GPU")
            continue
        if options.get("amp") == "bf16" and (why := machine.lacks("bf16")):
            report.absent(name, why)
            continue
        found = stepped(machine, devices, **options)
        report.figure(name, distance(found, whole), at_most=within, peer="whole batches")


def stepped(machine: Machine, devices: Any, **options: Any) -> list[Any]:
    """Return weights after five steps of plain SGD on the same batches."""
    from hpckit.parallel.microbatch import MicrobatchTrainer
    from hpckit.parallel.models import make_model

    torch = machine.torch
    random = torch.Generator().manual_seed(1)
    model = make_model("mlp", seed=3, shape=(1, 8, 8))
    trainer = MicrobatchTrainer(
        model,
        torch.nn.CrossEntropyLoss(),
        lambda module: torch.optim.SGD(module.parameters(), lr=0.1),
        devices,
        uneven="weight",
        **options,
    )
    for _ in range(5):
        images = torch.rand(50, 1, 8, 8, generator=random)
        labels = torch.randint(10, (50,), generator=random)
        result = trainer.train(images, labels)
        assert result.stepped or options.get("amp") == "fp16"  # its scale may be too large at first
    return [parameter.detach().cpu() for parameter in trainer.model.parameters()]


def distance(one: list[Any], other: list[Any]) -> float:
    """Return the largest difference of two lists of weights."""
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
