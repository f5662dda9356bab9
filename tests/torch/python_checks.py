"""The Python package over a stub of torch and the real library on the simulated device: python_checks.py NAME."""

import contextlib
import io
import os
import pickle
import sys
import tempfile

os.environ["LAKEBED_TORCH_DEVICE"] = "sim:h200:1GiB"
os.environ["LAKEBED_QUIET"] = "1"

import lakebed
import torch

MIB = 2**20


def raises(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def use_serves_all_memory():
    assert lakebed.policy() == "pytorch"
    lakebed.use("bfc:max_split_size_mb=64")
    assert lakebed.policy() == "bfc:max_split_size_mb=64"
    allocator = torch.cuda.memory.current
    hooks = allocator.hooks.set
    for name in ("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_record_stream_fn",
                 "set_begin_allocate_to_pool"):
        assert hooks[name], name
    assert lakebed.stats() == {}
    torch.cuda.init()
    pointer = allocator.malloc(3 * MIB, 0, None)
    assert pointer
    told = lakebed.stats()
    assert told["policy"] == "bfc" and told["options"]["max_split_size_mb"] == "64"
    assert told["requested_bytes"]["current"] == 3 * MIB and told["reserved_bytes"]["current"] == 20 * MIB
    allocator.free(pointer, 3 * MIB, 0, None)
    assert lakebed.stats()["allocated_bytes"]["peak"] == 3 * MIB
    lakebed.reset_peak()
    assert lakebed.stats(torch.device("cuda:0"))["allocated_bytes"]["peak"] == 0
    assert "expected the number of a device" in raises(ValueError, lakebed.stats, 2**32)
    assert "expected the number of a device" in raises(ValueError, lakebed.stats, -1)
    lakebed.use("bfc:max_split_size_mb=64")
    assert "for as long as the process lives" in raises(RuntimeError, lakebed.use, "gmlake")
    assert "pools" in raises(RuntimeError, lakebed.mempool, "gmlake")


def torch_memory_functions_answer():
    lakebed.use("aliasheap")
    torch.cuda.init()
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    torch.cuda.memory.current.malloc(5 * MIB, 0, None)
    flat = torch.cuda.memory_stats()
    assert flat["allocated_bytes.all.current"] >= 5 * MIB and flat["reserved_bytes.all.peak"] >= 5 * MIB
    assert flat["num_ooms"] == 0 and flat["active.all.current"] == 1
    torch.cuda.reset_peak_memory_stats()


def mistakes_are_told():
    assert "gmlake" in raises(ValueError, lakebed.use, "gmlaek")
    assert "oracle" not in raises(ValueError, lakebed.use, "bfc:nothing=1")
    for fraction in (-0.1, 1.5, float("nan"), float("inf")):
        assert "expected 0 to 1" in raises(ValueError, lakebed.use, "bfc", fraction=fraction)
        assert "expected 0 to 1" in raises(ValueError, lakebed.use, "pytorch", fraction=fraction)
    assert "NUL" in raises(ValueError, lakebed.use, "bfc\0gmlake")
    assert "expected a text" in raises(TypeError, lakebed.use, 5)
    assert lakebed.policy() == "pytorch"
    torch.cuda.init()
    assert "initialized" in raises(RuntimeError, lakebed.use, "bfc").replace("initialised", "initialized")


def a_missing_library_is_told():
    os.environ["LAKEBED_TORCH_LIBRARY"] = "/nowhere/liblakebed_torch.so"
    assert "./lakebed torch" in raises(ImportError, lakebed.use, "bfc")


def a_pytorch_that_cannot_is_told():
    from lakebed import __main__ as program

    torch.__version__ = "1.13"
    pools = torch.cuda.MemPool
    del torch.cuda.MemPool
    assert "2.5" in raises(RuntimeError, lakebed.mempool, "bfc")
    torch.cuda.MemPool = pools
    del torch._C._cuda_customAllocator
    for function in (lakebed.use, lakebed.mempool):
        told = raises(RuntimeError, function, "bfc")
        assert "2.1" in told and "1.13" in told, told
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        try:
            program.main([_script("raise SystemExit(9)")])
            raise AssertionError("it ran")
        except SystemExit as end:
            assert end.code == 4
    assert "2.1" in told.getvalue(), told.getvalue()
    assert lakebed.policy() == "pytorch"


def fractions_bound_a_policy():
    lakebed.use("gmlake", fraction=0.5)
    torch.cuda.init()
    allocator = torch.cuda.memory.current
    assert allocator.malloc(600 * MIB, 0, None) is None
    assert allocator.malloc(400 * MIB, 0, None)
    assert lakebed.stats()["limit_bytes"] == 512 * MIB and lakebed.stats()["out_of_memory"] == 1


def a_pool_gets_segments():
    pool = lakebed.mempool("gmlake")
    assert isinstance(pool, torch.cuda.MemPool) and lakebed.policy() == "pytorch"
    allocator = lakebed._install._kept[-1]
    torch.cuda.init()
    assert allocator.malloc(20 * MIB, 0, None)
    assert allocator.malloc(2048 * MIB, 0, None) is None
    assert lakebed.stats()["policy"] == "gmlake"


def a_recording_is_written():
    folder = tempfile.mkdtemp()
    os.environ["RANK"] = "3"
    lakebed.use("bfc")
    with lakebed.record(f"{folder}/run{{rank}}.lbt") as recording:
        torch.cuda.init()
        allocator = torch.cuda.memory.current
        allocator.free(allocator.malloc(1000, 0, None), 1000, 0, None)
    recording.stop()
    with lakebed.record(os.fsencode(folder) + b"/\xff.lbt", torch.device("cuda:0")):
        pass
    assert b"\xff.lbt" in os.listdir(os.fsencode(folder))
    assert "NUL" in raises(ValueError, lakebed.record, f"{folder}/a\0b")
    assert "expected the number of a device" in raises(ValueError, lakebed.record, f"{folder}/a", 2**32)
    with open(f"{folder}/run3.lbt") as file:
        lines = [line for line in file.read().splitlines() if line[0] in "af"]
    assert len(lines) == 2 and " 1000 " in lines[0], lines


def a_recording_under_pytorch_is_its_snapshot():
    path = os.path.join(tempfile.mkdtemp(), "run.pickle.gz")
    recording = lakebed.record(path)
    assert torch.cuda.memory.history == []
    torch.cuda.init()
    assert torch.cuda.memory.history == ["all"]
    recording.stop()
    import gzip

    with gzip.open(path) as file:
        assert pickle.load(file)["device_traces"][0][0]["size"] == 1000
    assert torch.cuda.memory.history == ["all", None] and os.listdir(os.path.dirname(path)) == ["run.pickle.gz"]


def a_summary_is_for_people():
    assert "nothing" in lakebed.summary()
    lakebed.use("gmlake")
    torch.cuda.init()
    torch.cuda.memory.current.malloc(30 * MIB, 0, None)
    text = lakebed.summary()
    for word in ("gmlake", "frag_limit=", "reserved_bytes", "cuMemCreate", "utilisation"):
        assert word in text, word


def _script(text):
    path = os.path.join(tempfile.mkdtemp(), "script.py")
    with open(path, "w") as file:
        file.write(text)
    return path


def a_script_runs_unchanged():
    from lakebed import __main__ as program

    path = _script(
        "import sys, torch\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['--policy', 'x'] and sys.path[0] in sys.argv[0]\n"
        "torch.cuda.init()\n"
        "assert torch.cuda.memory.current.malloc(100, 0, None)\n"
        "print('trained', torch.cuda.get_allocator_backend())\n"
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        program.main(["--policy", "gmlake:frag_limit=4MiB", path, "--policy", "x"])
    assert printed.getvalue() == "trained pluggable\n"
    assert lakebed.stats()["options"]["frag_limit"] == "4MiB"


def bad_command_lines_are_refused():
    from lakebed import __main__ as program

    path = _script("")
    for arguments, word in (
        (["--policy", "gmlaek", path], "gmlake"),
        (["/nowhere/train.py"], "does not exist"),
        (["--fraction", "2", path], "fraction"),
        ([], "SCRIPT"),
    ):
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            try:
                program.main(arguments)
                raise AssertionError(arguments)
            except SystemExit as end:
                assert end.code == 2, arguments
        assert word in told.getvalue(), told.getvalue()


def _live(folder, plan, *arguments):
    """Runs a plan with every model and GPU replaced; the records."""
    import json
    import subprocess

    with open(f"{folder}/plan.json", "w") as file:
        json.dump(plan, file)
    live = os.path.abspath("tests/torch/stub/live")
    environment = os.environ | {"PYTHONPATH": f"{live}:{os.environ['PYTHONPATH']}"}
    command = [sys.executable, "harness/torch/bench/live_matrix.py", f"{folder}/plan.json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(arguments[0]) as file:
        return [json.loads(line) for line in file], done.stdout + done.stderr


def _small_plan():
    """The whole plan in small."""
    sys.path.insert(0, "harness/torch/bench")
    import plan

    small = [job for jobs in plan.PARTS.values() for job in jobs]
    for job in small:
        job["seconds"] = 1
        for task in job.get("tasks", []):
            task |= {"seconds": 1, "steps": 2, "batch": task.get("batch", 1)}
    return small


def a_plan_is_run():
    folder = tempfile.mkdtemp()
    small = _small_plan()
    records, printed = _live(folder, small, f"{folder}/runs.jsonl", "--gpus", "0,1", "--seconds", "90")
    for record in records:
        assert "error" not in record and "left_out" not in record and not record.get("failures"), record
    names = {(record.get("allocator"), record["name"]) for record in records if "name" in record}
    for job in small:
        for task in job.get("tasks", [job]):
            assert (job.get("allocator"), task["name"]) in names, task
    backends = {record["allocator"]: record["backend"] for record in records if "backend" in record}
    assert backends["pytorch:async"] == "cudaMallocAsync" and backends["pytorch"] == "native"
    assert backends["gmlake"] == backends["aliasheap"] == "pluggable"
    assert sum("rank" in record for record in records) == 8
    assert all(len(turns) == 11 for record in records for turns in record.get("times", {}).values())
    assert {record["largest_batch"] for record in records if "tried" in record} == {24}, printed
    assert sorted(name for name in os.listdir(folder) if name.endswith(".zst"))[0] == "opt-1.3b-LR-aliasheap.lbt.zst"
    again, _ = _live(folder, small, f"{folder}/more.jsonl", "--seconds", "20", "--done", f"{folder}/runs.jsonl")
    assert len(again) == 1 and "provenance" in again[0], again
    sys.argv = ["tables.py", folder, f"{folder}/runs.jsonl", f"{folder}/more.jsonl", "--quote", f"{folder}/page.md"]
    with open(f"{folder}/page.md", "w") as file:
        file.write("before\n<!-- tables.md -->\nold\n<!-- end of tables.md -->\nafter\n")
    import tables

    tables.main()
    with open(f"{folder}/page.md") as file:
        page = file.read()
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    assert "| allocator | batch | reserved, GiB |" in page and "runs." in page, page
    with open(f"{folder}/runs.txt") as file:
        assert "not there" not in file.read()


def plans_end_in_time():
    folder = tempfile.mkdtemp()
    task = {"name": "one", "steps": 2, "seconds": 1}
    job = {"part": "a", "allocator": "pytorch"}
    plan = [job | {"tasks": [task | {"model": "hangs", "most_seconds": 2}, task | {"name": "two", "model": "cannot", "deterministic": "strict"},
                             task | {"name": "three", "seconds": 80}]},
            job | {"kind": "fsdp", "name": "ranks", "seconds": 1}]
    records, printed = _live(folder, plan, f"{folder}/runs.jsonl", "--seconds", "45")
    told = {record["name"]: record for record in records if "name" in record}
    assert told["one"]["left_out"] == "took too long", told["one"]
    assert told["two"]["deterministic"] == "tolerant" and told["two"]["losses"], told["two"]
    assert told["three"]["left_out"] == "no time" and told["ranks"]["left_out"] == "needs two GPUs"
    assert "left_out: took too long" in printed


def results_become_tables():
    sys.path.insert(0, "harness/torch/bench")
    import tables

    record = {"name": "run", "losses": [3.0, 2.0], "step_ms": [9.0, 5.0], "counts": [64, 64], "active_peak": MIB,
              "reserved_peak": 2 * MIB, "device_used_peak": 3 * MIB, "allocator_ms": [1, 0.5], "allocator_driver_ms": [1, 0],
              "memory_by_step": [[1, 2, 3, 4]], "driver_calls": {"cuMemCreate": {"count": 3}}, "deterministic": "strict"}
    other = record | {"losses": [3.0, 2.5], "reserved_peak": MIB}
    rows = tables.rows_of([other | {"allocator": "gmlake"}, record | {"allocator": "pytorch"}])
    assert [row["utilisation"] for row in rows] == [0.5, 1.0]
    assert rows[0]["losses_equal_to_pytorch"] == "" and rows[1]["losses_equal_to_pytorch"] == 1
    assert rows[0]["driver_calls"] == "" and rows[1]["driver_calls"] == 3
    beside = tables.rows_of([other | {"allocator": "gmlake", "beside": True}])[0]
    assert beside["step_ms"] == "" and beside["allocator_ms_per_step"] == "" and beside["reserved_peak_bytes"] == MIB
    # The last whole one counts, a failure only where there is none.
    first, failed = record | {"allocator": "bfc"}, {"allocator": "bfc", "name": "run", "left_out": "no time"}
    assert tables.merged([first, other | {"allocator": "bfc"}, failed]) == [other | {"allocator": "bfc"}]
    assert tables.merged([failed]) == [failed] and "no time" in "".join(tables.left_table([failed]))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
