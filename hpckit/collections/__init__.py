"""Collections: folders of templates, workloads and sites, searched in order.

`collection` (the value, and its manifest) and `search` are what all other rooms need. Users' own
additions: `source` (where from), `lockfile` (`hpckit.lock`), `pinned` (an entry of it, here),
`contents` (files and hashes), `trust` (who could change it), `git` (the only network), `manage`
(the commands), `scaffold` (a new one).
"""

from hpckit.collections.collection import LOCK, MANIFEST, Collection, Found, Unusable
from hpckit.collections.contents import content_hash
from hpckit.collections.search import Survey, builtin_folder, find_all, search_path, survey

__all__ = [
    "LOCK",
    "MANIFEST",
    "Collection",
    "Found",
    "Survey",
    "Unusable",
    "builtin_folder",
    "content_hash",
    "find_all",
    "search_path",
    "survey",
]
