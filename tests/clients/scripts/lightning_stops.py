"""Lightning that asks `should_stop`: its first attempt waits for the warning."""

import os
import time
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from hpckit.parallel import should_stop

run = Path(os.environ["HPCKIT_RUN_DIR"])
last = run / "checkpoints" / "last.ckpt"


class StopInTime(lightning.Callback):
    def on_train_epoch_end(self, trainer, module):
        if should_stop():
            trainer.save_checkpoint(last)
            trainer.should_stop = True


class Waits(lightning.Callback):
    def on_train_epoch_end(self, trainer, _module):
        if os.environ["HPCKIT_RESTART"] == "0" and trainer.current_epoch == 1:
            (run / f"begun-{trainer.global_rank}").touch()
            while not should_stop():
                time.sleep(0.05)


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_train_epoch_start(self):
        print(f"epoch {self.trainer.current_epoch}", flush=True)


def train(callbacks, path):
    lightning.seed_everything(1)
    inputs = torch.randn(256, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        num_nodes=int(os.environ["WORLD_SIZE"]) // per_node,
        devices=per_node,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=callbacks,
    )
    model = Line()
    loader = DataLoader(data, batch_size=8, shuffle=True)
    trainer.fit(model, loader, ckpt_path=path)
    return model.layer.weight.detach().numpy().tobytes().hex()


weights = train([Waits(), StopInTime()], last if last.exists() else None)
if os.environ["HPCKIT_RESTART"] != "0":
    print("weights", weights, flush=True)
    print("weights", train([], None), flush=True)
torch.distributed.destroy_process_group()
