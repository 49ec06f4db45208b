"""Variational inference in torch: posterior estimators, its loop, models to fit."""

import hpckit.parallel.torch_versions  # noqa: F401  # refuses an older torch
