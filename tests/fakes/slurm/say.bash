#!/bin/bash
# Print a recording, $1, as squeue or sacct would have when called with the rest: what hpckit puts
# behind each separator is new at each call, and a recording has none of it. Also sourced.
set -eu
for argument in "${@:2}"; do
  case $argument in
    --format=$'\x1e'*) mark=${argument#*$'\x1e'} mark=${mark%%%*} ;;
    --delimiter=$'\x1f'*) mark=${argument#*$'\x1f'} ;;
  esac
done
sed "s/[\x1e\x1f]/&${mark-}/g" "$1"
