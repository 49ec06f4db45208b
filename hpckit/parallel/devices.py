"""Which devices a program uses: words such as `GPU:*`, `cuda:0` or `cpu:4` to replicas.

A replica is one copy of a model. Most often it has a device of its own; several may share one, so
that a machine without GPUs, or with one, can run what is written for many.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

import hpckit.parallel.torch_versions  # noqa: F401  # refuses an older torch
from hpckit.parallel.errors import SetupError

Word = str | re.Pattern[str] | torch.device
Spec = Word | Sequence[Word] | None
# Words that are not lists of words.
_ONE = (str, bytes)
_MOST_REPLICAS = 1024
_SHARED = re.compile(r"(?P<device>.+?)\s*x\s*(?P<count>\d+)", re.ASCII | re.IGNORECASE)
_CPU = re.compile(r"cpu:(?P<number>\d+)", re.ASCII)
# Of fnmatch's patterns: what can stand for the number of a device, and nothing longer.
_GPU = re.compile(r"(?:gpu|cuda):(?P<index>\d+|[\d*?\[\]!,-]+)", re.ASCII)
# What TensorFlow writes before a device: /gpu:0, /device:GPU:0, /job:localhost/.../device:GPU:0.
_TENSORFLOW = re.compile(r"(?:/(?:job|replica|task):\w+)*/(?:device:)?(?=[cg]pu\b)", re.IGNORECASE)
# A character that only a regular expression has.
_EXPRESSION = re.compile(r"[\\|(){}+^$.]")


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a model; `number` counts from 0, which is the leading one."""

    number: int
    device: torch.device

    def __str__(self) -> str:
        return f"replica {self.number} on {self.device}"


def find_replicas(spec: Spec = None, *, default: str = "first") -> tuple[Replica, ...]:
    r"""Return the replicas that words mean, in their order; the first leads.

    Args:
        spec: None, a word, a device, or several of them:
            `cuda:0`, `GPU:1` or, as TensorFlow writes it, `/gpu:1`: one device; `cuda`: the first;
            letter case does not matter.
            `GPU:*`, `GPU:[0-3]`, `GPU:?`, or `GPU`: all that match. The whole number must match:
            `GPU:1` is never GPU 10.
            `GPU:\d`, `GPU:(0|2)`, `re.compile("GPU:[02]")`: a regular expression of the whole
            name, `GPU:0` or `cuda:0`; `GPU:1|cuda:2`: both. A compiled one may mean the CPU,
            `CPU:0`, where no GPU matches it.
            `cpu`: the CPU; `cpu:4`: four logical replicas that share the CPU.
            `cpu:0`: the CPU by TensorFlow's name. In a list with it, or with a `/` before them,
            `cpu:1`, `cpu:2` and so on are names too, of logical CPUs with one replica each.
            `cuda:0 x 2`: two replicas that share a GPU.
            A device named twice counts once, except for replicas that are meant to share it.
        default: what None means: `first` (the first GPU, else the CPU) or `all` (all GPUs, else
            the CPU: with as many logical replicas as the job has asked for GPUs). $HPCKIT_DEVICE,
            which is cuda or cpu, says which of the two a job has.

    Raises:
        SetupError: a word is none of these, or nothing here matches it; or $HPCKIT_DEVICE is cuda,
            and torch sees no GPU.
    """
    if spec is None:
        spec = _default(default)
    words = list(spec) if isinstance(spec, Iterable) and not isinstance(spec, _ONE) else [spec]
    for word in words:
        if not isinstance(word, str | re.Pattern | torch.device):
            raise SetupError(_no_name(word))
    if not words:
        raise SetupError(f"No device is named. {available()}")
    devices = list(_distinct(_meant(word) for word in _spelt_out(words)))
    if len(devices) > _MOST_REPLICAS:
        raise SetupError(
            f"{len(devices)} replicas are more than the {_MOST_REPLICAS} there can be."
        )
    return tuple(Replica(number, device) for number, device in enumerate(devices))


def replicas_of(
    devices: Spec | Sequence[Replica] = None, *, default: str = "first"
) -> tuple[Replica, ...]:
    """Return the replicas that words, devices or replicas mean.

    Words are those of `find_replicas`. Several `torch.device`, as replicas have them, are one
    replica each, also where they are equal.

    Raises:
        SetupError: a word means nothing here, or there is none.
    """
    if not isinstance(devices, Iterable) or isinstance(devices, _ONE):
        return find_replicas(devices, default=default)
    found = [one.device if isinstance(one, Replica) else one for one in devices]
    places = [one for one in found if isinstance(one, torch.device)]
    if not found or len(places) < len(found):
        return find_replicas(found, default=default)
    return tuple(Replica(number, place) for number, place in enumerate(places))


def device_of_rank(local_rank: int, word: str | None = None) -> torch.device:
    """Return the device of one rank of several, of which each has one.

    Args:
        local_rank: its number on its host, from 0.
        word: as `find_replicas` knows it; where several devices match, the one with the rank's
            number. None: $HPCKIT_DEVICE, which is cuda or cpu, decides; else a GPU if there is one.

    Raises:
        SetupError: there is no such device.
    """
    if word is None:
        word = "GPU:*" if _kind() == "cuda" else "cpu"
    if (other := _of_torch_alone(word)) is not None:
        return other
    (meant,) = _spelt_out([word])
    _, devices = _meant(meant)
    # The remainder is for launchers that show each rank only its own GPU, as number 0.
    return _plain(devices[local_rank % len(devices)])


def _of_torch_alone(word: str) -> torch.device | None:
    """Return a device of a kind that only torch has a word for, such as xpu:0 or mps."""
    try:
        device = torch.device(word)
    except RuntimeError:
        return None
    return None if device.type in ("cuda", "cpu") else device


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
    if _kind() == "cpu":
        return f"cpu:{_replicas_of_job()}" if word == "all" else "cpu"
    return "GPU:*" if word == "all" else "cuda:0"


def _kind() -> str:
    """Return cuda or cpu, as $HPCKIT_DEVICE says, so that no job trains on CPUs beside its GPUs."""
    count = torch.cuda.device_count()
    word = os.environ.get("HPCKIT_DEVICE") or ("cuda" if count else "cpu")
    if word not in ("cuda", "cpu"):
        raise SetupError(f"HPCKIT_DEVICE is {word!r}: it must be cuda or cpu")
    if word == "cuda" and not count:
        raise SetupError(
            "HPCKIT_DEVICE is cuda but torch sees no GPU: "
            "ask for a GPU, install a CUDA build of torch, or set HPCKIT_DEVICE=cpu"
        )
    return word


def _replicas_of_job() -> int:
    """Return how many replicas a job of hpckit stands in for GPUs with; 1 outside of one."""
    text = os.environ.get("HPCKIT_CPU_REPLICAS", "1")
    if not (text.isascii() and text.isdecimal()):
        raise SetupError(f"HPCKIT_CPU_REPLICAS is {text!r}, must be a number.")
    return _count(f"HPCKIT_CPU_REPLICAS={text}", text)


def _spelt_out(words: Sequence[Word]) -> list[Word]:
    """Return words without what TensorFlow writes before them, and its CPUs as devices."""
    texts = [word.strip() if isinstance(word, str) else word for word in words]
    named = any(isinstance(text, str) and text.lower() == "cpu:0" for text in texts)
    found: list[Word] = []
    for text in texts:
        if not isinstance(text, str):
            found.append(text)
            continue
        short = _TENSORFLOW.sub("", text, count=1) if text.startswith("/") else text
        match = _CPU.fullmatch(short.lower())
        if match and (named or short != text):
            found.append(torch.device("cpu", _number(text, match["number"])))
        else:
            found.append(short)
    return found


def _meant(word: Word) -> tuple[bool, tuple[torch.device, ...]]:
    """Return the devices of one word, and whether replicas are meant to share one."""
    if isinstance(word, re.Pattern):
        return False, _matching(word.pattern, word)
    if isinstance(word, torch.device):
        if word.type == "cpu":
            return False, (torch.device("cpu", word.index or 0),)
        word = str(word)
    if match := _SHARED.fullmatch(word.strip()):
        _, devices = _meant(match["device"])
        return True, tuple(
            device for device in devices for _ in range(_count(word, match["count"]))
        )
    plain = word.strip().lower()
    if match := _CPU.fullmatch(plain):
        return True, (torch.device("cpu", 0),) * _count(word, match["number"])
    if plain == "cpu":
        return False, (torch.device("cpu", 0),)
    if plain in ("gpu", "gpus"):
        plain = "gpu:*"
    if plain == "cuda":
        plain = "cuda:0"
    if match := _GPU.fullmatch(plain):
        return False, _gpus(word, match["index"])
    if _EXPRESSION.search(word):
        return False, _of_expression(word.strip())
    raise SetupError(_no_device(word))


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


def _of_expression(text: str) -> tuple[torch.device, ...]:
    """Return the devices of a regular expression; each side of a plain `|` must mean some."""
    sides = text.split("|")
    if len(sides) > 1 and "(" not in text:
        return tuple(device for side in sides for device in _meant(side)[1])
    try:
        return _matching(text, re.compile(text))
    except re.error as error:
        raise SetupError(f"{_no_device(text)} As a regular expression: {error}.") from None


def _matching(text: str, pattern: re.Pattern[str]) -> tuple[torch.device, ...]:
    """Return the GPUs whose whole name matches; the CPU, if it does and no GPU does."""
    whole = re.compile(pattern.pattern, pattern.flags | re.IGNORECASE)

    def matches(*names: str) -> bool:
        return any(whole.fullmatch(name) for name in names)

    found = tuple(
        torch.device("cuda", index)
        for index in range(torch.cuda.device_count())
        if matches(f"GPU:{index}", f"cuda:{index}")
    )
    if not found and matches("CPU:0", "CPU"):
        found = (torch.device("cpu", 0),)
    if not found:
        raise SetupError(f"No device matches {text!r}. {available()}")
    return found


def _no_name(given: object) -> str:
    number = given if isinstance(given, int) and not isinstance(given, bool) else 0
    name = f"cuda:{max(number, 0)}"
    cpus = f"for {number} replicas on the CPU, cpu:{number}" if number > 0 else "for the CPU, cpu"
    return f"{given!r} is not a device. Write its name, such as {name}; {cpus}. {available()}"


def _no_device(word: str) -> str:
    return (
        f"{word!r} is not a device. Write cpu, cpu:4, cuda:0, GPU:1, GPU:*, GPU:[0-3] or a regular "
        f"expression such as GPU:\\d. {available()}"
    )


def _number(word: str, text: str) -> int:
    """Return the number of a logical CPU; torch has no room for larger ones."""
    if int(text) > 127:
        raise SetupError(f"{word!r} names logical CPU {int(text)}; there can be 0 to 127.")
    return int(text)


def _count(word: str, text: str) -> int:
    count = int(text)
    if not 1 <= count <= _MOST_REPLICAS:
        raise SetupError(f"{word!r} asks for {count} replicas; there can be 1 to {_MOST_REPLICAS}.")
    return count


def _distinct(
    groups: Iterable[tuple[bool, tuple[torch.device, ...]]],
) -> Iterator[torch.device]:
    """Return each device once, but for replicas that are meant to share it."""
    seen: set[torch.device] = set()
    for shared, devices in groups:
        for device in devices:
            if shared or device not in seen:
                yield _plain(device)
            seen.add(device)


def _plain(device: torch.device) -> torch.device:
    """Return a device as torch has it: one CPU, whatever number it was named by."""
    return torch.device("cpu") if device.type == "cpu" else device
