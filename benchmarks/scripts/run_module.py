"""`python -m MODULE ARGS...` as a script: `run_module.py MODULE ARGS...`."""

import runpy
import sys

del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
