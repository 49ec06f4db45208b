"""At the end of a rank's script: has it met the other ranks? Tells the supervisor.

Lightning's or Transformers' Trainer without the right settings trains on every rank alone, and the
job ends well. Only what is loaded anyway is looked at; nothing is imported, wrapped or waited for.
"""

import atexit
import os
import sys

TYPE_CHECKING = False  # without the cost of importing typing
if TYPE_CHECKING:
    from types import ModuleType

# What may have met, or started what did, without a trace that is known here.
_MAY_HAVE_MET = (
    *("horovod", "tensorflow", "ray", "distributed", "byteps", "petsc4py", "paddle", "mindspore"),
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    *("deepspeed.launcher.runner", "mxnet", "oneflow", "zmq", "grpc"),
)
# A script that asks for its place shares the work out itself, whether or not its ranks talk.
_OWN_SHARES = (
    r"\bRANK\b|(LOCAL|NODE|GLOBAL|PMI|COMM_WORLD)_RANK\b|WORLD_SIZE|SLURM_(PROCID|LOCALID|NODEID)"
    r"|HPCKIT_RUN_ID"
)
_MUCH = 4 << 20  # bytes of a script


def tell_at_exit() -> None:
    """Tell the supervisor at this process's end, if this is a process it can hear."""
    if os.environ.get("WORLD_SIZE", "1") != "1" and _line() is not None:
        atexit.register(_tell)


def _line() -> "int | None":
    """Return the descriptor that leads to the supervisor; a child's may be some other file."""
    try:
        number = int(os.environ["HPCKIT_END_FD"])
        return number if os.fstat(number).st_ino == int(os.environ["HPCKIT_END_INODE"]) else None
    except (KeyError, ValueError, OSError):
        return None


def _tell() -> None:
    try:
        line, found = _line(), _met()
    except Exception:  # noqa: BLE001  # a library that is not as it was known: the script ends well
        return
    if line is None:
        return
    word = {True: b"met", False: b"alone", None: b"unknown"}[found]
    # An open MPI waits for all ranks after this, in MPI_Finalize: the script is not at its end.
    pid = b"" if found and _mpi_is_open() else b" %d" % os.getpid()
    _send(line, word + pid + b"\n")


def _send(number: int, text: bytes) -> None:
    """Send without waiting: after thousands of Pythons the supervisor may no longer read."""
    # What `socket` stands on: the script's folder may have a socket.py, which would run here.
    import _socket  # noqa: PLC0415  # not before the end: it costs a script's start

    try:
        line = _socket.socket(fileno=os.dup(number))
        try:
            line.send(text, _socket.MSG_DONTWAIT)
        finally:
            line.close()
    except OSError:
        return  # the supervisor is gone, or has heard enough


def _mpi_is_open() -> bool:
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized()


def _met() -> "bool | None":
    """Say whether this process has met other ranks; None: it cannot be known."""
    answers = [_by_torch(), _by_rpc(), _by_mpi(), _by_jax()]
    if any(answers):
        return True
    if None in answers or any(name in sys.modules for name in _MAY_HAVE_MET):
        return None
    return None if _others_may_have() or _shares_work() else False


def _by_torch() -> "bool | None":
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None:
        return False
    if not hasattr(module, "_backend"):
        return None  # a torch that keeps no account of it
    if module.is_initialized():
        return bool(module.get_world_size() > 1)
    # Both stay as they were set when the group is destroyed.
    method = getattr(module, "_default_pg_init_method", None)
    return module._backend not in (None, "undefined") or method is not None


def _by_rpc() -> "bool | None":
    # `import torch` loads it, so that it is loaded says nothing.
    module = sys.modules.get("torch.distributed.rpc.api")
    if module is None:
        return False
    # It stays as it was set when RPC is shut down.
    names = getattr(module, "_ALL_WORKER_NAMES", None)
    return None if names is None else len(names) > 1


def _by_mpi() -> "bool | None":
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        return False
    if not mpi.Is_initialized() or mpi.Is_finalized():
        return None
    return bool(mpi.COMM_WORLD.Get_size() > 1)


def _by_jax() -> "bool | None":
    if "jax" not in sys.modules:
        return False
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return None if state is None else getattr(state, "client", None) is not None


def _pythons_own_resource() -> "ModuleType":
    """Return the module: the script's folder may have a file of this name, which would run here.

    `os.times()` counts hundredths of a second, and a child's start takes two.
    """
    loaded, path = sys.modules.pop("resource", None), sys.path[:]
    own = os.path.dirname(os.__file__)  # noqa: PTH120
    sys.path[:] = [own, os.path.join(own, "lib-dynload")]  # noqa: PTH118
    try:
        import resource  # noqa: PLC0415  # not before the end: it costs a script's start
    finally:
        sys.path[:] = path
        if loaded is not None:
            sys.modules["resource"] = loaded
    return resource


def _others_may_have() -> bool:
    """Say whether a child may have met, or a library that Python does not know of."""
    loaders = sys.modules.get("torch.utils.data._utils.signal_handling")
    if not getattr(loaders, "_SIGCHLD_handler_set", False):  # data loaders' workers never meet
        resource = _pythons_own_resource()
        children, own = (
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
        )
        if children > own / 4:
            return True
    if "mpi4py.MPI" in sys.modules:
        return False
    try:
        with open("/proc/self/maps", "rb") as maps:  # noqa: PTH123
            return b"/libmpi" in maps.read()
    except OSError:
        return True


def _shares_work() -> bool:
    import re  # noqa: PLC0415  # see above

    # By now Python has taken `__file__` away.
    script = getattr(getattr(sys.modules.get("__main__"), "__loader__", None), "path", None)
    if script is None:
        return True  # `python -c`, or what a script was put into: nobody knows
    try:
        for path in (script, *_modules_beside(script)):
            with open(path, encoding="utf-8", errors="replace") as text:  # noqa: PTH123
                if re.search(_OWN_SHARES, text.read(_MUCH)):
                    return True
    except OSError:
        return True
    return False


def _modules_beside(script: str) -> "list[str]":
    """Return the files of loaded modules below the script's folder, but for installed packages."""
    folder = os.path.join(os.path.dirname(os.path.realpath(script)), "")  # noqa: PTH118, PTH120
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    # torch names files that do not exist for modules it makes up: "_ops.py", of no folder.
    known = (os.path.realpath(f) for f in files if f and f.endswith(".py") and os.path.isabs(f))  # noqa: PTH117
    return [file for file in known if file.startswith(folder) and "site-packages" not in file]
