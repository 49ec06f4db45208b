"""What the GPUs of a user, a group or a cluster did over some time: `hpckit report`.

- What there is to report: `allocations` (one question to sacct), kept in a `cache` for as long as
  `rights` are the same; `parts` of jobs that changed their size, `lost` ends, `absent` names;
  `preempted` ends, which own runs know better.
- How GPUs were used: `measured`, from hpckit's own records, jobstats' and `ledgers`.
- What comes of it: `totals` (sums, pure), `result` (the object), `schema`, `writing`.
"""
