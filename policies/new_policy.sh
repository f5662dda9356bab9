#!/usr/bin/env bash
# Creates the skeleton of a policy and registers it: policies/new_policy.sh NAME SUMMARY.
# Called by ./lakebed new-policy.
set -euo pipefail
cd -- "$(dirname -- "$0")/.."

fail() {
  printf 'lakebed new-policy: %s\n' "$*" >&2
  exit 2
}

[ $# -eq 2 ] || fail "expected a name and a one-line summary: ./lakebed new-policy mine 'what it does'"
name=$1 summary=$2
[[ $name =~ ^[a-z][a-z0-9]{1,30}$ ]] || fail "'$name': a name is 2 to 31 lower-case letters and digits, a letter first"
[[ $summary != *[\"\\/\&$'\n']* && -n $summary ]] || fail "the summary is one line without quotes, slashes and ampersands"
[ ! -e "policies/$name.c" ] || fail "policies/$name.c exists already"
! grep -q "XX($name)" policies/list.h || fail "$name is registered already"

sed -e "s/NAME/$name/g" -e "s/SUMMARY/$summary/g" policies/skeleton.c.in >"policies/$name.c"
# Before the oracle and the null policy, which stay last.
line=$(printf '  XX(%s)%*s\\' "$name" $((18 - ${#name} > 1 ? 18 - ${#name} : 1)) '')
awk -v line="$line" '/XX\(planned\)/ { print line } { print }' policies/list.h >policies/list.h.new
mv -- policies/list.h.new policies/list.h
printf 'lakebed: policies/%s.c is written and registered in policies/list.h\n' "$name" >&2
