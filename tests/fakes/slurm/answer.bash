# Sourced by each fake program: records the call, then answers from files or by default.
# FAKE_SLURM_DIR holds calls.jsonl (one JSON list per call: program and arguments) and, for a
# program P, P.out, P.err and P.rc: what it prints, and its exit status.
# shellcheck shell=bash

: "${FAKE_SLURM_DIR:?must name the folder of answers for the fake Slurm}"
PATH=$PATH:/usr/bin:/bin

# Put one argument into REPLY as a JSON string; JSON allows no raw control characters.
json_string() {
  local code raw escaped
  REPLY=${1//\\/\\\\}
  REPLY=${REPLY//\"/\\\"}
  if [[ $REPLY == *[[:cntrl:]]* ]]; then
    for code in {1..31}; do
      printf -v escaped '\\u%04x' "$code"
      printf -v raw '%b' "\\x${escaped: -2}"
      REPLY=${REPLY//"$raw"/"$escaped"}
    done
  fi
  REPLY="\"$REPLY\""
}

# Append one line for a call in a single write, so that parallel calls do not mix.
record() {
  local line='' argument
  called=("${@:2}")
  for argument in "$@"; do
    json_string "$argument"
    line+="${line:+, }$REPLY"
  done
  printf '[%s]\n' "$line" >>"$FAKE_SLURM_DIR/calls.jsonl"
}

# Print what P.out and P.err say, or the default text $2, and exit as P.rc says.
answer() {
  local files=$FAKE_SLURM_DIR/$1 status=0
  [[ ! -f $files.rc ]] || status=$(<"$files.rc")
  [[ ! -f $files.err ]] || cat "$files.err" >&2
  if [[ -f $files.out ]]; then
    # shellcheck source-path=SCRIPTDIR source=say.bash
    . "${BASH_SOURCE[0]%/*}/say.bash" "$files.out" "${called[@]}"
  elif [[ $status -eq 0 && -n ${2-} ]]; then
    printf '%s\n' "$2"
  fi
  exit "$status"
}

# Say whether one of the options $1 (words) is among the other arguments.
has_option() {
  local option argument
  for option in $1; do
    for argument in "${@:2}"; do
      [[ $argument != "$option" ]] || return 0
    done
  done
  return 1
}
