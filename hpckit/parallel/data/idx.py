"""Folders with the four IDX files of MNIST, Fashion-MNIST and their like, packed or plain."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from hpckit.parallel.data.checksums import check
from hpckit.parallel.data.images import Images, ImageSets
from hpckit.parallel.errors import SetupError


def read_folder(folder: Path, *, name: str, origin: str, known: str | None = None) -> ImageSets:
    """Return the images of the parts `train` and `t10k`; the latter are held out.

    Args:
        folder: holds `train-images-idx3-ubyte`, `t10k-labels-idx1-ubyte` and so on, or each with
            `.gz` at the end.
        name: what to call the set.
        origin: where it comes from, for its description.
        known: the set whose checksums the files must have; None compares none.

    Raises:
        SetupError: a file is missing, torn or no IDX file; or they do not fit together.
    """
    train, held_out = (_part(folder, part, known) for part in ("train", "t10k"))
    shapes = [tuple(images.images.shape[2:]) for images in (train, held_out)]
    if shapes[0] != shapes[1]:
        raise SetupError(
            f"{folder}: train has images of shape {shapes[0]} but t10k of {shapes[1]}: "
            "these files are not of one set"
        )
    classes = 1 + max(int(images.labels.max()) for images in (train, held_out))
    return ImageSets(name=name, train=train, held_out=held_out, classes=classes, origin=origin)


def _part(folder: Path, part: str, known: str | None) -> Images:
    images = _read(folder, f"{part}-images-idx3-ubyte", known, dimensions=3)
    labels = _read(folder, f"{part}-labels-idx1-ubyte", known, dimensions=1)
    if len(images) != len(labels):
        raise SetupError(f"{folder}: {part} has {len(images)} images but {len(labels)} labels")
    if not images.numel():
        raise SetupError(f"{folder}: {part} has no image, its shape is {tuple(images.shape)}")
    return Images(images.unsqueeze(1), labels.long())


def _read(folder: Path, name: str, known: str | None, *, dimensions: int) -> torch.Tensor:
    """Read an IDX file of bytes: http://yann.lecun.com/exdb/mnist/."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.exists() and not packed.exists():
        raise SetupError(f"{folder} has neither {name} nor {name}.gz: four IDX files must be there")
    path = plain if plain.exists() else packed
    try:
        content = plain.read_bytes() if path is plain else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise SetupError(f"{path} cannot be read: {error}: get it again") from error
    # Header: two zeros, 8 for bytes, the number of dimensions, then each size in 4 bytes.
    start = 4 + 4 * dimensions
    sizes = np.frombuffer(content[4:start], ">u4").tolist() if len(content) >= start else [-1]
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) - start != math.prod(sizes):
        raise SetupError(
            f"{path} is not a whole IDX file of bytes in {dimensions} dimensions: get it again"
        )
    if known:
        check(f"{known} {name}", content, str(path))
    # A copy, since torch must not write into bytes that Python takes for constant.
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].reshape(sizes)
