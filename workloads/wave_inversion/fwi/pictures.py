"""The pictures of a run: velocity models side by side, the misfit's way down, a gradient."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwi.packages import need
from fwi.survey import Survey


def draw_models(path: Path, models: dict[str, NDArray[np.float64]], survey: Survey) -> None:
    """Draw models [nx, nz] below each other, all with the same colours."""
    low = min(float(model.min()) for model in models.values())
    high = max(float(model.max()) for model in models.values())
    figure = _figure(len(models), survey)
    for axes, (title, model) in zip(figure.axes, models.items(), strict=True):
        image = _image(axes, model, survey, cmap="viridis", vmin=low, vmax=high)
        axes.set_title(title)
    figure.axes[-1].set_xlabel("distance (m)")
    figure.colorbar(image, ax=figure.axes, label="velocity (m/s)", aspect=40)
    figure.savefig(path, dpi=120)


def draw_gradient(path: Path, gradient: NDArray[np.float64], survey: Survey) -> None:
    """Draw a gradient [nx, nz]; colours end at its 99th percentile, or shots would outshine all."""
    figure = _figure(1, survey)
    end = float(np.percentile(np.abs(gradient), 99)) or 1.0
    image = _image(figure.axes[0], gradient, survey, cmap="seismic", vmin=-end, vmax=end)
    figure.axes[0].set_title("gradient of the misfit")
    figure.axes[0].set_xlabel("distance (m)")
    figure.colorbar(image, ax=figure.axes, label="misfit per m/s")
    figure.savefig(path, dpi=120)


def draw_misfit(path: Path, evaluations: Sequence[tuple[float, float]]) -> None:
    """Draw the misfit of each gradient, one line per frequency."""
    figure = need("matplotlib.figure").Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for cutoff in dict.fromkeys(cutoff for cutoff, _ in evaluations):
        rows = [(at, value) for at, (one, value) in enumerate(evaluations, 1) if one == cutoff]
        label = f"below {cutoff:g} Hz" if cutoff else "all frequencies"
        axes.plot(*zip(*rows, strict=True), marker=".", label=label)
    axes.set(yscale="log", xlabel="gradients", ylabel="misfit / energy of the observed traces")
    axes.legend()
    figure.savefig(path, dpi=120)


def _figure(panels: int, survey: Survey) -> Any:  # noqa: ANN401  # matplotlib may be absent
    height = 6 * survey.nz / survey.nx + 0.5
    # A Figure of its own draws without a display, and leaves pyplot's settings alone.
    figure = need("matplotlib.figure").Figure(
        figsize=(8, max(panels * height + 0.5, 2.5)), layout="compressed"
    )
    figure.subplots(panels, 1, squeeze=False, sharex=True)
    return figure


def _image(axes: Any, values: NDArray[np.float64], survey: Survey, **colours: Any) -> Any:  # noqa: ANN401
    extent = (0, survey.nx * survey.dx, survey.nz * survey.dx, 0)
    axes.set_ylabel("depth (m)")
    return axes.imshow(values.T, extent=extent, aspect="equal", **colours)
