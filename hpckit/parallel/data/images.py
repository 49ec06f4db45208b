"""Grey or color images in memory, a set to train on and one held out."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hpckit.parallel.data.samples import Pair, Samples


class Images(Samples):
    """Images as bytes of shape (count, channels, height, width), and one label for each."""

    @property
    def images(self) -> Tensor:
        """The bytes."""
        return self.inputs

    @property
    def labels(self) -> Tensor:
        """The classes, counted from 0."""
        return self.targets

    def ready(self, inputs: Tensor, targets: Tensor) -> Pair:
        """Return the images as numbers from 0 to 1, and their labels."""
        return as_numbers(inputs), targets


def as_numbers(images: Tensor) -> Tensor:
    """Return bytes as numbers from 0 to 1, on the device where they lie."""
    return images.float().div_(255)


@dataclass(frozen=True, kw_only=True)
class ImageSets:
    """Images to train on and images held out, of the same shape.

    Attributes:
        name: of the set, such as `mnist-5k`, or the folder it comes from.
        classes: how many there are; labels are less than this.
        origin: where the images were read, and whether their checksums were compared.
    """

    name: str
    train: Images
    held_out: Images
    classes: int
    origin: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def describe(self) -> str:
        """Return the line that tells what a run trains on."""
        channels, height, width = self.shape
        size = f"{height}x{width}" if channels == 1 else f"{channels}x{height}x{width}"
        return (
            f"data: {self.name}, {len(self.train)} training and {len(self.held_out)} held-out "
            f"images of {size} in {self.classes} classes, from {self.origin}"
        )

    def to(self, device: torch.device | str) -> "ImageSets":
        """Return the same sets on a device; Fashion-MNIST takes 56 MB there."""
        return replace(self, train=self.train.to(device), held_out=self.held_out.to(device))

    def limited(self, limit: int) -> "ImageSets":
        """Return the same with at most `limit` images to train on, the first."""
        few = Images(self.train.images[:limit], self.train.labels[:limit])
        return replace(self, train=few)
