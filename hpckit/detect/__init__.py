"""Finding out what a cluster is, on a login node, without submitting anything.

`ask` is the edge: programs, each with a time-out. `cluster`, `modules`, `mounts` and `mpi` read
what came back, and are pure. `page` writes a site's YAML, `place` puts it where `sites` finds it.
"""
