"""`--install-completion` and `--show-completion`: what a shell reads to complete hpckit's words.

The scripts ask `hpckit` itself (`completing`), by the variable _HPCKIT_COMPLETE. They evaluate
nothing of what it says.
"""

import os
from pathlib import Path

import shellingham

from hpckit.api import home_folder
from hpckit.cli.completing import FILES
from hpckit.cli.output import note, say
from hpckit.errors import OutsideError, RequestError

_BASH = f"""\
_hpckit() {{
    local found status
    found=$(_HPCKIT_COMPLETE=bash "$1" "${{COMP_LINE:0:COMP_POINT}}" "$2" 2>/dev/null)
    status=$?
    COMPREPLY=()
    if [ "$status" = {FILES} ]; then
        compopt -o default
        return
    fi
    [ -n "$found" ] && mapfile -t COMPREPLY <<<"$found"
    case "${{COMPREPLY[*]}}" in *=) compopt -o nospace ;; esac
}}
complete -F _hpckit hpckit
"""
_ZSH = f"""\
#compdef hpckit
_hpckit() {{
    local line said
    local -a whole open
    local -a before=("${{(@Q)words[2,CURRENT-1]}}")
    said=$(_HPCKIT_COMPLETE=zsh $words[1] "${{before[@]}}" "${{(Q)PREFIX}}" 2>/dev/null)
    if [[ $? == {FILES} ]]; then
        _files
        return
    fi
    for line in "${{(@f)said}}"; do
        case $line in
            *=|*=:*) open+=("$line") ;;
            ?*) whole+=("$line") ;;
        esac
    done
    (( $#open )) && _describe -V hpckit open -S ''
    (( $#whole )) && _describe -V hpckit whole
}}
compdef _hpckit hpckit
"""
_FISH = f"""\
function __hpckit_words
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l found (env _HPCKIT_COMPLETE=fish $words[1] $words[2..-1] "$last" 2>/dev/null)
    if test $status = {FILES}
        __fish_complete_path "$last"
    else
        printf '%s\\n' $found
    end
end
complete -c hpckit -f -a '(__hpckit_words)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
# Where each shell's script goes, and what its start file must say of it.
_PLACES = {
    "bash": (".bash_completions/hpckit.sh", ".bashrc", ". ~/.bash_completions/hpckit.sh"),
    "zsh": (
        ".zfunc/_hpckit.zsh",
        ".zshrc",
        "autoload -Uz compinit && compinit && . ~/.zfunc/_hpckit.zsh",
    ),
    "fish": (".config/fish/completions/hpckit.fish", "", ""),
}


def show() -> None:
    """Print the script of the shell that this runs under."""
    say(SCRIPTS[_shell()].rstrip("\n"))


def install() -> None:
    """Write the script where the shell finds it, and a line into the shell's start file.

    Raises:
        OutsideError: a file cannot be written.
    """
    shell = _shell()
    place, start, line = _PLACES[shell]
    path = home_folder() / place
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SCRIPTS[shell])
        if start:
            _add_line(home_folder() / start, line)
    except OSError as error:
        raise OutsideError(
            f"{error.filename or path} cannot be written: {error.strerror}."
        ) from error
    note(f"Completion for {shell} is in {path}. It begins in the next shell that you start.")


def _add_line(path: Path, line: str) -> None:
    text = path.read_text() if path.exists() else ""
    if line not in text.splitlines():
        with path.open("a") as file:
            file.write(("" if text.endswith("\n") or not text else "\n") + line + "\n")


def _shell() -> str:
    """Return the shell that started this; else the user's own.

    Raises:
        RequestError: it has no completion here.
    """
    try:
        name, _ = shellingham.detect_shell()
    except shellingham.ShellDetectionFailure:
        name = Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        raise RequestError(
            f"There is no completion for the shell {name!r}, only for bash, zsh, fish."
        )
    return str(name)
