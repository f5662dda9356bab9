#!/usr/bin/env bash
# Follows docs/add-a-policy.md to the letter in a copy of the tree: every sh block is run as it stands.
set -euo pipefail
root=$(cd -- "$(dirname -- "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'cd /; rm -rf -- "$copy"' EXIT
git -C "$root" ls-files -z --cached --others --exclude-standard | (cd -- "$root" && tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null) |
  tar -xf - -C "$copy"
cd -- "$copy"
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' docs/add-a-policy.md >commands.sh
[ -s commands.sh ] || { echo 'docs/add-a-policy.md has no commands' >&2; exit 1; }
bash -euo pipefail -x commands.sh
