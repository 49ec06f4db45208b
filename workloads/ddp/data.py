"""The images, and which of them belong to this rank in each batch."""

import gzip
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from hpckit.parallel.errors import SetupError

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # from Debian's dataset-fashion-mnist
CLASSES = 10
HELD_OUT = 360  # of the 1,797 digits
SPLIT_SEED = 20  # which digits are held out does not depend on --seed


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Grey images in memory: bytes of shape (count, 1, height, width), and one label for each."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        """Return how many images there are."""
        return len(self.labels)

    def __getitem__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        """Return the chosen images, as numbers from 0 to 1, and their labels."""
        chosen = torch.tensor(index, dtype=torch.int64)
        return self.images[chosen].float() / 255, self.labels[chosen]

    def to(self, device: torch.device) -> "Images":
        """Return the same images on a device; Fashion-MNIST takes 47 MB there."""
        return Images(self.images.to(device), self.labels.to(device))


def load(name: str, limit: int | None = None) -> tuple[Images, Images]:
    """Return the training images (at most `limit`) and the held-out ones.

    Raises:
        SetupError: The data set is not there, or is not what it should be.
    """
    if name == "digits":
        train, held_out = _digits()
    else:
        folder = FASHION_MNIST if name == "fashion-mnist" else Path(name)
        if not folder.is_dir():
            advice = (
                "install it with 'apt-get install dataset-fashion-mnist'"
                if name == "fashion-mnist"
                else "give digits, fashion-mnist, or a folder that holds the four IDX files"
            )
            raise SetupError(f"--data {name}: there is no folder {folder}: {advice}")
        train, held_out = _idx_pair(folder, "train"), _idx_pair(folder, "t10k")
    return Images(train.images[:limit], train.labels[:limit]), held_out


def batches(sampler: "DistributedSampler[Tensor]", batch_size: int) -> list[list[int]]:
    """Return, for each global batch of the epoch, the images that are this rank's.

    DistributedSampler shuffles the images, the same way on every rank, and deals them out like
    cards: rank r of W gets positions r, r + W, r + 2W, ... Cutting those positions at multiples
    of the global batch size puts the same images into batch k for any number of ranks. A batch
    that does not divide evenly gives some ranks one image less, perhaps none.

    To give all ranks equally many, the sampler repeats images past the end. We leave these out:
    they would count twice.
    """
    total = len(sampler.dataset)  # type: ignore[arg-type]  # ours has a length
    shares: list[list[int]] = [[] for _ in range(math.ceil(total / batch_size))]
    for turn, index in enumerate(sampler):
        position = sampler.rank + turn * sampler.num_replicas
        if position < total:
            shares[position // batch_size].append(index)  # type: ignore[arg-type]
    return shares


def _digits() -> tuple[Images, Images]:
    """Read scikit-learn's handwritten digits and hold out 360 of them, always the same."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  # slow, and for digits only
    except ImportError as error:
        advice = "install it with 'pip install scikit-learn', or use --data fashion-mnist"
        raise SetupError(f"--data digits: scikit-learn is not here: {advice}") from error
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    # The pixels go from 0 to 16; stretch them to bytes, as the IDX files have.
    images = torch.from_numpy(pixels * (255 / 16)).round().to(torch.uint8).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(labels).long()
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return Images(images[train], targets[train]), Images(images[held_out], targets[held_out])


def _idx_pair(folder: Path, part: str) -> Images:
    """Read the images and the labels of one part, train or t10k."""
    images = _idx(folder, f"{part}-images-idx3-ubyte", dimensions=3)
    labels = _idx(folder, f"{part}-labels-idx1-ubyte", dimensions=1)
    if len(images) != len(labels) or not len(labels):
        raise SetupError(f"{folder}: {part} has {len(images)} images but {len(labels)} labels")
    if labels.max() >= CLASSES:
        raise SetupError(f"{folder}: {part} has label {labels.max()}, but labels must be 0 to 9")
    return Images(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).long())


def _idx(folder: Path, name: str, dimensions: int) -> np.ndarray:
    """Read an IDX file of bytes, compressed or not: http://yann.lecun.com/exdb/mnist/."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.exists() and not packed.exists():
        raise SetupError(f"{folder} has neither {name} nor {name}.gz: four IDX files must be there")
    path = plain if plain.exists() else packed
    try:
        content = plain.read_bytes() if path is plain else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError) as error:
        raise SetupError(f"{path} cannot be read: {error}") from error
    # Header: two zeros, 8 for bytes, the number of dimensions, then each size in 4 bytes.
    start = 4 + 4 * dimensions
    sizes = np.frombuffer(content[4:start], ">i4") if len(content) >= start else np.array([-1])
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) - start != math.prod(
        sizes.tolist()
    ):
        raise SetupError(f"{path} is not a whole IDX file of bytes in {dimensions} dimensions")
    return np.frombuffer(bytearray(content), np.uint8, offset=start).reshape(sizes)
