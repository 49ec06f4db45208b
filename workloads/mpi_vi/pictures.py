"""Pictures of a fit, with matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from problems import Problem

_TRUTH = {"color": "tab:red", "linewidth": 1.2}


def loss_curve(losses: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw loss, regularisation and total over the epochs."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name in ("loss", "regularisation", "total"):
        epochs = range(1, len(losses[name]) + 1)
        axes.plot(epochs, losses[name], label=name, linewidth=1)
    axes.set(xlabel="epoch", yscale="log" if min(map(min, losses.values())) > 0 else "linear")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def corner(samples: np.ndarray, problem: Problem, path: Path) -> None:
    """Draw each parameter's posterior, and each pair's, with the truth in red."""
    names, truth = problem.parameters, problem.truth.cpu().numpy()
    dim = len(names)
    figure = Figure(figsize=(2.4 * dim + 1, 2.4 * dim + 0.6), layout="constrained")
    grid = figure.subplots(dim, dim, squeeze=False)
    low, high = np.quantile(samples, [0.002, 0.998], axis=0)
    low, high = np.minimum(low, truth) - 0.1, np.maximum(high, truth) + 0.1
    for row in range(dim):
        for column in range(dim):
            axes = grid[row, column]
            if column > row:
                axes.axis("off")
                continue
            _pair(axes, samples, truth, row, column, low, high)
            if row == dim - 1:
                axes.set_xlabel(names[column])
            if column == 0 and row > 0:
                axes.set_ylabel(names[row])
    figure.savefig(path, dpi=120)


def _pair(
    axes: Axes,
    samples: np.ndarray,
    truth: np.ndarray,
    row: int,
    column: int,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    span = (low[column], high[column])
    if row == column:
        axes.hist(samples[:, row], bins=50, range=span, density=True, color="tab:blue", alpha=0.7)
        axes.set_yticks([])
    else:
        ranges = [span, (low[row], high[row])]
        axes.hist2d(samples[:, column], samples[:, row], bins=50, range=ranges, cmap="Blues")
        axes.axhline(truth[row], **_TRUTH)
    axes.axvline(truth[column], **_TRUTH)
    axes.set_xlim(span)


def bands(predicted: Sequence[np.ndarray], problem: Problem, path: Path) -> None:
    """Draw what the posterior predicts: median, and bands of half and nine tenths of the runs."""
    figure = Figure(figsize=(5 * len(predicted), 3.6), layout="constrained")
    grid = figure.subplots(1, len(predicted), squeeze=False)[0]
    for axes, name, runs, seen in zip(
        grid, problem.observables, predicted, problem.data, strict=True
    ):
        times = np.arange(runs.shape[1])
        levels = np.quantile(runs, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        axes.fill_between(times, levels[0], levels[4], color="tab:blue", alpha=0.2, label="90 %")
        axes.fill_between(times, levels[1], levels[3], color="tab:blue", alpha=0.4, label="50 %")
        axes.plot(times, levels[2], color="tab:blue", label="median")
        axes.plot(times, seen.cpu().numpy(), label="observed", **_TRUTH)
        axes.set(xlabel="step", title=name)
    grid[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
