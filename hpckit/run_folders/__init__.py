"""A run's folder: its record, its ranks' records, its logs and metrics; finding runs again.

- The folder: `runs`, `run_record` (`run.json`), `run_files` (how files are written; a rank imports
  only this and `ranks`), `ranks`, `logs`, `metrics` with `logged_times`.
- Finding runs: `find`, by the `index`; `reindex` makes that anew.
- `ledger`: a line of each attempt, in a group's folder.
"""
