#!/usr/bin/env bash
# Writes the golden numbers of a policy with its default options: tests/golden/update.sh PROGRAM NAME.
# Called by ./lakebed golden.
set -euo pipefail
program=$1 name=$2
cd -- "$(dirname -- "$0")/../.."
traces=(workloads/bundled/{edge,sawtooth_seq,multi_stream}.txt.xz)
"$program" replay "${traces[@]}" --policy "$name" --no-host-timing --quiet --json - >"tests/golden/replay/$name.json.new"
mv -- "tests/golden/replay/$name.json.new" "tests/golden/replay/$name.json"
printf 'lakebed: tests/golden/replay/%s.json is written\n' "$name" >&2
