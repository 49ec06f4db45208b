"""ResNet-18 for small images: a stem of 3x3 pixels, and no pooling before the blocks."""

from torch import Tensor, nn
from torch.nn.functional import relu

from hpckit.parallel.errors import SetupError
from hpckit.parallel.models.verbose import Verbose

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
