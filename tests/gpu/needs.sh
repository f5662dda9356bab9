# shellcheck shell=bash
# What the checks on a machine with a GPU need, for those that source it: one sentence and exit status 4 without.

need_program() {
  [ -x "$1" ] || { echo "There is no program at $1: build it with ./lakebed version, or name another." >&2; exit 4; }
}

# need_tests FOLDER NAME...
need_tests() {
  local folder=$1 name
  shift
  for name in "$@"; do
    [ -x "$folder/$name" ] && continue
    echo "There is no test $folder/$name: build it with ./lakebed test //tests:$name, or name another folder." >&2
    exit 4
  done
}

# need_gpu PROGRAM. What else may be wrong with the device is for the checks to find.
need_gpu() {
  local found status=0
  found=$("$1" doctor 2>&1) || status=$?
  [ $status -eq 4 ] || return 0
  echo "No GPU can be used here: $(sed -nE 's/^(FAILED|missing) +[^ ]+ +//p' <<<"$found" | head -n 1)" >&2
  exit 4
}
