"""A Lightning user's script: nothing in it knows hpckit. `lightning_script.py FOLDER NODES`."""

import json
import socket
import sys
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _index):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def train(folder, nodes):
    lightning.seed_everything(1)
    inputs = torch.randn(256, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        num_nodes=nodes,
        strategy="ddp",
        max_steps=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Line()
    trainer.fit(model, DataLoader(data, batch_size=8))
    weights = trainer.strategy.all_gather(model.layer.weight.detach())
    seen = {
        "world_size": trainer.world_size,
        "rank": trainer.global_rank,
        "local_rank": trainer.local_rank,
        "node_rank": trainer.node_rank,
        "host": socket.gethostname(),
        "python": sys.prefix,
        "steps": trainer.global_step,
        "same_weights": bool((weights == weights[0]).all()),
        "gathered": weights.shape[0],
    }
    (folder / f"{trainer.global_rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
    torch.distributed.destroy_process_group()
