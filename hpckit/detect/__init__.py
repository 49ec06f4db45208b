"""Finding out what a cluster is, on a login node, without submitting anything.

`login_node` is the edge: programs, each with a time-out, and this machine. `answers` makes facts
of it, pure. `page` writes a site's YAML, `site_file` puts it where `hpckit.sites` finds it.
"""
