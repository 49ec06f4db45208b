#!/bin/bash
# Runs all tests in less time than one after the other: those on Slurm mostly wait, so the others run
# beside them. Those that play timelines to the sampler need the machine for themselves, and come last.
#
#     tests/in_two.sh PYTHON
set -uo pipefail
cd "$(dirname "$0")/.." || exit
python=$1
beside=$(mktemp)
trap 'rm -f "$beside"' EXIT

# Slurm's daemons and the jobs' clocks come first.
nice -n 15 "$python" -m pytest --ignore=tests/slurm --ignore=tests/clients --ignore=tests/stats >"$beside" 2>&1 &
"$python" -m pytest -p no:cacheprovider tests/slurm tests/clients
slurm=$?
wait $!
others=$?
cat "$beside"
"$python" -m pytest -p no:cacheprovider tests/stats
stats=$?
echo "Exit statuses of pytest: $slurm on Slurm, $others without, $stats with the sampler."
exit $((slurm | others | stats))
