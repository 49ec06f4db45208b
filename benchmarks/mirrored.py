"""A step of MirroredStrategy beside TensorFlow's and the network alone, in turns.

    python -m venv VENV && VENV/bin/pip install tensorflow-cpu
    python benchmarks/mirrored.py [--tensorflow VENV] [--model cnn|lenet] [--compile]

Each contender is a process that waits for its turn, and then takes some steps of SGD on a batch of
64 images of 28x28. A round gives each one turn, in another order, so that other work on the
machine meets all of them. Times are those on the clock and those on the CPU (all threads of the
process), per step; ratios are of the two turns of one round, and their median is printed.

Torch and TensorFlow have their own numbers of threads (all cores), and two replicas share them.
It asserts nothing.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
BATCH = 64
# What both kinds of process do: a line on stdin is a number of steps, a line on stdout its times.
SERVE = """
def serve(step):
    import json, sys, time
    for _ in range(20):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        wall, on_cpu = [], time.process_time()
        for _ in range(int(line)):
            began = time.perf_counter()
            step()
            wall.append(time.perf_counter() - began)
        on_cpu = (time.process_time() - on_cpu) / len(wall)
        print(json.dumps({"wall": wall, "cpu": on_cpu}), flush=True)
"""
TENSORFLOW = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
kind, replicas = sys.argv[1], int(sys.argv[2])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
strategy = tf.distribute.MirroredStrategy([f"CPU:{at}" for at in range(replicas)])
layers = tf.keras.layers
with strategy.scope():
    model = tf.keras.Sequential({
        "cnn": lambda: [
            layers.Conv2D(16, 3, padding="same", activation="relu"), layers.MaxPool2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPool2D(),
            layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)],
        "lenet": lambda: [
            layers.Conv2D(20, 3, activation="relu"), layers.AveragePooling2D(2),
            layers.Conv2D(50, 5, activation="relu"), layers.AveragePooling2D(2),
            layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)],
    }[kind]())
    model.build((None, 28, 28, 1))
    optimizer = tf.keras.optimizers.SGD(0.01)
x, y = tf.random.uniform((64, 28, 28, 1)), tf.random.uniform((64,), 0, 10, tf.int64)
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensors((x, y)).unbatch().batch(64).repeat())
def one(x, y):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(tf.keras.losses.sparse_categorical_crossentropy(
            y, model(x, training=True), from_logits=True), global_batch_size=64)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables),
                                  model.trainable_variables))
    return loss
@tf.function
def whole(x, y):
    return strategy.reduce("SUM", strategy.run(one, (x, y)), axis=None)
batch = next(iter(data))
serve(lambda: float(whole(*batch)))
"""


def torch_step(kind: str, how: str, replicas: int) -> Callable[[], object]:
    """Return one step: of the network `alone` or `compact`, or `mirrored`, maybe `compiled`.

    `alone` has torch's own order of channels, `compact` has them innermost, as hpckit's networks.
    """
    sys.path.insert(0, str(ROOT))
    import torch  # noqa: PLC0415  # the parent does without

    from benchmarks.steps import mirrored_step, plain_step  # noqa: PLC0415
    from hpckit.parallel.kept_memory import keep_freed_memory  # noqa: PLC0415
    from hpckit.parallel.mirrored import MirroredStrategy  # noqa: PLC0415
    from hpckit.parallel.models import make_model  # noqa: PLC0415

    if how != "alone":
        keep_freed_memory()
    inputs, labels = torch.rand(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))
    if how in ("alone", "compact"):
        kept = {"alone": torch.contiguous_format, "compact": torch.channels_last}
        network = make_model(kind).to(memory_format=kept[how])
        sgd = torch.optim.SGD(network.parameters(), lr=0.01, fused=how == "compact")
        return plain_step(network, sgd, inputs, labels)
    strategy = MirroredStrategy(f"cpu:{replicas}")
    model = strategy.mirror(make_model(kind), compile=how == "compiled")
    optimizer = strategy.optimizer(
        model, lambda copy: torch.optim.SGD(copy.parameters(), lr=0.01, fused=True)
    )
    return mirrored_step(strategy, model, optimizer, inputs, labels)


@dataclass
class Contender:
    """A process that takes steps when it is told."""

    name: str
    process: "subprocess.Popen[str]"
    wall: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def turn(self, steps: int) -> None:
        """Let it take some steps; note the median and the least of their times."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        self.wall.append(median(said["wall"]))
        self.least.append(min(said["wall"]))
        self.cpu.append(said["cpu"])


def contenders(
    model: str, tensorflow: Path | None, *, compiled: bool, only: str
) -> list[Contender]:
    """Start all of them."""
    here = [sys.executable, __file__, "--model", model, "--serve"]
    argv = {
        "the network alone, as torch has it": [*here, "alone", "1"],
        "the network alone, channels innermost": [*here, "compact", "1"],
    }
    for replicas in (1, 2):
        argv[f"MirroredStrategy, {replicas}"] = [*here, "mirrored", str(replicas)]
        if compiled:
            argv[f"MirroredStrategy, {replicas}, compiled"] = [*here, "compiled", str(replicas)]
        if tensorflow:
            program = [str(tensorflow / "bin/python"), "-c", SERVE + TENSORFLOW]
            argv[f"TensorFlow, {replicas}"] = [*program, model, str(replicas)]
    found = []
    for name, words in argv.items():
        if only not in name:
            continue
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"{name} does not start"
        print(f"{name}: ready", file=sys.stderr)
        found.append(Contender(name, process))
    return found


def show(model: str, found: list[Contender]) -> None:
    """Print times, and ratios to TensorFlow's of as many replicas, or to the network alone."""
    named = {one.name: one for one in found}
    print(f"\nms per step of 64 images, {model:<19}{'median':>9}{'min':>9}{'on CPU':>9}  ratio")
    for one in found:
        figures = (median(one.wall), min(one.least), median(one.cpu))
        replicas = "2" if ", 2" in one.name else "1"
        other = named.get(f"TensorFlow, {replicas}")
        ratio = ""
        if other and other is not one:
            on_clock, on_cpu = (
                median(mine / theirs for mine, theirs in zip(*pair, strict=True))
                for pair in ((one.wall, other.wall), (one.cpu, other.cpu))
            )
            ratio = f"  {on_clock:.2f} x TensorFlow, {replicas} (on the CPU {on_cpu:.2f} x)"
        print(f"{one.name:<44}" + "".join(f"{figure * 1000:>9.2f}" for figure in figures) + ratio)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow", type=Path, metavar="VENV")
    parser.add_argument("--model", choices=["cnn", "lenet"], default="cnn")
    parser.add_argument("--compile", action="store_true", help="also what torch compiles")
    parser.add_argument("--only", default="", help='contenders with this in the name: ", 2"')
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=60, help="in a turn")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        how, replicas = options.serve
        parts: dict[str, Callable[[Callable[[], object]], None]] = {}
        exec(SERVE, parts)
        parts["serve"](torch_step(options.model, how, int(replicas)))
        return
    found = contenders(
        options.model, options.tensorflow, compiled=options.compile, only=options.only
    )
    order = list(found)
    for _ in range(options.rounds):
        random.shuffle(order)
        for one in order:
            one.turn(options.steps)
            time.sleep(0.02)  # threads that still look for work may not disturb the next
    for one in found:
        one.process.kill()
    show(options.model, found)
    print(
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, python {platform.python_version()}"
    )


if __name__ == "__main__":
    main()
