"""hpckit for the scripts of jobs, whose Python may be another one that does not have it.

This folder on their PYTHONPATH gives them the package that the job was submitted with, and nothing
else of the environment that it is installed in. The package itself takes this module's place.
"""

import sys
from importlib import util
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[3]
_spec = util.spec_from_file_location(
    __name__, str(_FOLDER / "__init__.py"), submodule_search_locations=[str(_FOLDER)]
)
sys.modules[__name__] = util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
