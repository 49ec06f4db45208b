"""How a session's shell is started: the user's own start files first, then the job's environment.

A login shell would load modules anew, and many start files put a conda or a module in front of
PATH. So what the job's script has set up is put back after them: PATH and the like as the job had
them, then what the start files added; the venv and conda environment that is active.

In a container the shell reads no start files: they are made for the host.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpckit.files import replace_file
from hpckit.frozen import frozen

KNOWN = ("bash", "zsh", "fish")
# What most images have.
USUAL = "bash"
_LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "MANPATH", "CPATH", "LIBRARY_PATH")
_VALUES = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_SHLVL"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
)
# Of the process that started this one, and no use to what a user starts. A step inside the session
# would ask for the job's memory a second time: "Memory required by task is not available".
_NOT_THEIRS = (
    *("HPCKIT_END_FD", "HPCKIT_END_INODE", "PYTHONUNBUFFERED"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE"),
)
_TERM = "xterm-256color"


@frozen(kw_only=True)
class Start:
    """What is started, and with which environment."""

    argv: tuple[str, ...]
    environ: dict[str, str]


def users_shell(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the user's shell, if hpckit knows how to start it; else bash."""
    name = Path(environ.get("SHELL") or USUAL).name
    return name if name in KNOWN else USUAL


def start_of(
    command: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    prompt: str,
    *,
    in_container: bool = False,
) -> Start:
    """Return how a shell is started; `folder` gets its start files, which only the user may write.

    Args:
        command: the shell's name, with a container's words before it.
        environ: what the job has set up.
        folder: a folder of its own.
        prompt: stands before the shell's own.
        in_container: it runs in one, also where the command has no words of one.

    Raises:
        OSError: the start files cannot be written.
    """
    *container, name = command
    given = {key: text for key, text in environ.items() if key not in _NOT_THEIRS}
    if given.get("TERM", "dumb") in ("dumb", "unknown", ""):
        given["TERM"] = _TERM
    # It shares cores and GPUs with the step in which the session runs.
    given.setdefault("SLURM_OVERLAP", "1")
    if container or in_container:
        alone = ("--norc",) if name == "bash" else ()
        return Start(argv=(*command, *alone, "-i"), environ=given)
    match name:
        case "zsh":
            return _zsh(given, folder, prompt)
        case "fish":
            after = ("--init-command", _fish(given, prompt))
            return Start(argv=("fish", "-i", *after), environ=given)
    own = "[ -r ~/.bashrc ] && . ~/.bashrc\n"
    replace_file(folder / "bashrc", own + _posix(given, prompt), mode=0o600)
    return Start(argv=(name, "--rcfile", str(folder / "bashrc"), "-i"), environ=given)


def _posix(environ: Mapping[str, str], prompt: str) -> str:
    """Return lines that bash and zsh read after the user's own start files."""
    lines = []
    for name in _LISTS:
        if value := environ.get(name):
            text = shlex.quote(value)
            lines.append(
                f'[ "${{{name}-}}" = {text} ] || export {name}={text}"${{{name}:+:${name}}}"'
            )
    lines += [f"export {name}={shlex.quote(environ[name])}" for name in _VALUES if name in environ]
    lines.append(f'PS1={shlex.quote(prompt)}"${{PS1-}}"')
    lines.append("hash -r")
    return "\n".join(lines) + "\n"


def _zsh(environ: Mapping[str, str], folder: Path, prompt: str) -> Start:
    """Let zsh read our start files, which read the user's from where they are."""
    own = environ.get("ZDOTDIR")
    back = f"ZDOTDIR={shlex.quote(own)}" if own else "unset ZDOTDIR"
    env = (
        f"{back}\n[ -r ${{ZDOTDIR:-$HOME}}/.zshenv ] && . ${{ZDOTDIR:-$HOME}}/.zshenv\n"
        f"hpckit_zdotdir=${{ZDOTDIR-}}\nZDOTDIR={shlex.quote(str(folder))}\n"
    )
    rc = (
        'if [ -n "$hpckit_zdotdir" ]; then ZDOTDIR=$hpckit_zdotdir; else unset ZDOTDIR; fi\n'
        "unset hpckit_zdotdir\n"
        "[ -r ${ZDOTDIR:-$HOME}/.zshrc ] && . ${ZDOTDIR:-$HOME}/.zshrc\n"
    )
    replace_file(folder / ".zshenv", env, mode=0o600)
    replace_file(folder / ".zshrc", rc + _posix(environ, prompt.replace("%", "%%")), mode=0o600)
    return Start(argv=("zsh", "-i"), environ={**environ, "ZDOTDIR": str(folder)})


def _fish(environ: Mapping[str, str], prompt: str) -> str:
    """Return what fish does after the user's own start files."""
    lines = [
        f"set -gx {name} {' '.join(map(_fish_word, value.split(':')))} ${name}"
        for name in _LISTS
        if (value := environ.get(name))
    ]
    lines += [f"set -gx {name} {_fish_word(environ[name])}" for name in _VALUES if name in environ]
    lines += [
        "functions -q fish_prompt; and functions -c fish_prompt hpckit_own_prompt",
        f"function fish_prompt; printf %s {_fish_word(prompt)}; "
        "functions -q hpckit_own_prompt; and hpckit_own_prompt; end",
    ]
    return "\n".join(lines)


def _fish_word(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
