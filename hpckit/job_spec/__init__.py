"""What was asked for: `JobSpec`, and the words that its options are written in.

`spec` has the fields, an option each; `option_words` how values are written, `sbatch_words` what of
sbatch's `--sbatch` passes on, `retry_rules` the language of `--retry`. `arguments` checks what
Python calls are given; `recorded_spec` is a spec of a run's record, with changes.
"""
