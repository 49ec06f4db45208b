"""Nodes with broken hardware: what logs say of them, and what is remembered.

`faults` (what a rank's log says of its node), `node_events` (which nodes a run's attempts blame),
`node_memory` (the file of events, and how long they count). `hpckit.submission.leaving_out` makes
an `--exclude` of them.
"""
