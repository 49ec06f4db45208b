#!/bin/bash
# The tests on real Slurm, on that of another Debian: `tests/other_slurm.sh trixie` (Slurm 24.11) or
# `forky` (26.05), with pytest's arguments after it. As root. Debian's packages lie in a folder of
# their own; this checkout, with its environments, and its Python are seen from inside it.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:?"usage: tests/other_slurm.sh trixie|forky [pytest arguments]"}
shift
(($#)) || set -- -m slurm tests
root=${HPCKIT_OTHER:-/var/tmp/hpckit-debian}/$suite
python=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')
if [[ $python == /usr ]]; then
  echo "The environments are made of the system's Python, which does not run inside another Debian." \
    "Make them of one in a folder of its own: make clean; make test PYTHON=/path/to/python3" >&2
  exit 2
fi
if [[ ! -e $root/.hpckit-made ]]; then
  command -v debootstrap >/dev/null || apt-get install -y -qq debootstrap
  mkdir -p "$root"
  # debootstrap may be older than the release: all of them are made alike.
  debootstrap --variant=minbase "$suite" "$root" http://deb.debian.org/debian \
    /usr/share/debootstrap/scripts/sid
  touch "$root/.hpckit-made"
fi
cp /etc/resolv.conf /etc/hosts "$root/etc/" # torch warns of a machine whose name has no address
mkdir -p "$root$PWD" "$root$python" "$root/opt" "$root/certificates"
cp -rL /etc/ssl/certs/. "$root/certificates/" # a proxy may have its own
# slurmdbd does not start with libmariadb3 11.8.9, which says "Number of columns in result (=1) set
# execeeds maxmimum allowed number of columns (=0)"; Debian 12's is older.
older=/usr/lib/x86_64-linux-gnu/libmariadb.so.3
cmp -s "$older" "$root/older-libmariadb.so.3" || cp "$older" "$root/older-libmariadb.so.3"

# All mounts are this process's own, and go with it.
# shellcheck disable=SC2016
exec unshare --mount bash -c '
  set -euo pipefail
  root=$1 python=$2 here=$PWD
  shift 2
  mount --make-rprivate /
  mount --bind "$root" "$root"
  for folder in /proc /dev /sys /opt "$here" "$python"; do mount --rbind "$folder" "$root$folder"; done
  # No chroot: in one, no namespace of users can be made.
  cd "$root"
  mkdir -p before
  pivot_root . before
  umount -l /before
  cd "$here"
  exec tests/inside_other.sh "$@"
' other "$root" "$python" "$@"
