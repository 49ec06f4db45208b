"""accelerate that asks `should_stop`: its first attempt waits for the warning."""

import os
import time
from pathlib import Path

import torch
import torch.distributed.nn
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

from hpckit.parallel import should_stop

EPOCHS = 3
run = Path(os.environ["HPCKIT_RUN_DIR"])
last = run / "checkpoints" / "last"


def wait(accelerator, step):
    if os.environ["HPCKIT_RESTART"] == "0" and step == 20:
        (run / f"begun-{accelerator.process_index}").touch()
        while not should_stop():
            time.sleep(0.05)


def train(accelerator, last):
    torch.manual_seed(1)
    inputs = torch.randn(256, 8)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    if last and last.exists():
        accelerator.load_state(last)
        step = int((last / "step.txt").read_text())
    print(f"from step {step}", flush=True)
    for epoch in range(step // len(loader), EPOCHS):
        loader.set_epoch(epoch)
        for batch, targets in accelerator.skip_first_batches(loader, step % len(loader)):
            loss = torch.nn.functional.mse_loss(model(batch), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            wait(accelerator, step)
            if last and should_stop():
                accelerator.save_state(last)
                if accelerator.is_main_process:
                    (last / "step.txt").write_text(str(step))
                return
    weights = accelerator.unwrap_model(model).weight.detach().numpy().tobytes().hex()
    print("weights", weights, flush=True)
    accelerator.free_memory(model, optimizer, loader)


accelerator = Accelerator(
    cpu=not torch.cuda.is_available(),
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
)
train(accelerator, last)
if os.environ["HPCKIT_RESTART"] != "0":
    train(accelerator, None)
accelerator.end_training()
