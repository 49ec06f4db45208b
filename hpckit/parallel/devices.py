"""Which devices a program uses: words such as `GPU:*`, `cuda:0` or `cpu:4` to replicas.

A replica is one copy of a model. Most often it has a device of its own; several may share one, so
that a machine without GPUs, or with one, can run what is written for many.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from hpckit.parallel.errors import SetupError

Spec = str | torch.device | Sequence["str | torch.device"] | None
_MOST_REPLICAS = 1024
_SHARED = re.compile(r"(?P<device>.+?)\s*x\s*(?P<count>\d+)", re.ASCII)
_CPUS = re.compile(r"cpu:(?P<count>\d+)", re.ASCII)
# Of fnmatch's patterns: what can stand for the number of a device, and nothing longer.
_GPU = re.compile(r"(?:gpu|cuda):(?P<index>\d+|[\d*?\[\]!,-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a model; `number` counts from 0, which is the leading one."""

    number: int
    device: torch.device

    def __str__(self) -> str:
        return f"replica {self.number} on {self.device}"


def find_replicas(spec: Spec = None, *, default: str = "first") -> tuple[Replica, ...]:
    """Return the replicas that words mean, in their order; the first leads.

    Args:
        spec: None, a word, a device, or several of them:
            `cuda:0` or `GPU:1`: one device; `cuda`: the first; letter case does not matter.
            `GPU:*`, `GPU:[0-3]`, `GPU:?`, or `GPU`: all that match. The whole number must match:
            `GPU:1` is never GPU 10.
            `cpu`: the CPU; `cpu:4`: four logical replicas that share the CPU.
            `cuda:0 x 2`: two replicas that share a GPU.
            A device named twice counts once, except for replicas that are meant to share it.
        default: what None means: `first` (the first GPU, else the CPU) or `all` (all GPUs, else
            the CPU).

    Raises:
        SetupError: a word is none of these, or nothing here matches it.
    """
    if spec is None:
        spec = _default(default)
    words = [spec] if isinstance(spec, str | torch.device) else list(spec)
    if not words:
        raise SetupError(f"No device is named. {available()}")
    devices = list(_distinct(_meant(str(word)) for word in words))
    if len(devices) > _MOST_REPLICAS:
        raise SetupError(
            f"{len(devices)} replicas are more than the {_MOST_REPLICAS} there can be."
        )
    return tuple(Replica(number, device) for number, device in enumerate(devices))


def available() -> str:
    """Return in a sentence what devices there are."""
    count = torch.cuda.device_count()
    if not count:
        return "Available: cpu (this machine has no GPU that torch can use)."
    names = (f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in range(count))
    return f"Available: {', '.join(names)}, cpu."


def _default(word: str) -> str:
    if word not in ("first", "all"):
        raise SetupError(f"default is {word!r}, must be 'first' or 'all'.")
    if not torch.cuda.device_count():
        return "cpu"
    return "GPU:*" if word == "all" else "cuda:0"


def _meant(word: str) -> tuple[bool, tuple[torch.device, ...]]:
    """Return the devices of one word, and whether replicas are meant to share one."""
    plain = word.strip().lower()
    if match := _SHARED.fullmatch(plain):
        _, devices = _meant(match["device"])
        return True, tuple(
            device for device in devices for _ in range(_count(word, match["count"]))
        )
    if match := _CPUS.fullmatch(plain):
        return True, (torch.device("cpu"),) * _count(word, match["count"])
    if plain == "cpu":
        return False, (torch.device("cpu"),)
    if plain in ("gpu", "gpus"):
        plain = "gpu:*"
    if plain == "cuda":
        plain = "cuda:0"
    if match := _GPU.fullmatch(plain):
        return False, _gpus(word, match["index"])
    raise SetupError(
        f"{word!r} is no device. Write cpu, cpu:4, cuda:0, GPU:1, GPU:* or GPU:[0-3]. {available()}"
    )


def _gpus(word: str, pattern: str) -> tuple[torch.device, ...]:
    indices = range(torch.cuda.device_count())
    found = tuple(
        torch.device("cuda", index)
        for index in indices
        if (int(pattern) == index if pattern.isdecimal() else fnmatchcase(str(index), pattern))
    )
    if not found:
        raise SetupError(f"No device matches {word!r}. {available()}")
    return found


def _count(word: str, text: str) -> int:
    count = int(text)
    if not 1 <= count <= _MOST_REPLICAS:
        raise SetupError(f"{word!r} asks for {count} replicas; there can be 1 to {_MOST_REPLICAS}.")
    return count


def _distinct(
    groups: Iterable[tuple[bool, tuple[torch.device, ...]]],
) -> Iterator[torch.device]:
    seen: set[torch.device] = set()
    for shared, devices in groups:
        for device in devices:
            if shared or device not in seen:
                yield device
            seen.add(device)
