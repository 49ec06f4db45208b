"""Entering the container that Pyxis has started on this node for the job: see `environments/pyxis`.

Pyxis puts all tasks of a step into a container, and hpckit's supervisor would be in it, with the
image's C library and without Slurm's programs. So a step of its own has the container, and each
rank's program joins the namespaces of that step's process (setns(2)) before it is started.
"""

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from hpckit.errors import JobError
from hpckit.frozen import frozen

# What the job script says: `NODE PID` of each node, with commas between them.
VARIABLE = "HPCKIT_CONTAINERS"
# In the order of setns(2): the user's first, which gives the right to the others; files last.
_KINDS = {
    "user": 0x10000000, "cgroup": 0x02000000, "ipc": 0x08000000, "uts": 0x04000000,
    "net": 0x40000000, "mnt": 0x00020000,
}  # fmt: skip
# What tells a rank of its place and its GPUs: the container was started without, or for a step of
# its own. Of all else the image's, and what Pyxis has made of the job's, counts.
_OURS = ("SLURM", "SRUN_", "HPCKIT_", "PMI", "OMPI_", "PRTE_", "HYDRA_", "MPI", "I_MPI_", "TORCHE")
_DEVICES = frozenset(
    ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
     "GPU_DEVICE_ORDINAL")
)  # fmt: skip
_LIBC = ctypes.CDLL(None, use_errno=True)


@frozen(kw_only=True)
class Container:
    """A container that runs on this node.

    `environ` are the variables of the process that keeps it.
    """

    pid: int
    image: str
    environ: Mapping[str, str]

    def environment(self, asked: Mapping[str, str], outside: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a rank: those of the container, and what tells of the rank.

        `asked` are the rank's as if there were no container, `outside` those of this process.
        """
        own = {
            name: text
            for name, text in asked.items()
            if name.startswith(_OURS) or name in _DEVICES or outside.get(name) != text
        }
        paths = (
            asked.get("PYTHONPATH", "").partition(os.pathsep)[0],
            self.environ.get("PYTHONPATH"),
        )
        path = os.pathsep.join(word for word in paths if word)
        # PMIx's files of the ranks' step are not in the container: it would say so, and go on.
        quiet = {"PMIX_MCA_gds": "hash"} if "PMIX_RANK" in asked else {}
        return {**asked, **quiet, **self.environ, **own, "PYTHONPATH": path}

    def entering(self, prepare: Callable[[], None]) -> Callable[[], None]:
        """Return what a child runs before its program: it enters, and `prepare` follows.

        Raises:
            JobError: the container has ended, or is not this user's.
        """
        joined, cwd = self._namespaces(), Path.cwd()

        def enter() -> None:
            try:
                for descriptor, kind in joined:
                    if _LIBC.setns(descriptor, kind):
                        number = ctypes.get_errno()
                        raise OSError(number, os.strerror(number))
                os.chdir(cwd)
            except OSError as error:
                os.write(2, f"hpckit: the container cannot be entered: {error}\n".encode())
                os._exit(126)
            prepare()

        return enter

    def _namespaces(self) -> list[tuple[int, int]]:
        """Open the namespaces that are not this process's; they stay open until it ends."""
        found = []
        try:
            for name, kind in _KINDS.items():
                theirs = f"/proc/{self.pid}/ns/{name}"
                if not os.path.samefile(theirs, f"/proc/self/ns/{name}"):  # noqa: PTH121
                    found.append((os.open(theirs, os.O_RDONLY | os.O_CLOEXEC), kind))
        except OSError as error:
            raise _gone(self.image, error) from error
        return found


def find_container(image: str, node: str | None, environ: Mapping[str, str]) -> Container:
    """Return the container of this job on this node, which Slurm calls `node`.

    Raises:
        JobError: there is none.
    """
    rows = dict(row.split(" ") for row in environ.get(VARIABLE, "").split(",") if row)
    number = rows.get(node or "") or (next(iter(rows.values())) if len(rows) == 1 else "")
    if not number.isdecimal():
        raise JobError(
            f"The job script names no container of {image} on {node or os.uname().nodename}: a "
            "template of your own must include the block `environment`."
        )
    try:
        if Path("/proc", number).stat().st_uid != os.getuid():
            raise JobError(
                f"Process {number} is not yours: Pyxis gives containers numbers of their own here "
                "(ENROOT_UNSHARE_PID), in which hpckit cannot find them."
            )
        text = Path("/proc", number, "environ").read_bytes()
    except OSError as error:
        raise _gone(image, error) from error
    pairs = (row.partition("=") for row in text.decode(errors="surrogateescape").split("\0"))
    return Container(
        pid=int(number), image=image, environ={key: value for key, sign, value in pairs if sign}
    )


def _gone(image: str, error: OSError) -> JobError:
    return JobError(
        f"The container of {image} on {os.uname().nodename} cannot be entered "
        f"({error.strerror}): its step has ended. The job's own log says why: hpckit logs --all."
    )
