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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WARM = 10


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
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data.distributed import DistributedSampler

    from hpckit.parallel.ranks import find_rank
    from hpckit.parallel.tasks import find_task

    device = find_rank().device
    task = find_task(model, data)
    images, network = task.train.to(device), task.make_model(0).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    sampler: Any = DistributedSampler(images, num_replicas=1, rank=0)
    steps, spent = 0, 0.0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        order = list(sampler)
        since = time.perf_counter()
        for at in range(0, len(order), batch):
            inputs, labels = images[order[at : at + batch]]
            optimizer.zero_grad()
            loss = cross_entropy(network(inputs), labels)
            loss.backward()
            optimizer.step()
            loss.item()
            now = time.perf_counter()
            steps += 1
            if steps > WARM:
                spent += now - since
            since = now
    return spent / (steps - WARM)


def mirrored(words: list[str]) -> dict[str, list[float]]:
    """Return seconds per step of a network alone, and by MirroredStrategy on the same device."""
    import torch
    from torch.nn.functional import cross_entropy

    from hpckit.parallel.mirrored import MirroredStrategy
    from hpckit.parallel.models import make_model
    from hpckit.parallel.ranks import find_rank

    device = find_rank().device
    inputs = torch.rand(64, 1, 28, 28, device=device)
    labels = torch.randint(10, (64,), device=device)
    alone = make_model("cnn").to(device)
    plain_optimizer = torch.optim.SGD(alone.parameters(), lr=0.01)

    def plain() -> None:
        plain_optimizer.zero_grad()
        loss = cross_entropy(alone(inputs), labels)
        loss.backward()
        plain_optimizer.step()
        loss.item()

    strategy = MirroredStrategy(device)
    model = strategy.mirror(make_model("cnn"))
    copies = strategy.optimizer(model, lambda copy: torch.optim.SGD(copy.parameters(), lr=0.01))
    (batch,) = strategy.distribute_dataset([(inputs, labels)])

    def part(some: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        copies.zero_grad()
        loss = cross_entropy(model(some), wanted, reduction="sum") / 64
        loss.backward()
        copies.step()
        return loss.detach()

    def step() -> None:
        strategy.reduce("sum", strategy.run(part, batch)).item()

    found: dict[str, list[float]] = {"alone": [], "ours": []}
    for _ in range(3):
        found["alone"].append(per_step(plain, float(words[0]) / 3))
        found["ours"].append(per_step(step, float(words[0]) / 3))
    return found


def tensorflow(words: list[str]) -> dict[str, list[float]]:
    """Return seconds per step of the same network by TensorFlow's MirroredStrategy."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf  # type: ignore[import-untyped]

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


def per_step(step: Callable[[], object], seconds: float) -> float:
    """Return seconds per call, after some that do not count."""
    for _ in range(WARM):
        step()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        count += 1
    return (time.perf_counter() - began) / max(count, 1)


if __name__ == "__main__":
    modes = {"ddp": ddp, "mirrored": mirrored, "tensorflow": tensorflow}
    print(json.dumps(modes[sys.argv[1]](sys.argv[2:])))
