"""What Lakebed's package promises beyond PyTorch's own functions, on a real GPU: python policy_checks.py

Prints one line a check and 'N passed, N failed'; exit status 1 if any failed, 4 without a GPU. Each check is a process of its own.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

GRAPHS_ARE_REFUSED = """
import torch, lakebed
lakebed.use("aliasheap")
x = torch.ones(1 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
for _ in range(2):
    try:
        with torch.cuda.graph(graph):
            y = x * 2
        raise SystemExit("captured")
    except RuntimeError as error:
        assert "CUDA graphs" in str(error), error
torch.cuda.synchronize()
assert float((x * 3).sum()) == 3 << 20
"""

POOLS_GET_SEGMENTS = """
import torch, lakebed
pool = lakebed.mempool("gmlake")
with torch.cuda.use_mem_pool(pool):
    x = torch.ones(1 << 26, device="cuda")
    small = torch.ones(1000, device="cuda")
told = lakebed.stats()
assert told["policy"] == "gmlake" and told["reserved_bytes"]["current"] >= 1 << 28, told
assert float(x.sum()) == 1 << 26 and torch.cuda.memory_stats()["allocated_bytes.all.current"] >= 1 << 28
with torch.cuda.use_mem_pool(pool):
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        raise SystemExit("no exception")
    except torch.OutOfMemoryError:
        pass
del x, small
"""

STATISTICS_ANSWER = """
import torch, lakebed
lakebed.use("bfc")
x = torch.ones(1 << 22, device="cuda")
assert torch.cuda.memory_allocated() == 1 << 24 and torch.cuda.max_memory_reserved() == 1 << 24
assert "Allocated memory" in torch.cuda.memory_summary()
del x
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 0
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
torch.cuda.set_per_process_memory_fraction(0.01)
try:
    torch.empty(torch.cuda.get_device_properties(0).total_memory // 50, dtype=torch.uint8, device="cuda")
    raise SystemExit("no exception")
except torch.OutOfMemoryError as error:
    assert "may hold" in str(error), error
print(lakebed.summary())
"""

DEVICES_REACH_EACH_OTHER = """
import torch, lakebed
lakebed.use("aliasheap")
count = torch.cuda.device_count()
x = torch.arange(1 << 24, device="cuda:0")
for device in range(1, count):
    y = x.to(f"cuda:{device}")
    assert bool((y.to("cuda:0") == x).all())
    assert lakebed.stats(device)["device"] == device
print(count, "devices")
"""

FORKED_CHILDREN_LEAVE_IT_ALONE = """
import os, torch, lakebed
lakebed.use("gmlake")
x = torch.ones(1 << 22, device="cuda")
child = os.fork()
if child == 0:
    del x
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert float(x.sum()) == 1 << 22
"""

RECORDED = """
import sys, torch, lakebed
policy, path = sys.argv[1:]
lakebed.use(policy)
lakebed.record(path)
for size in (1000, 3 << 20, 40 << 20):
    x = torch.empty(size, dtype=torch.uint8, device="cuda")
    y = torch.empty(size // 2, dtype=torch.uint8, device="cuda")
    del x
"""


def run(text, *arguments):
    environment = os.environ | {"PYTHONPATH": os.path.dirname(HERE), "LAKEBED_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", text, *arguments], env=environment, capture_output=True, text=True)
    return done.returncode == 0, (done.stdout + done.stderr).strip().splitlines()[-1:] or [""]


def recorded(policy, name):
    path = os.path.join(tempfile.mkdtemp(), name)
    passed, told = run(RECORDED, policy, path)
    return passed and os.path.getsize(path) > 0, told


def main():
    import torch

    if not torch.cuda.is_available():
        print("policy_checks: PyTorch finds no GPU here, and these checks need one", file=sys.stderr)
        return 4
    checks = {
        "graphs are refused": lambda: run(GRAPHS_ARE_REFUSED),
        "pools get segments": lambda: run(POOLS_GET_SEGMENTS),
        "statistics answer": lambda: run(STATISTICS_ANSWER),
        "devices reach each other": lambda: run(DEVICES_REACH_EACH_OTHER),
        "forked children leave it alone": lambda: run(FORKED_CHILDREN_LEAVE_IT_ALONE),
        "a run is recorded": lambda: recorded("aliasheap", "run.lbt.zst"),
        "a run under pytorch is recorded": lambda: recorded("pytorch", "run.pickle.xz"),
    }
    failed = 0
    for name, check in checks.items():
        passed, told = check()
        failed += not passed
        print("passed" if passed else "FAILED", name, *told, flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
