"""What a run learns: samples, the model made for them, and how its answers are judged."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hpckit.parallel.data import ImageSets, RandomDataset, Samples, byte_corpus, load_images
from hpckit.parallel.errors import SetupError
from hpckit.parallel.models import IMAGE_MODELS, TEXT_MODELS, make_model

# How near a number must come to count as right.
_NEAR = 0.1
_RANDOM_POINTS = 1000
_CONTEXT = 128


@dataclass(frozen=True, kw_only=True)
class Task:
    """Samples, a model and a loss.

    Attributes:
        name: of the samples.
        description: the line that says which samples these are.
        make_model: returns a new model on the CPU, with the first weights of a seed.
        losses: of scores and targets, the loss of each sample: shape (batch,).
        hits: of scores and targets, the share that each sample has right: shape (batch,).
        judged: what counts as right, in words; empty where the mean of hits is an accuracy.
    """

    name: str
    description: str
    train: Samples
    held_out: Samples
    make_model: Callable[[int], nn.Module]
    losses: Callable[[Tensor, Tensor], Tensor]
    hits: Callable[[Tensor, Tensor], Tensor]
    judged: str = ""

    def to(self, device: torch.device) -> "Task":
        """Return the same task with its samples on a device."""
        return replace(self, train=self.train.to(device), held_out=self.held_out.to(device))


def find_task(
    model: str,
    data: str = "auto",
    *,
    limit: int | None = None,
    verify: bool = True,
    verbose: bool = False,
) -> Task:
    """Return what a model learns from a set of samples.

    Args:
        model: a name of `hpckit.parallel.models`.
        data: for images a name or folder, as `load_images` takes it; for text a file or folder,
            or `auto` for Python's own help texts; for `linear` only `auto`, random points.
        limit: use only the first so many training samples.
        verify: compare the checksums of a set of images that has a name.
        verbose: the model prints where each of its replicas runs, each shape of inputs once.

    Raises:
        SetupError: the samples are not there, or the model cannot take them.
    """
    if model in IMAGE_MODELS:
        return _images(model, load_images(data, limit=limit, verify=verify), verbose)
    if model in TEXT_MODELS:
        return _text(model, data, limit, verbose)
    return _points(model, data, limit, verbose)


def _maker(model: str, verbose: bool, **options: Any) -> Callable[[int], nn.Module]:  # noqa: ANN401
    def make(seed: int) -> nn.Module:
        made = make_model(model, seed=seed, verbose=verbose, **options)
        made.told = set()
        return made

    return make


def _images(model: str, sets: ImageSets, verbose: bool) -> Task:

    # The classic LeNet's small first weights learn nothing for some epochs, or never by plain SGD.
    options: dict[str, Any] = {"spread": None} if model == "lenet" else {}
    options |= {"shape": sets.shape, "classes": sets.classes}

    return Task(
        name=sets.name,
        description=sets.describe(),
        train=sets.train,
        held_out=sets.held_out,
        make_model=_maker(model, verbose, **options),
        losses=lambda scores, labels: cross_entropy(scores, labels, reduction="none"),
        hits=lambda scores, labels: (scores.argmax(1) == labels).float(),
    )


def _text(model: str, data: str, limit: int | None, verbose: bool) -> Task:
    sets = byte_corpus(None if data == "auto" else data, context=_CONTEXT, limit=limit)

    def losses(scores: Tensor, tokens: Tensor) -> Tensor:
        each = cross_entropy(scores.flatten(0, 1), tokens.flatten(), reduction="none")
        return each.view(tokens.shape).mean(1)

    return Task(
        name=sets.name,
        description=sets.describe(),
        train=sets.train,
        held_out=sets.held_out,
        make_model=_maker(model, verbose),
        losses=losses,
        hits=lambda scores, tokens: (scores.argmax(2) == tokens).float().mean(1),
    )


def _points(model: str, data: str, limit: int | None, verbose: bool) -> Task:
    if data not in ("auto", "random"):
        raise SetupError(f"--data {data}: the model {model!r} learns random points only: auto")
    points, others = RandomDataset(limit or _RANDOM_POINTS), RandomDataset(_RANDOM_POINTS, seed=1)
    return Task(
        name="random",
        description=f"data: random, {len(points)} training and {len(others)} held-out points",
        train=points,
        held_out=others,
        make_model=_maker(model, verbose),
        judged=f"within {_NEAR}",
        losses=lambda numbers, wanted: ((numbers - wanted) ** 2).flatten(1).mean(1),
        hits=lambda numbers, wanted: ((numbers - wanted).abs() < _NEAR).float().flatten(1).mean(1),
    )
