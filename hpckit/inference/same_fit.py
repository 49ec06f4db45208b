"""Whether all ranks fit the same: the same data, simulator and settings.

Each rank evaluates its share of the samples, and all take one step by the sum. If a rank compares
with data of its own, or simulates on a graph of its own, that sum means nothing, and nobody sees
it in the losses. So a fit begins with one small message of digests.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from hpckit.inference.contacts import Contacts
from hpckit.inference.data_digest import digest
from hpckit.inference.model import L2Loss, Model
from hpckit.parallel.errors import SetupError
from hpckit.parallel.mpi import Ranks

# How far, and among how many objects, a simulator is looked for in a loss.
_DEEPEST, _MOST = 6, 10_000
# Longer lists are data.
_LONGEST = 1000
_SHARE = (
    "Make this on rank 0 alone, as arrays, and give it to all: "
    "(array,) = ranks.share(lambda: [make_array()]), with the ranks of "
    "hpckit.inference.mpi_setup (see docs/mpi_vi.md)"
)
_SETTING = "Give all ranks the same"
_OFF = ". If it must differ, VI(check_ranks=False) does not compare"


def refuse_differences(
    ranks: Ranks, made: Mapping[str, object], settings: Mapping[str, object], more: str = _OFF
) -> None:
    """Check that all ranks have the same; all of them call this, with the same names in order.

    What has no digest on some rank is not compared.

    Args:
        ranks: all of them.
        made: what a script makes, by names such as "the data".
        settings: numbers and words, by their names.
        more: ends the error.

    Raises:
        SetupError: something differs; on all ranks.
    """
    if ranks.size == 1:
        return
    names = [*made, *settings]
    own = [digest(value) or 0 for value in (*made.values(), *settings.values())]
    table = torch.zeros(ranks.size, len(names), dtype=torch.int64)
    table[ranks.rank] = torch.tensor(own, dtype=torch.int64)
    table = ranks.add(table)  # a row of each rank, between zeros
    known = (table != 0).all(dim=0)
    differs = (table != table[0]) & known
    found = [name for name, other in zip(names, differs.any(dim=0).tolist(), strict=True) if other]
    if not found:
        return
    others = _numbers(differs.any(dim=1).nonzero().flatten().tolist())
    advice = _SHARE if any(name in made for name in found) else _SETTING
    raise SetupError(f"not the same on {others} as on rank 0: {', '.join(found)}. {advice}{more}")


def _numbers(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    told = ", ".join(map(str, ranks[:4]))
    return f"ranks {told}{', ...' if len(ranks) > 4 else ''}"


def simulators(
    loss: object, leave_out: Iterable[object] = ()
) -> tuple[dict[str, object], dict[str, object]]:
    """Return what of a loss's simulators must be equal on all ranks: what was made, and settings.

    Args:
        loss: looked through: attributes, closures, the global names that a function uses.
        leave_out: objects that are not looked at, such as the estimator.

    Returns:
        Both by their names, as `refuse_differences` takes them.
    """
    contacts: list[object] = []
    steps: list[object] = []
    horizons: list[object] = []
    weights: list[object] = []
    counted: set[nn.Module] = set()
    for one in _held(loss, {id(each) for each in leave_out}):
        if isinstance(one, Contacts):
            contacts.append((one.n_agents, one.starts_and_columns))
        if isinstance(one, Model):
            steps.append(getattr(one, "n_timesteps", None))
        if isinstance(one, L2Loss):
            horizons.append(one.gradient_horizon)
        if isinstance(one, nn.Module) and one not in counted:
            counted.update(one.modules())
            # No buffers: a simulator's may tell of its last run, which rank 0 alone has had.
            weights.append(dict(one.named_parameters()))
    made: dict[str, object] = {
        "the contacts of the simulator": contacts,
        "the weights of the networks in the loss": weights,
    }
    return made, {
        "the steps of the simulator": steps,
        "the gradient horizon of the loss": horizons,
    }


def shapes(module: nn.Module) -> dict[str, object]:
    """Return the shape and kind of each of a module's weights and buffers."""
    return {
        name: (tuple(tensor.shape), str(tensor.dtype))
        for name, tensor in module.state_dict().items()
    }


def optimizer_settings(optimizer: torch.optim.Optimizer) -> list[dict[str, object]]:
    """Return an optimizer's numbers, without the parameters."""
    return [
        {name: value for name, value in group.items() if name != "params"}
        for group in getattr(optimizer, "param_groups", [])  # a wrapper may not have them
    ]


def _held(root: object, seen: set[int]) -> Iterator[object]:
    """Yield an object and those that it holds, breadth first, each once; none is called."""
    level = [root]
    for _ in range(_DEEPEST):
        parts: list[object] = []
        for one in level:
            if id(one) in seen or len(seen) > _MOST:
                continue
            seen.add(id(one))
            yield one
            parts += _parts(one)
        level = parts


def _parts(one: Any) -> Iterable[object]:  # noqa: ANN401  # whatever a loss holds
    if isinstance(one, torch.Tensor | np.ndarray | ModuleType | type | str | bytes):
        return ()
    if isinstance(one, tuple | list | dict):
        values = one.values() if isinstance(one, dict) else one
        return values if len(one) <= _LONGEST else ()
    if isinstance(one, partial):
        return (one.func, *one.args, *one.keywords.values())
    if isinstance(one, MethodType):
        return (one.__self__, one.__func__)
    if isinstance(one, FunctionType):
        return _used(one)
    call = type(one).__dict__.get("__call__")
    return (*_attributes(one).values(), *((call,) if isinstance(call, FunctionType) else ()))


def _attributes(one: object) -> dict[str, object]:
    """Return an object's attributes, without running any code of its class."""
    try:
        found: dict[str, object] = object.__getattribute__(one, "__dict__")
    except AttributeError:
        found = {}
    slots = getattr(type(one), "__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
        with suppress(AttributeError):
            found = {**found, name: object.__getattribute__(one, name)}
    return found


def _used(function: FunctionType) -> list[object]:
    """Return what a function's closure and its global names mean; none of a library's functions."""
    if "site-packages" in function.__code__.co_filename:
        return []
    try:
        names = inspect.getclosurevars(function)
    except ValueError:  # a name of its closure has no value yet
        return []
    return [*names.nonlocals.values(), *names.globals.values()]
