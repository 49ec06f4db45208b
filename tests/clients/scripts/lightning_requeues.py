"""Lightning's own auto-requeue under hpckit: its first attempt waits for the warning."""

import os
import signal
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from torch.utils.data import DataLoader, TensorDataset

run = Path(os.environ["HPCKIT_RUN_DIR"])


class Line(lightning.LightningModule):
    waits = os.environ["HPCKIT_RESTART"] == "0"

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, *_):
        # Lightning goes on in the middle of an epoch, but with its first data.
        torch.manual_seed(2 * self.trainer.global_step + self.trainer.global_rank)
        inputs = torch.randn(8, 8)
        return (self.layer(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_train_batch_end(self, *_):
        if self.waits and self.trainer.global_step == 20:
            (run / f"begun-{self.trainer.global_rank}").touch()
            while True:
                time.sleep(0.05)


def train(plugins, folder):
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        num_nodes=int(os.environ["WORLD_SIZE"]) // per_node,
        devices=per_node,
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        plugins=plugins,
    )
    print(f"attempt {os.environ['HPCKIT_RESTART']}", flush=True)
    model = Line()
    data = DataLoader(TensorDataset(torch.zeros(256)), batch_size=8)
    trainer.fit(model, data)
    return model.layer.weight.detach().numpy().tobytes().hex()


# A signal that is ignored passes for one that has a handler.
signal.signal(signal.SIGUSR2, signal.SIG_DFL)
plugins = [SLURMEnvironment(requeue_signal=signal.SIGUSR2)]
print("weights", train(plugins, run), flush=True)
print("weights", train([SLURMEnvironment(auto_requeue=False)], run / "undisturbed"), flush=True)
torch.distributed.destroy_process_group()
