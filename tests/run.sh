#!/bin/bash
# Runs pytest: with arguments once, with them; without, everything. Tests on real Slurm mostly wait,
# so two parts of them, each with a Slurm of its own, run beside the others; what they said is
# printed at the end. Tests of torch's side follow, so that all three take as long; of the others,
# what processes can share comes last, when the Slurm parts leave a core to it: three of them, since
# some tests wait.
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
# They have process groups of their own, which Ctrl-C does not reach: their Slurm must be stopped.
trap 'for pid in "${beside[@]}"; do kill -INT -- -"$pid"; done; wait "${beside[@]}"; exit 130' INT TERM
shared=(tests/advice tests/report tests/stats tests/unit)
"${run[@]}" "${shared[@]/#/--ignore=}" \
  --ignore={tests/slurm,tests/clients,tests/workloads,tests/parallel}
others=($?) slurm=()
"${run[@]}" -n 3 --dist worksteal "${shared[@]}"
others+=($?)
for pid in "${beside[@]}"; do
  wait "$pid"
  slurm+=($?)
done
cat "$said/1" "$said/2"
echo "Tests on real Slurm, and of torch: exit status ${slurm[*]}. All others: exit status ${others[*]}."
((!others[0] && !others[1] && !slurm[0] && !slurm[1]))
