"""What a Lightning user has before they read about several nodes: a plain Trainer."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    """Fit the sum of four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):  # noqa: ANN001, ANN201
        """Return the loss of one batch."""
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):  # noqa: ANN201
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


inputs = torch.randn(64, 4)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False)
trainer.fit(Line(), DataLoader(data, batch_size=8))
print(f"rank {trainer.global_rank} of {trainer.world_size}: weight 0")
