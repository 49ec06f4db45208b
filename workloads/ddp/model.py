"""The network: two convolutions and two linear layers, for small grey images."""

from torch import Tensor, nn


class Classifier(nn.Module):
    """Give each image of shape (1, height, width) one score per class.

    There is no BatchNorm on purpose: its statistics are those of one rank's share of the batch,
    so the result would depend on how many ranks share it.
    """

    def __init__(self, height: int, width: int, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        # Each pooling halves the image, so an 8x8 image arrives here as 2x2 and a 28x28 one as 7x7.
        self.head = nn.Sequential(
            nn.Linear(32 * (height // 4) * (width // 4), 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            else:
                nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (batch, classes)."""
        scores: Tensor = self.head(self.features(images))
        return scores
