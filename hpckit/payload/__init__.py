"""What runs inside the job: rank environment, supervisor, signals, the local scheduler's stand-ins.

It runs under hpckit's own interpreter, which may not be the one of the user's script: the script
is always a child process, so that any python (module, venv, conda, container) works unchanged.
"""
