#!/bin/bash
# Makes the virtual environment of the clients: tests/clients/setup.sh [FOLDER]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=${1:-${HPCKIT_CLIENTS_VENV:-$root/.venv-clients}}
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet -c "$root/constraints-ci.txt" -r "$root/tests/clients/requirements.txt"
touch "$venv/.done"
