"""What a fit is told: which values make sense, and which must be the same on all ranks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hpckit.parallel.errors import SetupError

if TYPE_CHECKING:
    from hpckit.inference.vi import VI

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


def check_settings(fit: "VI") -> None:
    """Check the words and numbers of a fit.

    Raises:
        SetupError: one makes no sense.
    """
    _check_choice("diff_mode", fit.diff_mode, ("reverse", "forward"))
    _check_choice(
        "gradient_estimation_method", fit.gradient_estimation_method, ("pathwise", "score")
    )
    counts = (
        "n_samples_per_epoch",
        "n_samples_regularisation",
        "regularisation_block",
        "checkpoint_every",
    )
    maybe = ("samples_per_call", "jacobian_chunk_size")
    given = [name for name in maybe if getattr(fit, name) is not None]
    _check_counts(**{name: getattr(fit, name) for name in (*counts, *given)})
    if not fit.w >= 0:
        raise SetupError(f"w is {fit.w}: it must be at least 0")
    if not fit.gradient_clipping_norm > 0:
        raise SetupError(
            f"gradient_clipping_norm is {fit.gradient_clipping_norm}: it must be more than 0"
        )


def _check_choice(name: str, word: str, choices: Iterable[str]) -> None:
    if word not in choices:
        raise SetupError(f"{name} is {word!r}: it must be one of {', '.join(choices)}")


def _check_counts(**counts: int) -> None:
    for name, number in counts.items():
        if not hasattr(number, "__index__"):
            raise SetupError(f"{name} is {number!r}: it must be a whole number")
        if number < 1:
            raise SetupError(f"{name} is {number}: it must be at least 1")
