#!/bin/bash
# Runs pytest: with arguments once, with them; without, everything. Tests on real Slurm mostly wait,
# so they run beside the others, with two Slurms, and what they said is printed at the end.
set -uom pipefail
cd "$(dirname "$0")/.." || exit
# Some tests send signals, which whoever starts this may ignore (nohup, a shell in the background).
run=(env --default-signal .venv/bin/python -m pytest)
if (($#)); then exec "${run[@]}" "$@"; fi

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
beside=()
box=${HPCKIT_SLURMBOX:-/tmp/hpckit-slurmbox}
# Starts pytest with a Slurm of its own: NAME ARGS...
start() {
    HPCKIT_SLURMBOX=$box-$1 "${run[@]}" "${@:2}" >"$said/$1" 2>&1 &
    beside+=($!)
}
jobs=(tests/slurm/test_submit_*.py)
start jobs "${jobs[@]}"
start rest tests/slurm tests/clients "${jobs[@]/#/--ignore=}"
# They have process groups of their own, which Ctrl-C does not reach: their Slurm must be stopped.
trap 'kill -INT -- "${beside[@]/#/-}"; wait "${beside[@]}"; exit 130' INT TERM
"${run[@]}" --ignore=tests/slurm --ignore=tests/clients
failed=$?
echo "All tests but those on real Slurm: exit status $failed."
for pid in "${beside[@]}"; do
    wait "$pid" || failed=$?
done
cat "$said/jobs" "$said/rest"
echo "With those on real Slurm: exit status $failed."
exit "$failed"
