"""Networks for points and images; each can tell which replica runs where, with how much input."""

from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import relu

from hpckit.parallel.errors import SetupError
from hpckit.parallel.mirrored.context import get_replica_context
from hpckit.parallel.ranks import say


class Verbose(nn.Module):
    """A module whose forward begins with `announce`.

    Attributes:
        verbose: print a line in every forward; may be changed at any time.
        replica: the number of this copy, for whoever makes copies on one device; None: found out.
        told: the lines that were printed, each of them once; None: lines may be repeated.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        super().__init__()
        self.verbose = verbose
        self.replica: int | None = None
        self.told: set[str] | None = None

    def announce(self, inputs: Tensor) -> None:
        """Print `replica 1 on cuda:1: input (32, 1, 28, 28)`, if verbose, in one write."""
        if self.verbose:
            number = _number(inputs) if self.replica is None else self.replica
            line = f"replica {number} on {inputs.device}: input {tuple(inputs.shape)}"
            if self.told is None or line not in self.told:
                say(line)
            if self.told is not None:
                self.told.add(line)


def number_replica(model: nn.Module, number: int) -> None:
    """Tell the verbose modules of a copy which replica they are."""
    for one in model.modules():
        if isinstance(one, Verbose):
            one.replica = number


def _number(inputs: Tensor) -> int:
    """Return the replica's number: of its strategy, else the rank, else the device's index.

    The device is that of the inputs: copies that DataParallel makes own no parameters.
    """
    try:
        return get_replica_context().replica.number
    except RuntimeError:  # outside of a MirroredStrategy
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank()
        return inputs.device.index or 0


class MLP(Verbose):
    """One hidden layer, for images of any size; fast enough for any machine.

    Args:
        shape: channels, height and width of an image.
        classes: how many scores there are.
        hidden: width of the hidden layer.
        verbose: see `Verbose`.
    """

    def __init__(
        self,
        shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        *,
        hidden: int = 128,
        verbose: bool = False,
    ) -> None:
        super().__init__(verbose=verbose)
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (batch, classes), of images from 0 to 1."""
        self.announce(images)
        scores: Tensor = self.layers(images)
        return scores


class LinearModel(Verbose):
    """Three linear layers, 5 to 5 to 5 to 1, with nothing between: all but no work.

    For `RandomDataset`, to see how replicas share batches.
    """

    def __init__(self, features: int = 5, *, verbose: bool = False) -> None:
        super().__init__(verbose=verbose)
        self.layers = nn.Sequential(
            nn.Linear(features, features), nn.Linear(features, features), nn.Linear(features, 1)
        )

    def forward(self, points: Tensor) -> Tensor:
        """Return one number for each point, shape (batch, 1)."""
        self.announce(points)
        numbers: Tensor = self.layers(points)
        return numbers


class _Flat(torch.autograd.Function):
    """Images to rows; the gradient has channels innermost, as the images.

    With torch's own `flatten`, the gradient comes back in the rows' order, and pooling copies its
    results and its gradients into that order and back.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor) -> Tensor:
        return images.flatten(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ANN401
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401  # torch's, untyped
        # As contiguous(memory_format=torch.channels_last), which vmap does not know.
        return gradient.view(ctx.shape).movedim(1, -1).contiguous().movedim(-1, 1)


class Flatten(nn.Module):
    """Makes a row of each image."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the numbers of (batch, channels, height, width), shape (batch, all others)."""
        rows: Tensor = _Flat.apply(images)  # type: ignore[no-untyped-call]
        return rows


class CNN(Verbose):
    """Two convolutions and two linear layers.

    There is no BatchNorm on purpose: its statistics are those of one replica's part of the batch,
    so the result would depend on how many replicas share it.

    Args:
        shape: channels, height and width of an image.
        classes: how many scores there are.
        verbose: see `Verbose`.
    """

    def __init__(
        self,
        shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        *,
        verbose: bool = False,
    ) -> None:
        super().__init__(verbose=verbose)
        channels, height, width = shape
        self.layers = nn.Sequential(
            # ReLU after the maximum: the same numbers and gradients, of a quarter of the elements.
            nn.Conv2d(channels, 16, kernel_size=3, padding=1),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(32 * -(-height // 4) * -(-width // 4), 64),
            nn.ReLU(inplace=True),
            nn.Linear(64, classes),
        )
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:
                nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (batch, classes), of images from 0 to 1."""
        self.announce(images)
        scores: Tensor = self.layers(images)
        return scores


_SMALLEST = 14  # pixels that leave one for the linear layers


class LeNet(Verbose):
    """Two convolutions, two linear layers: images of (1, 28, 28) become 800, 128, 10 numbers.

    Args:
        shape: channels, height and width of an image; 14 pixels are the fewest.
        classes: how many scores there are.
        spread: standard deviation of the first weights. With 0.01, the classic choice, the loss
            stays where it is for the first epochs under SGD. None: that of He et al. (2015), which
            learns at once.
        verbose: see `Verbose`.

    Raises:
        SetupError: the images are too small.
    """

    def __init__(
        self,
        shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        *,
        spread: float | None = 0.01,
        verbose: bool = False,
    ) -> None:
        super().__init__(verbose=verbose)
        channels, height, width = shape
        if min(height, width) < _SMALLEST:
            raise SetupError(
                f"lenet needs images of at least {_SMALLEST}x{_SMALLEST} pixels, not "
                f"{height}x{width}: take another --model, such as mlp, or another --data"
            )
        self.features = nn.Sequential(
            nn.Conv2d(channels, 20, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
            nn.Conv2d(20, 50, kernel_size=5),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
            Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(50 * _after(height) * _after(width), 128),
            nn.ReLU(inplace=True),
            nn.Linear(128, classes),
        )
        for parameter in self.parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            elif spread is None:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:
                nn.init.normal_(parameter, std=spread)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (batch, classes), of images from 0 to 1."""
        self.announce(images)
        scores: Tensor = self.head(self.features(images))
        return scores


def _after(pixels: int) -> int:
    """Return what both convolutions and poolings leave of a height or width."""
    return ((pixels - 2) // 2 - 4) // 2


_WIDTHS = (64, 128, 256, 512)
_ONE_FEATURE = 8  # pixels, which three halvings make one


class Block(nn.Module):
    """Two convolutions, added to what came in; with a stride, both halve the image.

    Convolutions have biases and the shortcut has no normalization, as in textbooks and unlike in
    the networks that were trained on ImageNet.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=3, padding=1, stride=stride),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.second = nn.Sequential(
            nn.Conv2d(width, width, kernel_size=3, padding=1), nn.BatchNorm2d(width)
        )
        changes = channels != width or stride > 1
        self.shortcut = (
            nn.Conv2d(channels, width, kernel_size=1, stride=stride) if changes else nn.Identity()
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return features of shape (batch, width, height / stride, width / stride)."""
        return relu(self.second(self.first(images)) + self.shortcut(images))


class ResNet18(Verbose):
    """Eight residual blocks, for images of any size; 11.2 million parameters.

    It has BatchNorm, whose statistics in training are those of one replica's part of the batch:
    the same batch gives other results on another number of replicas. A replica's part can be empty,
    but one image alone must be larger than 8x8: its features end as one number each, which cannot
    be normalized.

    Args:
        shape: channels, height and width of an image.
        classes: how many scores there are.
        verbose: see `Verbose`.
    """

    def __init__(
        self,
        shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        *,
        verbose: bool = False,
    ) -> None:
        super().__init__(verbose=verbose)
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], _WIDTHS[0], kernel_size=3, padding=1),
            nn.BatchNorm2d(_WIDTHS[0]),
            nn.ReLU(),
        )
        blocks: list[nn.Module] = []
        for before, width in zip((_WIDTHS[0], *_WIDTHS), _WIDTHS, strict=False):
            blocks += [Block(before, width, 1 if before == width else 2), Block(width, width, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(_WIDTHS[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (batch, classes), of images from 0 to 1.

        Raises:
            SetupError: this is one small image alone, and the model is training.
        """
        self.announce(images)
        if self.training and len(images) == 1 and max(images.shape[2:]) <= _ONE_FEATURE:
            raise SetupError(
                f"resnet18 cannot train on one image of {images.shape[2]}x{images.shape[3]} alone: "
                "give each replica more with another --batch-size or --limit, or take --model mlp"
            )
        features = self.blocks(self.stem(images))
        scores: Tensor = self.head(features.mean((2, 3)))
        return scores
