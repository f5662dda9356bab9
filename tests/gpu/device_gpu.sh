#!/usr/bin/env bash
# The real device: device_gpu.sh [PROGRAM [TESTS [FOLDER [TRACE...]]]]
#
# PROGRAM: the lakebed binary, default .lakebed/lakebed. TESTS: the folder with the test binaries
# vmm_conformance_test and vmm_cuda_test, default .lakebed/bazel-bin/tests. FOLDER: where logs and results go, default a
# new one. TRACE: what is replayed, default the bundled ones. POLICIES: which, default all but those that take
# minutes. Needs a GPU; compute-sanitizer and python3 where there are any. Prints a line a check and
# "N passed, N failed, N skipped"; exits 1 if anything failed, 4 without
# the program or a GPU.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
program=${1:-.lakebed/lakebed}
tests=${2:-.lakebed/bazel-bin/tests}
source tests/gpu/needs.sh
need_program "$program"
need_tests "$tests" vmm_conformance_test vmm_cuda_test
need_gpu "$program"
program=$(readlink -f -- "$program")
tests=$(readlink -f -- "$tests")
folder=${3:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(readlink -f -- "$folder")
traces=("${@:4}")
[ ${#traces[@]} -gt 0 ] || traces=(workloads/bundled/*)
policies=${POLICIES:-native,bfc,expandable,tfbfc,gmlake,aliasheap,rawvmm:chunk=1GiB}
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); printf 'ok       %s\n' "$*"; }
fail() { failed=$((failed + 1)); printf 'FAILED   %s\n' "$*"; }
skip() { skipped=$((skipped + 1)); printf 'skipped  %s\n' "$*"; }

# check WHAT LOG COMMAND...: the command ends with 0. Its output goes to a log, whose end is shown if it does not.
check() {
  local what=$1 log=$folder/$2 begin=$SECONDS
  shift 2
  if "$@" >"$log" 2>&1; then
    pass "$what ($((SECONDS - begin)) s)"
  else
    fail "$what ends with $?"
    tail -n 15 "$log"
  fi
}

check "doctor" doctor.txt "$program" doctor --probe-memory --json="$folder/doctor.json"
cat "$folder/doctor.txt"

# In one process: making a context takes longer than the cases.
check "every driver's cases on the device" conformance.txt env CK_FORK=no CK_RUN_CASE=cuda "$tests/vmm_conformance_test"
check "the real device's own cases" cuda.txt env CK_FORK=no "$tests/vmm_cuda_test"
grep -h '^lakebed-tests' "$folder/conformance.txt" "$folder/cuda.txt"

for trace in "${traces[@]}"; do
  name=$(basename -- "$trace")
  check "$name: every policy, verified" "verify_$name.txt" \
    "$program" replay -q --driver cuda --verify "$trace" -p "$policies" --json "$folder/verify_$name.json"
done
check "all traces, timed" plain.txt \
  "$program" replay -q --driver cuda "${traces[@]}" -p "$policies" --json "$folder/plain.json"
check "the same on the simulated device" sim.txt \
  "$program" replay -q "${traces[@]}" -p "$policies" --json "$folder/sim.json"

# Reserved memory and calls must be those of the simulated device; time is shown.
if command -v python3 >/dev/null; then
  python3 - "$folder" <<'PYTHON' | tee "$folder/compared.txt"
import glob, json, sys
folder = sys.argv[1]
key = lambda run: (run["trace"], run["policy"], json.dumps(run["options"], sort_keys=True))
simulated = {key(run): run for run in json.load(open(folder + "/sim.json"))}
different = 0
for path in [folder + "/plain.json"] + sorted(glob.glob(folder + "/verify_*.json")):
    for run in json.load(open(path)):
        twin = simulated.get(key(run))
        if twin is None or "driver_calls" not in run or "driver_calls" not in twin:
            continue
        what = []
        if run["reserved_peak_bytes"] != twin["reserved_peak_bytes"]:
            what.append("reserved %d, simulated %d" % (run["reserved_peak_bytes"], twin["reserved_peak_bytes"]))
        for call in sorted(set(run["driver_calls"]) | set(twin["driver_calls"])):
            counts = [side["driver_calls"].get(call, {"count": 0})["count"] for side in (run, twin)]
            if counts[0] != counts[1]:
                what.append("%s %d, simulated %d" % (call, *counts))
        different += bool(what)
        timed = path.endswith("plain.json")
        if what or timed:
            time = "driver ms %.1f, simulated %.1f (%.2f)" % (
                run["driver_us"] / 1000, twin["driver_us"] / 1000,
                twin["driver_us"] / max(run["driver_us"], 1e-9)) if timed else "verified"
            print("%-44s %-12s %s%s" % (run["trace"], run["policy"], time, "; DIFFERS: " + ", ".join(what) if what else ""))
print("%d runs differ from the simulated device" % different)
PYTHON
  if grep -q '^0 runs differ' "$folder/compared.txt"; then
    pass "memory and calls are those of the simulated device"
  else
    fail "memory and calls are those of the simulated device"
  fi
else
  skip "comparison with the simulated device: there is no python3"
fi

if command -v compute-sanitizer >/dev/null; then
  check "memcheck finds nothing in replay --verify" memcheck.txt compute-sanitizer --tool memcheck --error-exitcode 77 \
    "$program" replay -q --driver cuda --verify workloads/bundled/edge.txt.xz -p "$policies"
  grep -h 'ERROR SUMMARY' "$folder/memcheck.txt"
else
  skip "memcheck: there is no compute-sanitizer"
fi

printf '%d passed, %d failed, %d skipped; logs in %s\n' $passed $failed $skipped "$folder"
[ $failed -eq 0 ]
