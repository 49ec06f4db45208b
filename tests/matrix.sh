#!/bin/bash
# The quick tests under each Python that hpckit is for, in an environment of its own: those that are
# on PATH or that pyenv has. Says loudly which are not here. With arguments: only these versions.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# The first of these programs that is this version (pyenv's shims may start nothing), by its path.
find_python() {
  local version=$1 program
  while read -r program; do
    "$program" -c "import sys; assert '%d.%d' % sys.version_info[:2] == '$version'; print(sys.executable)" \
      2>/dev/null && return
  done < <(type -ap "python$version"; compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version.*/bin/python")
}

(($#)) || set -- 3.11 3.12 3.13 3.14
missing=() failed=() passed=()
for version; do
  python=$(find_python "$version")
  if [[ -z $python ]]; then
    missing+=("$version")
    continue
  fi
  echo "== Python $version: $python"
  if make --no-print-directory fast-tests VENV=".venv-$version" PYTHON="$python"; then
    passed+=("$version")
  else
    failed+=("$version")
  fi
done
echo "Python passed: ${passed[*]:-none}. Failed: ${failed[*]:-none}. NOT RUN, because it is not here: ${missing[*]:-none}."
((${#passed[@]} && !${#failed[@]}))
