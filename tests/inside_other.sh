#!/bin/bash
# The part of tests/other_slurm.sh that runs inside the other Debian.
set -euo pipefail
# As in any shell of tests: the path of the Python is that of the environments.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
unset PYTHONDONTWRITEBYTECODE
if [[ ! -e /hpckit-has-all ]]; then
  # A mirror may lag behind; its signature is checked all the same.
  echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/90hpckit
  apt-get update -qq
  # What Python outside of Debian's own is linked with, and what a machine has that is no chroot.
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates \
    make procps iproute2 python3 libreadline8 libsqlite3-0 libffi8 libbz2-1.0 liblzma5 >/dev/null
  tests/setup_system.sh
  # Open MPI 5 finds no way from one node to the other: both are on this machine's loopback.
  echo "opal_reachable = weighted" >>/etc/openmpi/openmpi-mca-params.conf
  echo "reachable = weighted" >>/etc/openmpi/openmpi-mca-params.conf
  touch /hpckit-has-all
fi
cp -r /certificates/. /etc/ssl/certs/
# Not over the same file: a slurmdbd of other tests here may have it mapped.
newer=$(readlink -f /usr/lib/x86_64-linux-gnu/libmariadb.so.3)
cmp -s /older-libmariadb.so.3 "$newer" || cp /older-libmariadb.so.3 "$newer"
echo "$(slurmctld -V), Open MPI $(mpirun --version | sed -n 1p)"
exec env --default-signal HPCKIT_CLIENTS_VENV="$PWD/.venv-clients" \
  HPCKIT_MPICH_VENV="$PWD/.venv-mpich" .venv/bin/python -m pytest "$@"
