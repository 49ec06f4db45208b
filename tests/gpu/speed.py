"""Speeds of training, each beside what one would write without hpckit: a program of the checks.

    python tests/gpu/speed.py ddp MODEL BATCH EPOCHS PAIRS DATA FOLDER    the workload, a bare loop
    python tests/gpu/speed.py mirrored SECONDS                            MirroredStrategy, alone
    python tests/gpu/speed.py tensorflow SECONDS                          TensorFlow's strategy

The device is that of $HPCKIT_DEVICE. The last line is JSON, of seconds per step. All is in one
process and in turns: what CUDA loads at first, and how warm the chip is, is the same for both.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def ddp(words: list[str]) -> dict[str, list[float]]:
    """Return seconds per step of the ddp workload, and of a loop of torch's alone."""
    model, batch, epochs, pairs, data, folder = words
    found: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(int(pairs) + 1):
        out = Path(folder) / f"{model}-{number}"
        taken = {
            "ours": workload(model, batch, epochs, data, out),
            "bare": bare(model, int(batch), int(epochs), data),
        }
        if number:  # the first pair loads libraries
            for name, seconds in taken.items():
                found[name].append(seconds)
    return found


def workload(model: str, batch: str, epochs: str, data: str, out: Path) -> float:
    """Train by workloads/ddp/train.py; return what it says of its speed."""
    from hpckit.parallel.ranks import find_rank

    script = runpy.run_path(str(ROOT / "workloads" / "ddp" / "train.py"))
    words = ["--model", model, "--batch-size", batch, "--epochs", epochs, "--data", data]
    words += ["--checkpoint-every", "0", "--out", str(out)]
    script["train"](script["make_parser"]().parse_args(words), find_rank())
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return float(last["s_per_step"])


def bare(model: str, batch: int, epochs: int, data: str) -> float:
    """Train as one would without hpckit; return seconds per step."""
    from benchmarks.steps import bare_loop
    from hpckit.parallel.ranks import find_rank
    from hpckit.parallel.tasks import find_task

    device = find_rank().device
    task = find_task(model, data)
    network, images = task.make_model(0).to(device), task.train.to(device)
    return bare_loop(network, images, batch=batch, epochs=epochs)


def mirrored(words: list[str]) -> dict[str, list[float]]:
    """Return seconds per step of a network alone, and by MirroredStrategy on the same device."""
    import torch

    from benchmarks.steps import mirrored_step, per_step, plain_step
    from hpckit.parallel.mirrored import MirroredStrategy
    from hpckit.parallel.models import make_model
    from hpckit.parallel.ranks import find_rank

    def sgd(network: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(network.parameters(), lr=0.01)

    device = find_rank().device
    inputs = torch.rand(64, 1, 28, 28, device=device)
    labels = torch.randint(10, (64,), device=device)
    network = make_model("cnn").to(device)
    alone = plain_step(network, sgd(network), inputs, labels)
    strategy = MirroredStrategy(device)
    model = strategy.mirror(make_model("cnn"))
    ours = mirrored_step(strategy, model, strategy.optimizer(model, sgd), inputs, labels)
    found: dict[str, list[float]] = {"alone": [], "ours": []}
    for _ in range(3):
        found["alone"].append(per_step(alone, float(words[0]) / 3))
        found["ours"].append(per_step(ours, float(words[0]) / 3))
    return found


def tensorflow(words: list[str]) -> dict[str, list[float]]:
    """Return seconds per step of the same network by TensorFlow's MirroredStrategy."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf  # type: ignore[import-untyped]

    from benchmarks.steps import per_step

    place = "GPU:0" if os.environ.get("HPCKIT_DEVICE") == "cuda" else "CPU:0"
    strategy = tf.distribute.MirroredStrategy([place])
    layers = tf.keras.layers
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.MaxPool2D(),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPool2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        model.build((None, 28, 28, 1))
        optimizer = tf.keras.optimizers.SGD(0.01)
    x, y = tf.random.uniform((64, 28, 28, 1)), tf.random.uniform((64,), 0, 10, tf.int64)
    data = tf.data.Dataset.from_tensors((x, y)).unbatch().batch(64).repeat()
    batch = next(iter(strategy.experimental_distribute_dataset(data)))

    def part(some: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(
                wanted, model(some, training=True), from_logits=True
            )
            loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def whole(some: Any, wanted: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(part, (some, wanted)), axis=None)

    def step() -> None:
        float(whole(*batch))

    return {"theirs": [per_step(step, float(words[0]) / 3) for _ in range(3)]}


if __name__ == "__main__":
    modes = {"ddp": ddp, "mirrored": mirrored, "tensorflow": tensorflow}
    print(json.dumps(modes[sys.argv[1]](sys.argv[2:])))
