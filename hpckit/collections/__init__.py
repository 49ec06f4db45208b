"""Collections: folders of templates, workloads and sites, searched in order."""

from hpckit.collections.model import MANIFEST, Collection, Found, content_hash
from hpckit.collections.search import builtin_folder, find_all, search_path

__all__ = [
    "MANIFEST",
    "Collection",
    "Found",
    "builtin_folder",
    "content_hash",
    "find_all",
    "search_path",
]
