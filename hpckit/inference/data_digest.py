"""Short digests of plain data, by which ranks tell whether they have the same.

Values and their precision count. Where they are (CPU or GPU), and whether in a tensor or in numpy's
array, in a list or a tuple, does not.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

_SIZE = 7  # bytes, so that a digest fits a signed number of 64 bits
_DEEPEST = 50
# What torch, numpy and pandas raise for values that they cannot turn into bytes.
_FAULTS = (TypeError, ValueError, RuntimeError, AttributeError, BufferError)


class _UnknownKindError(TypeError):
    """A value that is not plain data."""


def digest(value: object) -> int | None:
    """Return a number above 0 that only equal values have, to all practical purposes.

    Args:
        value: numbers, texts, None, arrays, tensors, pandas' frames and series; also in tuples,
            lists, sets, dicts and dataclasses, which may stand in each other.

    Returns:
        None if there is anything else in it, so that nothing can be said.
    """
    try:
        return int.from_bytes(_bytes(value, 0)[:_SIZE], "big") + 1
    except _FAULTS:
        return None


def _bytes(value: Any, depth: int) -> bytes:  # noqa: ANN401  # whatever a user's data are
    """Return a digest of a value and of its kind.

    Raises:
        _UnknownKindError: it is not plain, or has too much inside each other, as what is in itself.
    """
    if depth > _DEEPEST:
        raise _UnknownKindError
    kind, content = _content(value, lambda part: _bytes(part, depth + 1))
    return hashlib.blake2b(kind.encode() + b"\0" + content, digest_size=16).digest()


def _content(value: Any, of: Callable[[Any], bytes]) -> tuple[str, bytes]:  # noqa: ANN401
    """Return a word for the kind of a value, and its content in bytes; `of` digests a part."""
    if isinstance(value, np.number | np.bool_):  # one rank may have it of a file, another of Python
        value = value.item()
    if isinstance(value, np.ndarray | np.generic):
        return _of_array(np.asarray(value), of)
    if value is None or isinstance(value, bool | int | float | complex | str):
        return type(value).__name__, repr(value).encode("utf-8", "surrogateescape")
    if isinstance(value, bytes | bytearray):
        return "bytes", bytes(value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value, of)
    if isinstance(value, Mapping):  # in any order
        pairs = sorted(of(key) + of(part) for key, part in value.items())
        return f"dict of {len(pairs)}", b"".join(pairs)
    if isinstance(value, Set):
        return f"set of {len(value)}", b"".join(sorted(map(of, value)))
    if isinstance(value, tuple | list):
        return f"list of {len(value)}", b"".join(map(of, value))
    return _of_object(value, of)


def _of_array(array: np.ndarray[Any, Any], of: Callable[[Any], bytes]) -> tuple[str, bytes]:
    kind = f"array {array.shape} {array.dtype.str}"
    if array.dtype.hasobject:
        return kind, b"".join(map(of, array.reshape(-1).tolist()))
    # The sum at once, so that a large array has no second copy in memory.
    plain = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return kind, hashlib.blake2b(plain.data).digest()


def _of_tensor(tensor: torch.Tensor, of: Callable[[Any], bytes]) -> tuple[str, bytes]:
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        pairs: torch.Tensor = tensor.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        return f"sparse {tuple(tensor.shape)}", of(pairs.indices()) + of(pairs.values())
    plain = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    try:
        return _of_array(plain.numpy(), of)
    except TypeError:  # numpy has no bfloat16
        kind = f"tensor {tuple(tensor.shape)} {tensor.dtype}"
        return kind, of(plain.reshape(-1).view(torch.uint8))


def _of_object(value: Any, of: Callable[[Any], bytes]) -> tuple[str, bytes]:  # noqa: ANN401
    pandas = sys.modules.get("pandas")  # whose data are given has it loaded
    if pandas is not None and isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, number].to_numpy() for number in range(value.shape[1])]
        return "frame", of([value.index.to_numpy(), list(value.columns), *columns])
    if pandas is not None and isinstance(value, pandas.Series | pandas.Index):
        index = value.index.to_numpy() if isinstance(value, pandas.Series) else None
        return "series", of([index, value.to_numpy()])
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return f"dataclass {type(value).__qualname__}", of(parts)
    raise _UnknownKindError
