#!/bin/bash
# What the tests need from Debian: real Slurm, Lmod, MPI, Chromium, Prometheus, sshd, the Fashion-MNIST images.
# Without root, or elsewhere than on a Debian-like system, it says what will not run, and goes on.
set -euo pipefail

packages=(
    slurm-wlm slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge mariadb-server
    chromium lmod openmpi-bin libopenmpi-dev libpmix2 dataset-fashion-mnist git prometheus
    zsh fish groff-base openssh-client openssh-server libslurm-dev g++
)

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "################################################################################"
    echo "# NOT RUN: every test against a real Slurm, real Lmod, Chromium and the Fashion-"
    echo "# MNIST images. They need root on a Debian-like system, to install and start:"
    echo "#   ${packages[*]}" | fold -s -w 78 | sed '2,$s/^/#   /'
    echo "################################################################################"
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
        missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing ${missing[*]}"
    apt-get update -qq
    # No service starts by itself: the tests bring up their own, in a folder of their own.
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d.hpckit
    chmod +x /usr/sbin/policy-rc.d.hpckit
    made_policy=no
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        mv /usr/sbin/policy-rc.d.hpckit /usr/sbin/policy-rc.d
        made_policy=yes
    else
        rm /usr/sbin/policy-rc.d.hpckit
    fi
    status=0
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/tmp/hpckit-apt.log 2>&1 || status=$?
    if [ "$made_policy" = yes ]; then rm -f /usr/sbin/policy-rc.d; fi
    if [ "$status" != 0 ]; then
        tail -n 20 /tmp/hpckit-apt.log >&2
        exit "$status"
    fi
fi
