#!/usr/bin/env bash
# Follows docs/add-a-policy.md to the letter in a copy of the tree: every sh block is run as it stands.
set -euo pipefail
root=$(cd -- "$(dirname -- "$0")/.." && pwd)
copy=$(mktemp -d)
# Bazel's own files go with the copy.
export HOME=$copy/home
finish() {
  cd -- "$copy/tree" 2>/dev/null && bazel shutdown >/dev/null 2>&1
  cd /
  chmod -R u+w -- "$copy"
  rm -rf -- "$copy"
}
trap finish EXIT
mkdir -- "$copy/home" "$copy/tree"
(cd -- "$root" && git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -cf -) |
  tar -xf - -C "$copy/tree"
cd -- "$copy/tree"
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' docs/add-a-policy.md >"$copy/commands"
[ -s "$copy/commands" ] || { echo 'docs/add-a-policy.md has no commands' >&2; exit 1; }
bash -euo pipefail -x "$copy/commands"
