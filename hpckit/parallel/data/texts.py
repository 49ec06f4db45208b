"""Text as bytes, which are tokens of a vocabulary of 256: windows, each with the one after it."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hpckit.parallel.data.samples import Pair, Samples
from hpckit.parallel.errors import SetupError

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 lacks it

_HELD_OUT = 10  # the last tenth of a text
_ENDINGS = (".txt", ".md", ".rst")


class TextWindows(Samples):
    """Windows of `context` tokens; the target of each token is the one that follows it.

    Inputs and targets are views of one tensor of bytes. What is left at the end and does not fill
    a window is not used.

    Args:
        tokens: bytes, one dimension, at least context + 1.
        context: how many tokens a window has.
        stride: from the begin of a window to that of the next; None: `context`, so that no token
            is in two windows.

    Raises:
        ValueError: there is no window.
    """

    def __init__(self, tokens: Tensor, context: int, stride: int | None = None) -> None:
        self.tokens, self.context, self.stride = tokens, context, stride or context
        if context < 1 or self.stride < 1:
            raise ValueError(f"context is {context}, stride {stride}: both must be at least 1.")
        if len(tokens) <= context:
            raise ValueError(
                f"A text of {len(tokens)} tokens has no window of {context} and one token more."
            )
        windows = tokens.unfold(0, context + 1, self.stride)
        super().__init__(windows[:, :-1], windows[:, 1:])

    def ready(self, inputs: Tensor, targets: Tensor) -> Pair:
        """Return tokens as the whole numbers that embeddings and losses take."""
        return inputs.long(), targets.long()

    def _moved(self, move: Callable[[Tensor], Tensor]) -> "Self":
        # Not the views: as tensors of their own they would hold each token several times.
        return type(self)(move(self.tokens), self.context, self.stride)


@dataclass(frozen=True, kw_only=True)
class TextSets:
    """Windows of a text to train on and, from its end, windows held out."""

    name: str
    train: TextWindows
    held_out: TextWindows
    origin: str

    def describe(self) -> str:
        """Return the line that tells what a run trains on."""
        return (
            f"data: {self.name}, {len(self.train)} training and {len(self.held_out)} held-out "
            f"windows of {self.train.context} bytes, from {self.origin}"
        )

    def to(self, device: torch.device | str) -> "TextSets":
        """Return the same sets on a device."""
        return replace(self, train=self.train.to(device), held_out=self.held_out.to(device))


def byte_corpus(
    source: str | Path | Sequence[str | Path] | None = None,
    *,
    context: int = 128,
    limit: int | None = None,
) -> TextSets:
    """Return a text in windows; its last tenth is held out.

    Args:
        source: a text file, several of them, or a folder whose .txt, .md and .rst files are read
            in the order of their paths. None: the English help texts of this Python, about 450 kB,
            which differ from release to release.
        context: how many bytes a window has.
        limit: use only the first so many windows to train on.

    Raises:
        SetupError: a file is missing, or the text is too short for a window.
    """
    name, text, origin = _help_texts() if source is None else _files(source)
    if limit is not None and limit < 1:
        raise SetupError(f"limit is {limit}: at least one window must be left to train on")
    cut = len(text) - len(text) // _HELD_OUT
    if context < 1 or len(text) - cut <= context:
        longest = len(text) - cut - 1
        other = f", or a context of 1 to {longest}" if longest >= 1 else ""
        raise SetupError(
            f"{name} has {len(text)} bytes, {len(text) - cut} of them held out: too few for "
            f"windows of {context}: give more text{other}"
        )
    tokens = torch.from_numpy(np.frombuffer(bytearray(text), np.uint8))
    kept = cut if limit is None else min(cut, limit * context + 1)
    return TextSets(
        name=name,
        train=TextWindows(tokens[:kept], context),
        held_out=TextWindows(tokens[cut:], context),
        origin=f"{origin} (no SHA-256 is known)",
    )


def _help_texts() -> tuple[str, bytes, str]:
    release = ".".join(map(str, sys.version_info[:3]))
    try:
        topics = import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise SetupError(
            f"the help texts of this Python ({release}) are not installed: give text files"
        ) from error
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    return "python-help", text, f"pydoc_data.topics of Python {release}"


def _files(source: str | Path | Sequence[str | Path]) -> tuple[str, bytes, str]:
    sources = [source] if isinstance(source, str | Path) else list(source)
    paths = [path for one in sources for path in _texts(Path(one).expanduser())]
    try:
        text = b"\n".join(path.read_bytes() for path in paths)
    except OSError as error:
        raise SetupError(f"{error.filename} cannot be read: {error.strerror}") from error
    name = str(sources[0]) if len(sources) == 1 else f"{len(sources)} texts"
    files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    return name, text, f"{files}, {len(text)} bytes"


def _texts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    if not found:
        raise SetupError(f"{path} holds no {', '.join(_ENDINGS)} file: name the files themselves")
    return found
