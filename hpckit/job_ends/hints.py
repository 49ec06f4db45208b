"""Advice for the usual errors: the words each is known by in a log, and what to do."""

import re
from collections.abc import Iterator, Mapping

from hpckit.frozen import frozen
from hpckit.job_ends.tracebacks import HANGS_AT_END, OUT_OF_MEMORY


@frozen(kw_only=True)
class Hint:
    """One usual end: the words it is known by, and the advice."""

    name: str
    words: re.Pattern[str]
    advice: str


def _hint(name: str, words: str, advice: str) -> Hint:
    return Hint(name=name, words=re.compile(words, re.MULTILINE), advice=advice)


# docs/frameworks.md, "The end of a script".
_LET_GO = (
    "Import torch.distributed.nn at the script's top, and deepspeed.comm where DeepSpeed is "
    "installed (accelerate and the Trainer import it late). Delete the model first: del model; "
    "gc.collect(). Example: examples/user_script/train.py"
)

HINTS = (
    _hint(
        "syntax",
        r"^(?:SyntaxError|IndentationError|TabError): ",
        "Python could not read the file. The file and the line are above. Check it before the next "
        "job, with the job's Python ({python}): python -m py_compile FILE",
    ),
    _hint(
        "missing package",
        r"^ModuleNotFoundError: No module named '([\w.]+)'",
        "the job's Python is {python} (environment {environment}), and it has no {0}. "
        "{install} another environment with --env PATH, --env conda:NAME or --env module:NAME",
    ),
    _hint(
        "too old",
        r"^ImportError: (Python|torch) (\S+) is older than ([\d.]+), which hpckit\.parallel needs",
        "the job's Python is {python} (environment {environment}), and its {0} {1} is too old. "
        "Choose an environment with {0} {2} or newer: --env module:NAME, --env conda:NAME or --env "
        "PATH. `module spider` lists the cluster's modules",
    ),
    _hint(
        "shadowed module",
        r"^(?:AttributeError|ImportError): .*partially initialized module '?([\w.]+)'? .*"
        r"\(most likely due to a circular import\)",
        "a file beside the script may have the name of a library, so that the library imports it. "
        "The traceback names the file: rename it",
    ),
    _hint(
        "no GPU",
        r"^(?:AssertionError: Torch not compiled with CUDA enabled"
        r"|RuntimeError: (?:No CUDA GPUs are available|Found no NVIDIA driver on your system"
        r"|Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is"
        r"|Distributed package doesn't have NCCL built in)"
        r"|ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found"
        r"|.*CUDA error: no CUDA-capable device is detected)",
        "the script uses a GPU, but this rank has no GPU, or its torch has no CUDA. Read the "
        'device from os.environ["HPCKIT_DEVICE"] (cuda or cpu), and use nccl with cuda and gloo '
        "with cpu. Or ask for GPUs with --gpus, and choose a torch with CUDA with --env",
    ),
    _hint(
        "wrong GPU",
        r"CUDA error: invalid device ordinal",
        "the script uses a GPU number that this node does not have. The number of a rank's GPU is "
        'its LOCAL_RANK: torch.device("cuda", int(os.environ["LOCAL_RANK"]))',
    ),
    _hint(
        "GPU memory",
        r"OutOfMemoryError: CUDA out of memory\.|RuntimeError: CUDA out of memory\.",
        "the GPU's memory is full. Make the batch of each rank smaller, accumulate gradients, use "
        "bf16, or ask for GPUs with more memory. `hpckit stats` shows how much each rank used",
    ),
    _hint(
        "NCCL timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL",
        "the ranks waited for a rank that did not answer. That rank may have failed, may run other "
        "code, or may have much more work. Compare the last lines of all ranks: "
        "hpckit logs {job_id} --all",
    ),
    _hint(
        "port in use",
        r"EADDRINUSE|^OSError: \[Errno 98\] (?:error while|Address already in use)",
        "another process on the node uses this port. hpckit chooses a free port for each job: "
        "do not set a port in the script, and read MASTER_ADDR and MASTER_PORT",
    ),
    _hint(
        "no launch",
        r"^no rank had started: srun gave up ",
        "Slurm could not start the ranks; most often a node is at fault. Submit the job again: "
        "{again}. If it ends so again, send srun's lines to the cluster's support",
    ),
    _hint(
        "host memory",
        rf"{re.escape(OUT_OF_MEMORY)}|^the job ran out of memory$"
        r"|^rank \d+ on \S+ failed first, exit status \d+ \(out of memory\)"
        r"|^(?:\S+\.)?_?(?:Array)?MemoryError(?::|$)",
        "the memory of the node was not enough (not the GPU's memory). Ask for more with --mem-gb, "
        "or use fewer data loader workers and smaller pieces of data. `hpckit stats` shows the "
        "peak",
    ),
    _hint(
        "Open MPI as root",
        r"^mpirun has detected an attempt to run as root\.",
        "Open MPI does not start as root. Run as another user. In your own container, you can "
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 before hpckit submit",
    ),
    _hint(
        "Open MPI without PMI",
        r"but OMPI was not built with SLURM's PMI support",
        "srun told Open MPI nothing of the other ranks. Submit MPI programs with the strategy mpi, "
        "which chooses srun's --mpi. If it was mpi, add --launcher mpirun (of the same Open MPI)",
    ),
    _hint(
        "arguments",
        r"^\S+: error: (?:unrecognized arguments|the following arguments are required): ",
        "write the script's arguments after two dashes: hpckit submit STRATEGY SCRIPT [OPTIONS] "
        "-- --name value",
    ),
    _hint(
        "shared library",
        r"error while loading shared libraries: ([\w.+-]+): cannot open shared object file",
        "the program needs {0}, which is not on this node. Load the modules that the program was "
        "compiled with: --env module:NAME, or environments: in the site's YAML",
    ),
    _hint(
        "newer C library",
        r"version `(GLIBC(?:XX)?_[\d.]+)' not found",
        "the program was compiled on a newer system than this node's ({0}). Compile it on a node "
        "of this partition, or with the compiler of a module that you load in the job, too",
    ),
    _hint(
        "other processor",
        r"killed by SIGILL\b|Illegal instruction",
        "the program was compiled for a newer processor than this node has. Compile it on such a "
        "node, or without -march=native; or choose nodes with --constraint",
    ),
    _hint(
        "missing file",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?!/)([^'\n]+)'",
        "the job runs in {cwd}, where you submitted it, and '{0}' is not there. Give the whole "
        "path, or submit from another folder",
    ),
    _hint(
        "copy of the code",
        r"^(?:PermissionError: \[Errno 13\] Permission denied"
        r"|OSError: \[Errno 30\] Read-only file system): '[^'\n]*/(?:code|\.code/trees)/[^'\n]*'",
        "the script writes beside itself, and runs from a read-only copy of the code "
        "(docs/code.md). Write to the working directory, or to the folder "
        'os.environ["HPCKIT_RUN_DIR"]; or submit with --no-code',
    ),
    _hint(
        "gloo at the end",
        rf"terminate called without an active exception|^{HANGS_AT_END}",
        "this is a known fault of torch with gloo. The work is done, but the process group still "
        f"exists after destroy_process_group(). {_LET_GO}",
    ),
    _hint(
        "hang at the end",
        r"ranks have ended, ranks? .* (?:has|have) not, and did nothing for .*: hpckit has ended",
        "if the last rank had done its work, its process group may still have existed after "
        f"destroy_process_group() (seen with torch and gloo). {_LET_GO}",
    ),
)


def hints(words: str, run: Mapping[str, str]) -> Iterator[str]:
    """Yield the advice that goes with an error; `run` has what the rows name."""
    said = "\n".join(_said(words))
    for hint in HINTS:
        if found := hint.words.search(said):
            yield "hint: " + hint.advice.format(*found.groups(), **run)


def _said(words: str) -> Iterator[str]:
    """Yield an error's lines but for the source lines of a traceback, which may quote anything."""
    for line in words.splitlines():
        plain = re.sub(r"^\[rank\d+\]: ?", "", line)
        if not plain.startswith("  ") or plain.startswith("  what():"):
            yield plain
