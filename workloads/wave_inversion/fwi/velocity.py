"""Velocity models: made or read, smoothed, and kept between bounds. Metres per second, [nx, nz]."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fwi.packages import need
from hpckit.parallel.errors import SetupError

Model = NDArray[np.float64]
Shape = tuple[int, int]
_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class Bounds:
    """Velocities between two limits, as a sigmoid of parameters that have none."""

    low: float
    high: float

    def check(self, model: Model, name: str) -> None:
        """Refuse a model that is not strictly inside.

        Raises:
            SetupError: it is not, or the limits are the wrong way round.
        """
        if not self.low < self.high:
            raise SetupError(f"--v-min {self.low:g} is not below --v-max {self.high:g}")
        if not np.isfinite(model).all():
            bad = int((~np.isfinite(model)).sum())
            raise SetupError(f"{name}: {bad} of {model.size} velocities are not finite numbers")
        slowest, fastest = float(model.min()), float(model.max())
        if not self.low < slowest <= fastest < self.high:
            raise SetupError(
                f"{name}: its velocities, {slowest:g} to {fastest:g} m/s, are not inside --v-min "
                f"{self.low:g} and --v-max {self.high:g}: move these apart (or is it in km/s, or "
                "its --shape wrong?)"
            )

    def parameters(self, velocity: Tensor) -> Tensor:
        """Return the parameters of velocities."""
        return torch.logit((velocity - self.low) / (self.high - self.low))

    def velocity(self, parameters: Tensor) -> Tensor:
        """Return the velocities of parameters."""
        return self.low + (self.high - self.low) * torch.sigmoid(parameters)

    def slope(self, parameters: Tensor) -> Tensor:
        """Return the derivative of velocities by parameters."""
        share = torch.sigmoid(parameters)
        return (self.high - self.low) * share * (1 - share)


def layered(shape: Shape, seed: int) -> Model:
    """Make layers under a dip, cut by a fault; faster with depth, 1500 m/s on top."""
    nx, nz = shape
    random = np.random.default_rng(seed)
    count = max(4, nz // 8)
    speeds = np.sort(random.uniform(1550, 2250, count)) + random.normal(0, 50, count)
    tops = np.sort(random.uniform(0.1, 1, count - 1)) * nz
    x, z = np.arange(nx)[:, None], np.arange(nz)[None, :]
    throw = (x > 0.6 * nx - 0.3 * z) * 0.07 * nz
    depth = z + 0.12 * nz * (x / nx - 0.5) + throw
    model = np.clip(speeds[np.searchsorted(tops, depth.ravel())], 1500, 2400).reshape(shape)
    model[:, : min(5, nz)] = 1500
    return model


def read_model(path: Path, flag: str, shape: Shape | None, window: Shape | None) -> Model:
    """Read a model from .npy, or from raw float32 with the depth fastest, as Marmousi's is.

    Args:
        path: the file.
        flag: the argument that named it.
        shape: distance and depth in cells; a .npy file knows its own.
        window: how many cells of it to use, from the first on.

    Raises:
        SetupError: it is not there, or of another size.
    """
    name = f"{flag} {path}"
    try:
        if path.suffix == ".npy":
            model = np.load(npy_file(path), allow_pickle=False)
        else:
            model = np.fromfile(path, dtype="<f4")
    except (OSError, ValueError, EOFError) as error:
        raise SetupError(f"{name} cannot be read: {error}") from error
    if path.suffix != ".npy":
        model = _shaped(model, path.stat().st_size, name, shape)
    if model.ndim != 2 or not model.size or model.dtype.kind not in "fiu":
        raise SetupError(f"{name} holds {model.dtype} of shape {model.shape}, not NX,NZ numbers")
    if path.suffix == ".npy" and shape and model.shape != shape:
        raise SetupError(f"{name} has {_size(model.shape)} cells, not --shape {_size(shape)}")
    if window and (window[0] > model.shape[0] or window[1] > model.shape[1]):
        raise SetupError(f"--window {_size(window)} is larger than the {_size(model.shape)} cells")
    if window:
        model = model[: window[0], : window[1]]
    return np.ascontiguousarray(model, dtype=np.float64)


def npy_file(path: Path) -> Path:
    """Return a path whose file is one of numpy; of others numpy says to load them unsafely.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a file of numpy.
    """
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it is not a .npy file, as numpy.save writes it")
    return path


def _shaped(values: NDArray[np.float32], size: int, name: str, shape: Shape | None) -> Model:
    if shape is None:
        raise SetupError(f"{name} is read as raw float32: give its --shape NX,NZ, or a .npy file")
    if size != 4 * shape[0] * shape[1]:
        raise SetupError(
            f"{name} has {size} bytes; --shape {_size(shape)} needs {4 * shape[0] * shape[1]} of "
            "float32"
        )
    return values.reshape(shape)


def _size(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def smoothed(model: Model, cells: float) -> Model:
    """Return a model whose slowness is blurred by a Gaussian of that standard deviation.

    Raises:
        SetupError: it is far wider than the model, which would cost memory for one velocity.
    """
    if not cells:
        return model.copy()
    most = 10 * max(model.shape)
    if cells > most:
        raise SetupError(
            f"--smooth {cells:g} is far more than the {_size(model.shape)} cells of the model: "
            f"give at most {most}"
        )
    blurred = need("scipy.ndimage").gaussian_filter(1 / model, cells, mode="nearest")
    found: Model = 1 / blurred
    return found


def rms_difference(one: Model, other: Model) -> float:
    """Return the root of the mean squared difference, in m/s."""
    return float(np.sqrt(np.mean((one - other) ** 2)))
