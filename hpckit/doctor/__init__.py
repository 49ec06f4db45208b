"""`hpckit doctor`: whether all is there that a submission needs; each finding says what to do.

`own`, `scheduler`, `site`, `environments`, `folders`, `collections` and `script` check one thing
each. `trial` runs short jobs of `jobs/` on the cluster, `mpi` and `gpu` read what came of them.
"""
