"""What a fit is told: which values make sense, and which must be the same on all ranks."""

import math
from collections.abc import Mapping
from typing import Any

from hpckit.inference.checks import check_choice, check_counts
from hpckit.parallel.errors import SetupError
from hpckit.parallel.given import as_number

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
    check_choice("diff_mode", given["diff_mode"], ("reverse", "forward"))
    check_choice(
        "gradient_estimation_method", given["gradient_estimation_method"], ("pathwise", "score")
    )
    maybe = [
        name for name in ("samples_per_call", "jacobian_chunk_size") if given[name] is not None
    ]
    check_counts(**{name: given[name] for name in (*_COUNTS, *maybe)})
    weight, norm = given["w"], given["gradient_clipping_norm"]
    if not 0 <= as_number(weight) < math.inf:
        raise SetupError(f"w is {weight!r}: it must be at least 0, and finite")
    if not as_number(norm) > 0:
        raise SetupError(f"gradient_clipping_norm is {norm!r}: it must be more than 0")
