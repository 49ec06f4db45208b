"""What a fit leaves behind: draws of the posterior, figures in words, and pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from problems import Problem

from hpckit.inference.noise import noise_of, sample_seed
from hpckit.inference.vi import VI
from hpckit.parallel.ranks import say

# Simulations of draws of the posterior, for the bands of the predictive picture.
_PREDICTED = 100
_AT_ONCE = 20
_STREAM = -4


def report(vi: VI, problem: Problem, out: Path, *, draws: int, pictures: bool) -> None:
    """Say and save what was found."""
    samples, log_q = vi.sample_posterior(draws)
    predicted = predict(problem, samples[:_PREDICTED])
    samples, truth = samples.cpu(), problem.truth.cpu()
    arrays = {
        "samples": samples.numpy(),
        "log_q": log_q.cpu().numpy(),
        "truth": truth.numpy(),
        **{f"observed_{k}": row.cpu().numpy() for k, row in enumerate(problem.data)},
        **{f"predicted_{k}": row for k, row in enumerate(predicted)},
    }
    np.savez_compressed(out / "posterior.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub
    width = max(map(len, problem.parameters))
    say(f"{'posterior':{width}}   mean     sd   truth")
    for name, mean, sd, true in zip(
        problem.parameters, samples.mean(0), samples.std(0), truth, strict=True
    ):
        say(f"{name:{width}} {mean:6.3f} {sd:6.3f}  {true:6.3f}")
    epochs, dropped = vi.history.epochs, vi.history.dropped
    lost = f", {dropped} samples gave no number and were left out" if dropped else ""
    say(f"best total {vi.best_loss:.6g} of {epochs} epochs{lost}")
    say(f"{draws} draws of the posterior are in posterior.npz")
    if pictures:
        _draw(vi, problem, samples, predicted, out)


def predict(problem: Problem, samples: torch.Tensor) -> list[np.ndarray]:
    """Return what the model shows for samples (B, P): a series (B, T + 1) per observable."""
    parts: list[list[np.ndarray]] = []
    for start in range(0, len(samples), _AT_ONCE):
        some = samples[start : start + _AT_ONCE]
        seeds = [sample_seed(_STREAM, 0, start + row) for row in range(len(some))]
        with torch.no_grad(), noise_of(seeds, device=some.device):
            parts.append([row.cpu().numpy() for row in problem.model.run_and_observe(some)])
    return [np.concatenate(rows) for rows in zip(*parts, strict=True)]


def _draw(
    vi: VI, problem: Problem, samples: torch.Tensor, predicted: Sequence[np.ndarray], out: Path
) -> None:
    try:
        import matplotlib  # noqa: PLC0415  # a run without pictures does not need it
    except ImportError:
        say("no pictures: matplotlib is not here ('pip install matplotlib')")
        return
    matplotlib.use("Agg")
    import pictures  # noqa: PLC0415

    pictures.loss_curve(vi.losses_hist, out / "loss.png")
    pictures.corner(samples.numpy(), problem, out / "posterior.png")
    pictures.bands(predicted, problem, out / "predictive.png")
    say("pictures: loss.png, posterior.png, predictive.png")
