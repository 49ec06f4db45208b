"""Networks to train, small and large, by the names that `--model` takes.

Each can say where its replicas run and with what. `networks` for points and images, `gpt` for text.
"""

from collections.abc import Callable
from functools import partial

import torch

import hpckit.parallel.torch_versions  # noqa: F401  # refuses an older torch
from hpckit.parallel.errors import SetupError
from hpckit.parallel.models.gpt import GPT
from hpckit.parallel.models.networks import CNN, MLP, LeNet, LinearModel, ResNet18, Verbose

__all__ = [
    "CNN",
    "GPT",
    "IMAGE_MODELS",
    "MLP",
    "MODELS",
    "TEXT_MODELS",
    "LeNet",
    "LinearModel",
    "ResNet18",
    "Verbose",
    "make_model",
]

# These take `shape` and `classes`, and images from 0 to 1.
IMAGE_MODELS: dict[str, Callable[..., Verbose]] = {
    "cnn": CNN,
    "lenet": LeNet,
    "mlp": MLP,
    "resnet18": ResNet18,
}
# These take tokens of shape (batch, length).
TEXT_MODELS: dict[str, Callable[..., Verbose]] = {
    "gpt": GPT,
    "gpt-small": partial(GPT, layers=2, width=64, heads=4, context=128),
}
MODELS = IMAGE_MODELS | TEXT_MODELS | {"linear": LinearModel}


def make_model(name: str, *, seed: int = 0, verbose: bool = False, **options: object) -> Verbose:
    """Return a new model on the CPU; the same seed gives the same weights, whatever its device.

    The random numbers of the program go on as if nothing had been drawn.

    Args:
        name: `cnn`, `lenet`, `mlp`, `resnet18`, `gpt`, `gpt-small` or `linear`.
        seed: of the first weights.
        verbose: print which replica runs where, each time it runs.
        options: of the model's class: for images `shape` (channels, height, width) and `classes`.

    Raises:
        SetupError: there is no such model, or it cannot take such samples.
    """
    if name not in MODELS:
        raise SetupError(f"--model {name}: there is no such model: give {', '.join(MODELS)}")
    # Not torch.manual_seed: it would set the generators of all GPUs, too.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        model = MODELS[name](verbose=verbose, **options)
    # Channels innermost: torch's pooling on the CPU then takes a seventh of the time, and GPUs'
    # tensor cores need not turn images over. Results are the same up to rounding.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in its stubs
    return model
