"""A small network that learns images of any size quickly: the workloads' default."""

from torch import Tensor, nn

from hpckit.parallel.models.verbose import Verbose


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
            nn.Conv2d(channels, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(32 * -(-height // 4) * -(-width // 4), 64),
            nn.ReLU(),
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
