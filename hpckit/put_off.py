"""Modules that others import, and that no command of ours uses: they are there by name only.

For programs of our own alone: in another's, two threads may be the first to use one at once.
"""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec


def put_off(*names: str) -> None:
    """Let whoever imports these modules have them unread; each is read when it is first used."""
    for name in names:
        spec = None if name in sys.modules else find_spec(name)
        if spec is None or spec.loader is None:
            continue
        spec.loader = LazyLoader(spec.loader)
        sys.modules[name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
