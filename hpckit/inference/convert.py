"""Weights of a spline flow trained with normflows, in ours."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import nn

from hpckit.inference.flow_layers import AutoregressiveSplines, ByDegree, PermutedLinear
from hpckit.inference.spline_flow import SplineFlow, SplineLayer
from hpckit.parallel.errors import SetupError

_NETWORK = "flows.{}.mprqat.autoregressive_net."


def from_normflows(flow: nn.Module) -> SplineFlow:
    """Return a copy of a normflows flow, with the same samples and densities.

    Args:
        flow: A `NormalizingFlow` over a fixed `DiagGaussian(dim)`, whose flows are in turn
            `AutoregressiveRationalQuadraticSpline` and `LULinearPermute`.

    Raises:
        SetupError: the flow is made of something else.
    """
    bounds = {
        float(bound)
        for module in flow.modules()
        if (bound := vars(module).get("tail_bound")) is not None
    }
    if len(bounds) != 1:
        raise SetupError(f"the flow's splines have tail bounds {sorted(bounds)}: not one for all")
    return from_normflows_state(flow.state_dict(), tail_bound=bounds.pop())


def from_normflows_state(
    state: Mapping[str, torch.Tensor], *, tail_bound: float = 3.0
) -> SplineFlow:
    """Return the flow from its `state_dict()` alone, which does not tell the splines' bound.

    Raises:
        SetupError: the state is not of such a flow.
    """
    rest = dict(state)
    try:
        flow = _copied(rest, tail_bound)
    except (KeyError, RuntimeError) as failure:
        raise _foreign(failure) from failure
    if rest:
        raise _foreign(f"{min(rest)} is new")
    return flow


def _foreign(found: object) -> SetupError:
    return SetupError(
        "these are not weights of AutoregressiveRationalQuadraticSpline and LULinearPermute in "
        f"turn, over DiagGaussian(dim, trainable=False): {found}"
    )


def _copied(state: dict[str, torch.Tensor], tail_bound: float) -> SplineFlow:
    """Take the weights that have a place in our flow out of the state, and return the flow."""
    if state.pop("q0.loc").any() or state.pop("q0.log_scale").any():
        raise KeyError("q0 is not a standard normal")
    units, dim = state[_NETWORK.format(0) + "initial_layer.weight"].shape
    outputs = len(state[_NETWORK.format(0) + "final_layer.bias"])
    layers = len({name.split(".")[1] for name in state}) // 2
    names = [name for name in state if name.startswith(_NETWORK.format(0) + "blocks.")]
    blocks = len({name.removeprefix(_NETWORK.format(0)).split(".")[1] for name in names})
    flow = SplineFlow(dim, layers, units, blocks, (outputs // dim + 1) // 3, tail_bound)
    flow.to(state["flows.1.linear.bias"])
    for number, layer in enumerate(cast("list[SplineLayer]", list(flow.layers))):
        _fill_network(layer.splines, state, _NETWORK.format(2 * number))
        _fill_linear(layer.linear, state, f"flows.{2 * number + 1}.")
    return flow


def _fill_network(layer: AutoregressiveSplines, state: dict[str, torch.Tensor], at: str) -> None:
    order = state[at + "initial_layer.degrees"].argsort(stable=True)
    variables = torch.arange(layer.dim)
    outputs = torch.arange(len(layer.final.bias))
    _fill(layer.initial, state, at + "initial_layer.", order, variables)
    for number, part in enumerate(cast("list[ByDegree]", list(layer.blocks))):
        name = f"{at}blocks.{number // 2}.linear_layers.{number % 2}."
        _fill(part, state, name, order, order)
    _fill(layer.final, state, at + "final_layer.", outputs, order)


def _fill(
    layer: ByDegree,
    state: dict[str, torch.Tensor],
    at: str,
    rows: torch.Tensor,
    columns: torch.Tensor,
) -> None:
    """Copy a masked layer, its units put in our order; ours knows mask and degrees without."""
    weights = {"weight": state.pop(at + "weight")[rows][:, columns], "bias": state.pop(at + "bias")}
    weights["bias"] = weights["bias"][rows]
    layer.load_state_dict(weights)
    del state[at + "mask"], state[at + "degrees"]


def _fill_linear(layer: PermutedLinear, state: dict[str, torch.Tensor], at: str) -> None:
    names = {name: f"{at}linear.{name}" for name in ("bias", "lower_entries", "upper_entries")}
    names["raw_diagonal"] = at + "linear.unconstrained_upper_diag"
    names["permutation"] = at + "permutation._permutation"
    layer.load_state_dict({ours: state.pop(theirs) for ours, theirs in names.items()})
