"""The records of one node of one job: what the sampler writes and the summary reads.

A file is packed so that a column of it is a slice: a week of 8 GPUs at 1 s is 5 million readings,
and no Python object may be made of each.

- The format: `records` (values), `encoding` (a line), `packing` (the numbers of one sample).
- To read, also damaged files: `lines`, `reading`, `collecting` into `columns`, `minutes`.
- Parts: `tail` (only what is new), `pieces` (of a node that a job kept).
"""
