"""Variational inference in torch: posterior estimators, its loop, models to fit.

Over `hpckit.parallel`; never imported by hpckit's commands.

- The fit: `vi` (the loop), `settings` with `checks`, `objective` (an epoch: each rank's share, one
  reduction), `shares`, `evaluate`, `progress`, `same_fit` with `data_digest`, `mpi_setup`.
- Posteriors: `spline_flow` with `flow_layers` and `rational_quadratic`, `gaussian`; those of other
  libraries by `adapters` and `convert`.
- Simulators: `model` (what one must offer), `sir` with `contacts`, `random_walk`; `noise` gives
  random numbers by sample.
- `losses` is an old name.
"""

import hpckit.parallel.torch_versions  # noqa: F401  # refuses an older torch
