"""Advice: rules in YAML (`templates/advice/`) about what a job did with what it was given.

- Rules: `rules` (the value), `reading` (a file), `loading` (those of a search path), `keeping`.
- Their language: `parsing` (a whitelist over Python's parser), `parts`, `expressions`,
  `evaluation`, `functions`, `namespace` (what rules may name).
- `engine` gives the advice, `marks` what pictures mark, `explaining` a page on one rule.
"""
