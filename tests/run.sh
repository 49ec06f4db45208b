#!/bin/bash
# Runs pytest: with arguments once, with them; without, everything. Tests on real Slurm mostly wait,
# so two workers with a Slurm each take them, a file at a time, beside the others; tests of torch's
# side follow. What processes can share takes the time that all these leave: three of them, since
# some tests wait. What runs beside is printed at the end.
set -uom pipefail
cd "$(dirname "$0")/.." || exit
# Some tests send signals, which whoever starts this may ignore (nohup, a shell in the background).
run=(env --default-signal .venv/bin/python -m pytest --durations=25 --durations-min=5)
if (($#)); then exec "${run[@]}" "$@"; fi

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
# Of this checkout: another one's tests, on the same machine, would take it down when they are over.
box=${HPCKIT_SLURMBOX:-/tmp/hpckit-slurmbox-$(pwd -P | cksum | cut -d' ' -f1)}
slurm=(tests/clients tests/slurm tests/workloads tests/parallel)
HPCKIT_SLURMBOX=$box "${run[@]}" -n 2 --dist loadfile --no-loadscope-reorder \
  "${slurm[@]}" >"$said/1" 2>&1 &
beside=($!)
shared=(tests/advice tests/report tests/stats tests/unit)
nice -n 10 "${run[@]}" -n 3 --dist worksteal "${shared[@]}" >"$said/2" 2>&1 &
beside+=($!)
# They have process groups of their own, which Ctrl-C does not reach: their Slurm must be stopped.
trap 'for pid in "${beside[@]}"; do kill -INT -- -"$pid"; done; wait "${beside[@]}"; exit 130' INT TERM
# The longest part goes first, where two want the same core.
nice -n 5 "${run[@]}" "${slurm[@]/#/--ignore=}" "${shared[@]/#/--ignore=}"
others=$? ended=()
for pid in "${beside[@]}"; do
  wait "$pid"
  ended+=($?)
done
cat "$said"/[12]
echo "Tests on real Slurm, and of torch: exit status ${ended[0]}. All others: exit status $others ${ended[1]}."
((!others && !ended[0] && !ended[1]))
