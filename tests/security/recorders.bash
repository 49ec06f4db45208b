# Reads job scripts as bash does, and writes down every command they would run, running none:
# there is no program on PATH, and every name is a recorder.
# usage: bash recorders.bash STATUS SCRIPT... ; STATUS is what every command returns.
# SCRIPT.STATUS gets the words, each ended by NUL, and a newline word after each command.
PATH=/nonexistent
status=$1
shift
record() { builtin printf '%s\0' "$@" $'\n' >&9; return "$status"; }
command_not_found_handle() { record "$@"; }
for name in module spack conda srun apptainer recorder cd . source eval type command umask; do
    builtin eval "$name() { record $name \"\$@\"; }"
done
echo() { record echo "$@"; return 0; }
grep() { return "$status"; } # the end of a pipe: its turn is not fixed
hostname() { builtin printf 'host'; }
export() { record export "$@"; builtin export "$@"; }
exec() { record exec "$@"; builtin exit 0; }
for script in "$@"; do
    (
        builtin source "$script"
    ) 9>"$script.$status" >/dev/null 2>&1 </dev/null
done
builtin exit 0
