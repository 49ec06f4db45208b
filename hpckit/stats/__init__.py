"""What the GPUs, cores and memory of a job did: the sampler, its files, and what reads them.

Along one reading: `metric` and `metric_table` (a row says where it is read, its unit, how it is
added up), `sampler` (reads it), `samples` (its files), `summary` (figures, pure), `advice` (rules).

- All sources as one: `merge` (with origins), `js1` (jobstats' record).
- Forms: `document` (JSON and its schema), `openmetrics` with `dashboard`.
- `right_size` with `sizing`: what to ask for next time.
"""
