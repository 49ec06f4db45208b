#!/bin/bash
# Runs pytest: with arguments once, with them; without, everything. Tests on real Slurm mostly wait,
# so they run beside the others, and what they said is printed at the end.
set -uom pipefail
cd "$(dirname "$0")/.." || exit
# Some tests send signals, which whoever starts this may ignore (nohup, a shell in the background).
run=(env --default-signal .venv/bin/python -m pytest)
if (($#)); then exec "${run[@]}" "$@"; fi

said=$(mktemp)
trap 'rm -f "$said"' EXIT
"${run[@]}" tests/slurm >"$said" 2>&1 &
beside=$!
# They have a process group of their own, which Ctrl-C does not reach: their Slurm must be stopped.
trap 'kill -INT -- -"$beside"; wait "$beside"; exit 130' INT TERM
# The others have a Slurm of their own, for tests/clients: so both take about as long.
HPCKIT_SLURMBOX=${HPCKIT_SLURMBOX:-/tmp/hpckit-slurmbox}-clients "${run[@]}" --ignore=tests/slurm
others=$?
wait "$beside"
slurm=$?
cat "$said"
echo "Tests on real Slurm: exit status $slurm. All others: exit status $others."
exit $((others ? others : slurm))
