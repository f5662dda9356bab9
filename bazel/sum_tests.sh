#!/usr/bin/env bash
# Adds up what the test binaries counted: sum_tests.sh EVENTS STATUS
#
# EVENTS is the file that bazel test --build_event_json_file wrote, STATUS bazel's exit
# status. Prints each skipped case with its reason, each binary that failed, and
# the closing line "N passed, N failed, N skipped". Exits 1 if anything failed.
set -euo pipefail
events=$1 status=$2
passed=0 failed=0 skipped=0

# The text after "KEY":" up to the next quote.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

# A test's log, wherever its event names it.
log_path() {
  local uri
  uri=$(grep -o '"name":"test.log","uri":"file://[^"]*"' <<<"$1" | head -n 1) || return 0
  uri=${uri#*\"uri\":\"file://}
  uri=${uri%\"}
  printf '%b' "${uri//%/\\x}"
}

if [ -f "$events" ]; then
  # One line an event. Of several attempts at one test the last counts.
  declare -A result
  order=()
  while IFS= read -r line; do
    label=$(grep -o '"label":"[^"]*"' <<<"$line" | head -n 1 | cut -d'"' -f4)
    run=$(grep -oE '"(run|shard)":[0-9]+' <<<"$line" | head -n 2 | tr -d '\n' || true)
    [ -n "${result["$label $run"]:-}" ] || order+=("$label $run")
    result["$label $run"]=$line
  done < <(grep '^{"id":{"testResult":' "$events" || true)

  for key in "${order[@]}"; do
    label=${key%% *}
    line=${result["$key"]}
    log=$(log_path "$line")
    counts=
    if [ -f "$log" ]; then
      counts=$(grep -aE '^lakebed-tests: passed=[0-9]+ failed=[0-9]+ skipped=[0-9]+$' "$log" | tail -n 1 || true)
      sed -n "s|^skipped |skipped $label |p" "$log"
    fi
    case_failed=0
    if [[ $counts =~ passed=([0-9]+)\ failed=([0-9]+)\ skipped=([0-9]+) ]]; then
      passed=$((passed + BASH_REMATCH[1]))
      case_failed=${BASH_REMATCH[2]}
      skipped=$((skipped + BASH_REMATCH[3]))
    fi
    verdict=$(field status "$line")
    if [ "$verdict" != PASSED ] || [ -z "$counts" ]; then
      # A binary that crashed, ran out of time or failed after its last case.
      [ "$case_failed" -gt 0 ] || case_failed=1
      printf 'failed %s (%s): %s\n' "$label" "$verdict" "$log"
    fi
    failed=$((failed + case_failed))
  done

  # Tests that could not be built.
  tests=$(grep '^{"id":{"targetConfigured":' "$events" | grep '"targetKind":"[a-z]*_test rule"' |
    grep -o '"label":"[^"]*"' | cut -d'"' -f4 | sort -u || true)
  unbuilt=$(grep '^{"id":{"targetCompleted":' "$events" | grep -v '"success":true' |
    grep -o '"targetCompleted":{"label":"[^"]*"' | cut -d'"' -f6 | sort -u || true)
  while IFS= read -r label; do
    [ -n "$label" ] || continue
    printf 'failed %s: not built\n' "$label"
    failed=$((failed + 1))
  done < <(comm -12 <(printf '%s\n' "$tests") <(printf '%s\n' "$unbuilt"))
fi

# Bazel itself failed: something else does not build, or there was no test.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
if [ $((passed + failed)) -eq 0 ]; then failed=1; fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
