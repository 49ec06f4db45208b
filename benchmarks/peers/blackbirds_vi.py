"""blackbirds 1.3 itself on its example of variational inference over MPI: the peer of mpi_vi.py.

    make .venv-blackbirds/.done
    .venv-blackbirds/bin/mpirun -n 2 .venv-blackbirds/bin/python benchmarks/peers/blackbirds_vi.py

An SIR epidemic on a Watts-Strogatz graph, a normalising flow as posterior, the L2 loss of infected
counts with gradient horizon 0, KL weight 100. Two things are not as in the example, where each rank
has a graph and data of its own: the graph has a seed, and the data are those of rank 0.

Rank 0 prints one JSON document: seconds of each epoch, the history of losses, peak memory of each
rank in MiB, and mean and standard deviation of the posterior's parameters. Set OMP_NUM_THREADS=1.
"""

import argparse
import collections.abc
import functools
import importlib.metadata
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from typing import Any

import networkx
import normflows
import torch
import torch._functorch.eager_transforms

TRUE_RATE = 0.05


# blackbirds takes these two from private parts of torch, which 2.13 has no longer.
for name, value in (("Callable", collections.abc.Callable), ("wraps", functools.wraps)):
    setattr(torch._functorch.eager_transforms, name, value)

from blackbirds.infer.vi import VI  # noqa: E402
from blackbirds.models.sir import SIR  # noqa: E402
from blackbirds.mpi_setup import mpi_comm, mpi_rank, mpi_size  # noqa: E402
from blackbirds.simulate import simulate_and_observe_model  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--timesteps", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5, help="per epoch")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--kl-samples", type=int, default=10_000)
    parser.add_argument("--horizon", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cuda: each rank takes the next GPU")
    parser.add_argument("--graph-seed", type=int, default=1)
    return parser.parse_args()


def make_flow(device: torch.device) -> torch.nn.Module:
    """Return the example's flow: 4 pairs of spline and linear layers over 3 parameters."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(4):
        layers.append(normflows.flows.AutoregressiveRationalQuadraticSpline(3, 2, 64))
        layers.append(normflows.flows.LULinearPermute(3))
    base = normflows.distributions.DiagGaussian(3, trainable=False)
    return normflows.NormalizingFlow(q0=base, flows=layers).to(device)


def place(wanted: str, rank: int) -> torch.device:
    if wanted != "cuda":
        return torch.device(wanted)
    return torch.device("cuda", rank % torch.cuda.device_count())


def timed(vi: VI) -> list[float]:
    """Have each epoch of a VI timed; return where the seconds will be."""
    seconds: list[float] = []
    step = vi.step

    def step_with_clock(data: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        begin = time.perf_counter()
        result = step(data)
        seconds.append(time.perf_counter() - begin)
        return result

    vi.step = step_with_clock
    return seconds


def train(args: argparse.Namespace) -> dict[str, Any] | None:
    """Run the example; return the record on rank 0."""
    device = place(args.device, mpi_rank)
    graph = networkx.watts_strogatz_graph(args.agents, 10, 0.1, seed=args.graph_seed)
    model = SIR(graph=graph, n_timesteps=args.timesteps, device=device)
    torch.manual_seed(0)
    truth = torch.full((3,), TRUE_RATE, device=device).log10()
    data = [seen.cpu() for seen in model.run_and_observe(truth)]
    data = [seen.to(device) for seen in mpi_comm.bcast(data, root=0)]

    def loss(params: torch.Tensor, data: list[torch.Tensor]) -> torch.Tensor:
        seen = simulate_and_observe_model(model, params, gradient_horizon=args.horizon)
        return torch.nn.functional.mse_loss(seen[0], data[0])

    flow = make_flow(device)
    torch.manual_seed(0)
    vi = VI(
        loss=loss,
        prior=torch.distributions.MultivariateNormal(
            torch.full((3,), -2.0, device=device), torch.eye(3, device=device)
        ),
        posterior_estimator=flow,
        optimizer=torch.optim.AdamW(flow.parameters(), lr=1e-3),
        w=100,
        n_samples_per_epoch=args.samples,
        n_samples_regularisation=args.kl_samples,
        device=device,
        progress_bar=False,
    )
    seconds = timed(vi)
    vi.run(data, n_epochs=args.epochs, max_epochs_without_improvement=float("inf"))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    peaks = mpi_comm.gather(peak_mb, root=0)
    if mpi_rank:
        return None
    with torch.no_grad():
        draws = flow.sample(10_000)[0]
    return {
        "what": f"blackbirds {importlib.metadata.version('blackbirds')}",
        "torch": torch.__version__,
        "ranks": mpi_size,
        **vars(args),
        "parameters": sum(weights.numel() for weights in flow.parameters()),
        "seconds_per_epoch": seconds,
        "seconds_per_epoch_median": statistics.median(seconds),
        "losses": dict(vi.losses_hist),
        "peak_memory_mb": peaks,
        "posterior_mean": draws.mean(0).tolist(),
        "posterior_std": draws.std(0).tolist(),
    }


def main() -> None:
    args = arguments()
    # blackbirds writes its weights into the working directory.
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        record = train(args)
        os.chdir("/")
    if record is not None:
        json.dump(record, sys.stdout)
        print()


if __name__ == "__main__":
    main()
