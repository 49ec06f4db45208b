"""What a job's GPUs, cores and memory did, in figures: pure functions of samples.

- From a file up: `clock` weighs samples and cuts them into bins, `gpu_in_file` is one GPU in one
  file; `gpu_tally` and `nodes` (with `side_by_side`) add up the files of one of the `attempts`;
  `gpu_use` and `nodes` make figures of attempts, `summarise` the job's.
- The rules: `over_time` (how samples become figures), `coverage` (when a figure is known),
  `troubles` (what kept a GPU from its work).
- `figures`: every figure is a field there, of a metric's row or declared. The JSON, its schema and
  the names that rules use follow.
- For pictures: `timeline`, `curves`.
"""
