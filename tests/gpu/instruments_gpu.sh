#!/usr/bin/env bash
# Instruments on a real GPU: instruments_gpu.sh [PROGRAM [FOLDER]]
#
# PROGRAM: the lakebed binary, default .lakebed/lakebed. FOLDER: where logs and results go, default a
# new one. Needs a GPU; Nsight Compute (ncu) and compute-sanitizer where there are any. Prints a line a check and
# "N passed, N failed, N skipped"; exits 1 if anything failed, 4 without
# the program or a GPU.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
program=${1:-.lakebed/lakebed}
source tests/gpu/needs.sh
need_program "$program"
need_gpu "$program"
program=$(readlink -f -- "$program")
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(readlink -f -- "$folder")
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); printf 'ok       %s\n' "$*"; }
fail() { failed=$((failed + 1)); printf 'FAILED   %s\n' "$*"; }
skip() { skipped=$((skipped + 1)); printf 'skipped  %s\n' "$*"; }
check() {
  local what=$1
  shift
  if "$@"; then pass "$what"; else fail "$what"; fi
}

# Enough of all sizes for every state of gmlake: 120 allocations, 80 of them freed.
events=$folder/events.txt
for ((i = 0; i < 120; i++)); do
  echo "a $i $((i * 2654435761 % 40 * 700000 + 1000)) $((i % 2))"
  case $((i % 3)) in
    1) echo "f $((i - 1))" ;;
    2) echo "f $i" ;;
  esac
done >"$events"
allocations=120

replay() { "$program" replay -q --driver cuda "$@" "$events"; }

replay -p gmlake,bfc,native --verify >"$folder/plain.txt" 2>&1
status=$?
if [ $status -ne 0 ]; then
  tail -n 5 "$folder/plain.txt"
  fail "replay --driver cuda --verify without instruments ends with $status"
  printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
  exit 1
fi
pass "replay --driver cuda --verify without instruments"

# ---- Nsight Compute chooses kernels by our ranges ----

# How many kernels ncu measured; all arguments but the first go to it. -1: it failed.
kernels() {
  local log=$folder/ncu_$1.csv
  shift
  ncu --nvtx --clock-control none --metrics gpu__time_duration.sum --csv "$@" \
    "$program" replay -q --driver cuda -p gmlake --verify --nvtx all "$events" >"$log" 2>&1
  local status=$?
  if grep -q 'No kernels were profiled' "$log"; then
    echo 0
  elif [ $status -ne 0 ]; then
    echo -1
  else
    # A row a metric; the first field is the kernel's number.
    grep -cE '^"[0-9]+",' "$log"
  fi
}

if command -v ncu >/dev/null; then
  all=$(kernels all)
  filled=$(kernels fill --nvtx-include 'lakebed@fill/')
  verified=$(kernels verify --nvtx-include 'lakebed@verify/')
  nested=$(kernels nested --nvtx-include 'lakebed@gmlake/fill')
  of_run=$(kernels run --nvtx-include 'lakebed@gmlake/')
  none=$(kernels none --nvtx-include 'lakebed@no such range/')
  excluded=$(kernels exclude --nvtx-include 'lakebed@gmlake/' --nvtx-exclude 'lakebed@fill/')
  echo "         ncu: $all kernels; $filled in fill, $verified in verify, $nested in gmlake/fill, $of_run in gmlake," \
    "$excluded in gmlake but not in fill, $none in a range that does not exist"
  if [ "$all" -le 0 ]; then
    tail -n 3 "$folder/ncu_all.csv"
    fail "ncu measures the verification's kernels"
  else
    pass "ncu measures the verification's kernels"
    check "ncu --nvtx-include lakebed@fill/ selects one kernel an allocation or more" [ "$filled" -ge $allocations ]
    # Outside of every run's range lie the kernels of the module's first use.
    check "fill and verify are all kernels of the run" [ $((filled + verified)) -eq "$of_run" ]
    check "a path of ranges selects as its last one does" [ "$nested" -eq "$filled" ]
    check "the range of the run holds no more than there are" [ "$of_run" -le "$all" ]
    check "--nvtx-exclude leaves out fill" [ "$excluded" -eq "$verified" ]
    check "a range that does not exist selects none" [ "$none" -eq 0 ]
    ncu --nvtx --clock-control none --section LaunchStats --launch-count 1 --nvtx-include 'lakebed@fill/' \
      --page details "$program" replay -q --driver cuda -p gmlake --verify --nvtx all "$events" >"$folder/ncu_state.txt" 2>&1
    grep -i -A 8 'nvtx' "$folder/ncu_state.txt" | head -n 12
  fi
else
  skip "Nsight Compute: there is no ncu"
fi

# ---- CUPTI beside our own clock ----

replay -p gmlake,native,bfc --json "$folder/cupti.json" --cupti >"$folder/cupti.txt" 2>&1
check "replay --cupti" [ $? -eq 0 ]
cat "$folder/cupti.txt"
if command -v python3 >/dev/null; then
  python3 - "$folder/cupti.json" <<'PYTHON'
import json, sys
wrong = 0
for run in json.load(open(sys.argv[1])):
    cupti = run["cupti"]
    if isinstance(cupti, str):
        print("        ", run["policy"], cupti)
        wrong += 1
        continue
    for row in run["call_latency"]:
        own, heard = row["own"], row["cupti"]
        if own["count"] and (own["count"] != heard["count"] or own["us"] < heard["us"]):
            print("        ", run["policy"], row["operation"], row["call"], own["count"], heard["count"], own["us"], heard["us"])
            wrong += 1
    total = sum(row["own"]["us"] for row in run["call_latency"])
    heard = sum(row["cupti"]["us"] for row in run["call_latency"] if row["own"]["count"])
    print(f"         {run['policy']}: own {total:.0f} us, CUPTI {heard:.0f} us; a call costs CUPTI "
          f"{cupti['overhead_ns_per_call']} ns, our clock {run['own_clock']['overhead_ns_per_call']} ns; "
          f"memory records {cupti['memory_records']}")
sys.exit(wrong != 0)
PYTHON
  check "both clocks see the same calls, and ours never less time" [ $? -eq 0 ]
else
  skip "the JSON of --cupti: there is no python3"
fi

# ---- trace events ----

replay -p gmlake,native --verify --trace-events "$folder/trace.json" >"$folder/trace.txt" 2>&1
check "replay --trace-events" [ $? -eq 0 ]
if command -v python3 >/dev/null; then
  python3 - "$folder/trace.json" <<'PYTHON'
import json, sys
depth, latest, begun = {}, {}, 0
for event in json.load(open(sys.argv[1]))["traceEvents"]:
    run = event["pid"]
    if event["ph"] == "M":
        continue
    assert event["ts"] >= latest.get(run, 0), event
    latest[run] = event["ts"]
    depth[run] = depth.get(run, 0) + {"B": 1, "E": -1, "C": 0}[event["ph"]]
    assert depth[run] >= 0, event
    begun += event["ph"] == "B"
assert all(value == 0 for value in depth.values()), depth
print(f"         {begun} ranges of {len(depth)} runs, all closed")
PYTHON
  check "the trace is balanced and its time goes forward" [ $? -eq 0 ]
fi

# ---- compute-sanitizer ----

if command -v compute-sanitizer >/dev/null; then
  for policy in gmlake bfc native; do
    compute-sanitizer --tool memcheck --error-exitcode 77 \
      "$program" replay -q --driver cuda -p $policy --verify "$events" >"$folder/memcheck_$policy.txt" 2>&1
    status=$?
    grep 'ERROR SUMMARY' "$folder/memcheck_$policy.txt"
    check "memcheck finds nothing in replay --verify, $policy" \
      [ "$status" -eq 0 -a "$(grep -c 'ERROR SUMMARY: 0 errors' "$folder/memcheck_$policy.txt")" -eq 1 ]
  done
  # The sanitizer holds CUPTI's place: our own clock goes on.
  compute-sanitizer --tool memcheck "$program" replay -q --driver cuda -p native --json "$folder/occupied.json" --cupti \
    "$events" >"$folder/occupied.txt" 2>&1
  check "--cupti under another tool ends well" [ $? -eq 0 ]
  grep -h 'cupti' "$folder/occupied.txt" | head -n 2
  # Names of memory, as the sanitizer takes them.
  compute-sanitizer --tool memcheck --nvtx yes --error-exitcode 77 \
    "$program" replay -q --driver cuda -p gmlake --verify --nvtx all "$events" >"$folder/memcheck_nvtx.txt" 2>&1
  status=$?
  grep 'ERROR SUMMARY' "$folder/memcheck_nvtx.txt"
  check "memcheck --nvtx yes finds nothing with memory named by us" [ "$status" -eq 0 ]
else
  skip "compute-sanitizer: there is none"
fi

printf '%d passed, %d failed, %d skipped; logs in %s\n' $passed $failed $skipped "$folder"
[ $failed -eq 0 ]
