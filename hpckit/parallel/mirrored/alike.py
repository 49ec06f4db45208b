"""Whether all replicas take the same step from the same weights.

They stay equal because each does the same. Who changes one copy alone (freezes a layer, loads
weights, sets a learning rate) would train different models from then on, and no loss would tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

# Settings of optimizers that can be compared without waiting for a device.
_PLAIN = (int, float, str, type(None))


class Versions:
    """How often torch has changed each weight of one copy, when they were noted last."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._noted: dict[int, int] = {}
        self.note(parameters)

    def note(self, parameters: Iterable[torch.Tensor]) -> None:
        """Keep the numbers of these parameters."""
        self._noted.update((id(one), _version(one)) for one in parameters)

    def changed(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Say whether one of these was changed since."""
        return any(self._noted.get(id(one)) != _version(one) for one in parameters)


def _version(parameter: torch.Tensor) -> int:
    return 0 if parameter.is_inference() else parameter._version


@dataclass(frozen=True, slots=True)
class Alike:
    """What must be equal on all replicas before a step.

    Attributes:
        frozen: the numbers of parameters that need no gradient.
        settings: of the optimizer, a mapping for each group.
        changed: weights are not what they were after the step before.
    """

    frozen: tuple[int, ...]
    settings: tuple[Mapping[str, object], ...] = ()
    changed: bool = False


def frozen_in(parameters: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return the numbers of the parameters that need no gradient."""
    return tuple(number for number, one in enumerate(parameters) if not one.requires_grad)


def settings_of(optimizer: torch.optim.Optimizer) -> tuple[Mapping[str, object], ...]:
    """Return the numbers and words of an optimizer's groups."""
    return tuple(
        {name: value for name, value in group.items() if _is_plain(value)}
        for group in optimizer.param_groups
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or (
        isinstance(value, tuple) and all(isinstance(one, _PLAIN) for one in value)
    )


def refuse_unlike(replicas: Sequence[Alike]) -> None:
    """Refuse replicas that would no longer be equal.

    Raises:
        RuntimeError: they would not.
    """
    first = replicas[0]
    for number, other in enumerate(replicas):
        if other == first:
            continue
        who = f"replicas 0 and {number}"
        if other.frozen != first.frozen:
            raise RuntimeError(
                f"Other parameters are frozen (requires_grad) in {who}, which would no longer be "
                "equal: freeze them in each of model.copies."
            )
        if told := _differing(first.settings, other.settings):
            raise RuntimeError(
                f"The optimizers of {who} differ ({told}), and weights would no longer be equal: "
                "change each of optimizer.copies, as in [StepLR(one, 10) for one in "
                "optimizer.copies]."
            )
        if other.changed != first.changed:
            raise RuntimeError(
                f"Of {who}, weights of one alone were changed, and they are no longer equal: load "
                "weights with model.load_state_dict, or change them in each of model.copies."
            )


def _differing(first: Sequence[Mapping[str, object]], other: Sequence[Mapping[str, object]]) -> str:
    """Return which setting that both have differs, with its values; empty if none does."""
    for one, its in zip(first, other, strict=False):
        for name in one:
            if name in its and one[name] != its[name]:
                return f"{name} is {one[name]} and {its[name]}"
    return "" if len(first) == len(other) else f"they have {len(first)} and {len(other)} groups"
