"""A git checkout read without git: which commit it is at, and whether its files were changed.

git itself runs what a checkout's configuration and attributes name (filters, fsmonitor, hooks,
upload-pack of a partial clone), and takes a folder that only looks like a repository for one. A
checkout may be a colleague's, or have come by mail; so here its files are read and nothing is run.
Formats: git's Documentation/gitformat-index, gitformat-pack, gitrepository-layout.
"""

from hpckit.gitfiles.changes import is_changed
from hpckit.gitfiles.repository import Repository, find_repository, read_head

__all__ = ["Repository", "find_repository", "is_changed", "read_head"]
