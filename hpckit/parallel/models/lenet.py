"""A LeNet with 20 and 50 channels, the classic of tutorials on several GPUs."""

from torch import Tensor, nn

from hpckit.parallel.errors import SetupError
from hpckit.parallel.models.verbose import Verbose

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
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(20, 50, kernel_size=5),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(50 * _after(height) * _after(width), 128),
            nn.ReLU(),
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
