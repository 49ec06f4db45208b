"""What became of jobs, for people and programs: gathered from all sources, and shown.

- `targets` (which jobs are meant) and `gather` (all that is known of them) alone ask Slurm;
  `monitoring` says when the site's Prometheus is asked.
- What is known of one job: `known_job` with `attempt_spans`, `missing_attempts`, `identity`,
  `node_faults`;
  `accounting` with `peaks`; `source_notes` (what no source says).
- Its samples: `job_samples` with `changed_sizes`, `step_samples`, `unseen_steps`; `samples_alone`
  where nothing else is known.
- Pages for a terminal: `job_page`, `array_page`, with `tables` and `terminal`.
- In the job, at its end: `at_end` (`python -m hpckit.report`) writes summary.json.
"""
