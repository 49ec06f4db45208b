"""What a fit is told: which values make sense, and which must be the same on all ranks."""

from collections.abc import Iterable, Mapping
from typing import Any

from hpckit.parallel.errors import SetupError

# Beside the settings that shape the curve: what changes a gradient, the step that a rank takes by
# it, or which messages it sends.
COMPARED = (
    "baseline",
    "diff_mode",
    "gradient_clipping_norm",
    "initialize_estimator_to_prior",
    "initialization_lr",
    "resume",
)
_COUNTS = (
    "n_samples_per_epoch",
    "n_samples_regularisation",
    "regularisation_block",
    "checkpoint_every",
)


def check_settings(given: Mapping[str, Any]) -> None:
    """Check the words and numbers of a fit, by the names of `VI`.

    Raises:
        SetupError: one makes no sense.
    """
    _check_choice("diff_mode", given["diff_mode"], ("reverse", "forward"))
    _check_choice(
        "gradient_estimation_method", given["gradient_estimation_method"], ("pathwise", "score")
    )
    maybe = [
        name for name in ("samples_per_call", "jacobian_chunk_size") if given[name] is not None
    ]
    _check_counts(**{name: given[name] for name in (*_COUNTS, *maybe)})
    weight, norm = given["w"], given["gradient_clipping_norm"]
    if not weight >= 0:
        raise SetupError(f"w is {weight}: it must be at least 0")
    if not norm > 0:
        raise SetupError(f"gradient_clipping_norm is {norm}: it must be more than 0")


def _check_choice(name: str, word: str, choices: Iterable[str]) -> None:
    if word not in choices:
        raise SetupError(f"{name} is {word!r}: it must be one of {', '.join(choices)}")


def _check_counts(**counts: int) -> None:
    for name, number in counts.items():
        if not hasattr(number, "__index__"):
            raise SetupError(f"{name} is {number!r}: it must be a whole number")
        if number < 1:
            raise SetupError(f"{name} is {number}: it must be at least 1")
