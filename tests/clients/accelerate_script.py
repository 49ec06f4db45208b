"""An accelerate user's script: nothing in it knows hpckit. `accelerate_script.py FOLDER`."""

import json
import socket
import sys
from pathlib import Path

import torch

# Loaded after the process group is made, it would keep the group's threads alive to the end, where
# they now and then abort the process (under plain torchrun too): pytorch issue 190489. For the
# same reason the wrapped model is gone before the group is.
import torch._dynamo
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def train(accelerator, folder):
    set_seed(1)
    inputs = torch.randn(256, 8)
    model = torch.nn.Linear(8, 1)
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.05),
        DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=8),
    )
    steps = 0
    for batch, targets in loader:
        loss = torch.nn.functional.mse_loss(model(batch), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    weights = accelerator.gather(accelerator.unwrap_model(model).weight.detach())
    seen = {
        "world_size": accelerator.num_processes,
        "rank": accelerator.process_index,
        "local_rank": accelerator.local_process_index,
        "host": socket.gethostname(),
        "python": sys.prefix,
        "steps": steps,
        "same_weights": bool((weights == weights[0]).all()),
        "gathered": weights.shape[0],
    }
    (folder / f"{accelerator.process_index}.json").write_text(json.dumps(seen))
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)


if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    train(accelerator, Path(sys.argv[1]))
    accelerator.end_training()
