#!/bin/bash
# Runs pytest: with arguments once, with them; without, everything. Tests on real Slurm mostly wait,
# so two parts of them, each with a Slurm of its own, run beside the others; tests of torch's side
# follow. What processes can share takes the time that all these leave: three of them, since some
# tests wait. What runs beside is printed at the end.
set -uom pipefail
cd "$(dirname "$0")/.." || exit
# Some tests send signals, which whoever starts this may ignore (nohup, a shell in the background).
run=(env --default-signal .venv/bin/python -m pytest --durations=25 --durations-min=5)
if (($#)); then exec "${run[@]}" "$@"; fi

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
# Of this checkout: another one's tests, on the same machine, would take it down when they are over.
box=${HPCKIT_SLURMBOX:-/tmp/hpckit-slurmbox-$(pwd -P | cksum | cut -d' ' -f1)}
HPCKIT_SLURMBOX=$box-submit "${run[@]}" tests/slurm/test_submit_*.py \
  tests/workloads >"$said/1" 2>&1 &
beside=($!)
HPCKIT_SLURMBOX=$box-more "${run[@]}" tests/clients tests/slurm tests/parallel \
  --ignore-glob='*/test_submit_*.py' >"$said/2" 2>&1 &
beside+=($!)
shared=(tests/advice tests/report tests/stats tests/unit)
nice -n 10 "${run[@]}" -n 3 --dist worksteal "${shared[@]}" >"$said/3" 2>&1 &
beside+=($!)
# They have process groups of their own, which Ctrl-C does not reach: their Slurm must be stopped.
trap 'for pid in "${beside[@]}"; do kill -INT -- -"$pid"; done; wait "${beside[@]}"; exit 130' INT TERM
"${run[@]}" "${shared[@]/#/--ignore=}" \
  --ignore={tests/slurm,tests/clients,tests/workloads,tests/parallel}
others=$? ended=()
for pid in "${beside[@]}"; do
  wait "$pid"
  ended+=($?)
done
cat "$said"/[123]
echo "Tests on real Slurm, and of torch: exit status ${ended[*]::2}. All others: exit status $others ${ended[2]}."
((!others && !ended[0] && !ended[1] && !ended[2]))
