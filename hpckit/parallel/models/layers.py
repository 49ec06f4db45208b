"""Networks of linear layers only."""

from math import prod

from torch import Tensor, nn

from hpckit.parallel.models.verbose import Verbose


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
