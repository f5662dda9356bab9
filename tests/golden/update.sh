#!/usr/bin/env bash
# Writes the golden numbers of a policy with its default options: tests/golden/update.sh PROGRAM NAME.
# Called by ./lakebed golden.
set -euo pipefail
program=$1 name=$2
cd -- "$(dirname -- "$0")/../.."
# The program knows the names, and tells the nearest; it also takes options, which golden numbers are without.
if [[ ! $name =~ ^[a-z][a-z0-9]*$ ]]; then
  printf "lakebed golden: '%s' is no name of a policy; 'lakebed policies' lists them\n" "$name" >&2
  exit 2
fi
"$program" policies "$name" >/dev/null || exit
written=tests/golden/replay/$name.json
trap 'rm -f -- "$written.new"' EXIT
traces=(workloads/bundled/{edge,sawtooth_seq,multi_stream}.txt.xz)
"$program" replay "${traces[@]}" --policy "$name" --no-host-timing --quiet --json - >"$written.new"
mv -- "$written.new" "$written"
printf 'lakebed golden: %s is written\n' "$written" >&2
