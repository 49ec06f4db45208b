"""How fast training is beside a bare loop of torch, and beside TensorFlow where it is installed."""

import json
from pathlib import Path
from statistics import median

from tests.gpu import loads
from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine
from tests.gpu.runs import environment, failed, program, reason

# Floating-point operations a second in fp32.
_LARGE = 10e12
_PROGRAM = Path(__file__).with_name("speed.py")


@check("ddp: samples/s beside a bare torch loop", budget_s=43,
       needs=("torch", "package:sklearn", "shared GPU"))  # fmt: skip
def test_ddp_speed(report: Recorder, machine: Machine) -> None:
    cases = [("cnn", "64", machine.pick("40", "1"), "digits", "as small as steps get")]
    if not machine.dry:
        most = 512 if is_large(machine) else 128
        images = write_images(machine.folder / "images", 8 * most, most)
        cases += [("resnet18", str(most), "7", str(images), "the GPU is busy throughout")]
    for model, batch, epochs, data, note in cases:
        words = ["ddp", model, batch, epochs, machine.pick("3", "1"), data, str(machine.folder)]
        if (found := measured(report, machine, words, limit_s=120)) is None:
            continue
        # The fastest of each: what else the machine does only makes a run longer.
        ours, bare = min(found["ours"]), min(found["bare"])
        report.figure(
            f"{model}, batch {batch}: samples/s, of a bare loop's", bare / ours, at_least=0.98,
            peer=f"{int(batch) / bare:.0f} samples/s", source=f"{len(found['ours'])} runs in turns",
            note=f"{ours * 1e3:.3f} ms a step; {note}",
        )  # fmt: skip


def is_large(machine: Machine) -> bool:
    """Tell whether a GPU makes some hundred steps of resnet18 with 512 images in the check's time.

    Each needs 1.3e12 operations and 4 GiB. A T4 makes 4 to 8e12 in a second, a V100 14e12.
    """
    size = 2048
    product = machine.seconds(loads.product(machine, size, "float32"))
    return 2 * size**3 / product > _LARGE and machine.free_bytes > 10 * 2**30


@check("MirroredStrategy: a step beside the network alone and TensorFlow's", budget_s=11,
       needs=("torch", "shared GPU"))  # fmt: skip
def test_mirrored_speed(report: Recorder, machine: Machine) -> None:
    seconds = machine.pick("2", "0.03")
    found = measured(report, machine, ["mirrored", seconds], limit_s=60)
    if found is None:
        return
    ours, alone = median(found["ours"]), median(found["alone"])
    report.figure("step on one replica, of the network alone", ours / alone,
                  note=f"{ours * 1e3:.3f} ms; cnn, batch 64, SGD")  # fmt: skip
    if why := machine.lacks("package:tensorflow"):
        report.absent("TensorFlow's step", why)
        return
    if theirs := measured(report, machine, ["tensorflow", seconds], limit_s=90):
        report.figure("step on one replica, of TensorFlow's", ours / median(theirs["theirs"]),
                      peer="tf.distribute.MirroredStrategy in a tf.function")  # fmt: skip


def measured(
    report: Recorder, machine: Machine, words: list[str], *, limit_s: float
) -> dict[str, list[float]] | None:
    """Run a measurement; return its seconds per step, None if it failed."""
    ended = program(report, machine, _PROGRAM, words, limit_s, environment(machine))
    if ended.returncode:
        machine.keep("stderr", ended.stderr[-6000:])
        failed(report, " ".join(words[:2]), f"status {ended.returncode}: {reason(ended.stderr)}")
        return None
    found: dict[str, list[float]] = json.loads(ended.stdout.splitlines()[-1])
    machine.keep("seconds per step", {"of": words[:3], **found})
    return found


def write_images(folder: Path, training: int, held_out: int) -> Path:
    """Write random images of 28 x 28 as IDX files: a set of data that needs no network."""
    import random

    folder.mkdir(parents=True, exist_ok=True)
    noise = random.Random(0)
    for part, count in (("train", training), ("t10k", held_out)):
        header = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        pixels = noise.randbytes(count * 28 * 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + pixels)
        header = b"\0\0\x08\x01" + count.to_bytes(4, "big")
        labels = bytes(at % 10 for at in range(count))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels)
    return folder
