"""Trains models under many allocators and writes one JSON line for each run: what results/h200/torch holds.

    python live_matrix.py PLAN.json OUT.jsonl --gpus 0,1 --seconds 400

PLAN.json is a list of jobs; a job is a process with one allocator that does tasks in turn. PyTorch and the models'
libraries are imported once, and every job is a fork of that process from before CUDA was initialised. Jobs of a
plan run side by side, one a GPU. What does not fit into the time is left out and said so. Kinds of tasks:

  train          losses, step times, memory after every step; "record": a trace of it
  checks         allocation_checks.py
  largest_batch  the largest batch that trains under a memory fraction
  turns          throughput: all allocators of the job resident at once, taking turns of some steps
  fsdp           train_fsdp.py over all GPUs, when the others are done

Allocators: a policy's spec, or pytorch, pytorch:expandable, pytorch:async, pytorch:uncached.
"""

import argparse
import gc
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class Late(Exception):
    """A task's time is up."""


def import_everything():
    import torch
    import transformers
    from transformers.models.gpt2 import modeling_gpt2
    from transformers.models.gpt_neox import modeling_gpt_neox
    from transformers.models.llama import modeling_llama
    from transformers.models.opt import modeling_opt

    import peft
    import torchvision.models

    import lakebed
    import train
    import train_fsdp


def install(allocator):
    """Puts the allocator in place; before CUDA is initialised."""
    import torch

    warnings.simplefilter("ignore")

    import lakebed

    if allocator in ("pytorch", "pytorch:async", "pytorch:uncached"):
        if allocator == "pytorch:uncached":
            os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    elif allocator == "pytorch:expandable":
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    else:
        lakebed.use(allocator)


class DeviceMemory:
    """What nvidia-smi shows: bytes of the device in use, by all processes, contexts included."""

    def __init__(self, gpu):
        import pynvml

        pynvml.nvmlInit()
        self.pynvml, self.handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(gpu)

    def used(self):
        return int(self.pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)


def allocator_ns():
    import lakebed

    told = lakebed.stats()
    return told.get("alloc_ns", 0) + told.get("free_ns", 0), told.get("driver_ns", 0)


class Watch:
    """Memory and the allocator's own time, step by step."""

    def __init__(self, gpu):
        import lakebed

        self.lakebed, self.device = lakebed, DeviceMemory(gpu)
        self.steps, self.allocator_ms, self.driver_ms = [], [], []
        self.device_peak = self.device.used()
        lakebed.reset_peak()
        self.before = allocator_ns()

    def step(self, _number):
        told = self.lakebed.stats()
        now = (told.get("alloc_ns", 0) + told.get("free_ns", 0), told.get("driver_ns", 0))
        self.allocator_ms.append(round((now[0] - self.before[0]) / 1e6, 4))
        self.driver_ms.append(round((now[1] - self.before[1]) / 1e6, 4))
        self.before = now
        names = ("active_bytes", "reserved_bytes")
        self.steps.append([told[name][field] for name in names for field in ("current", "peak")]
                          if "reserved_bytes" in told else [0, 0, 0, 0])
        self.device_peak = max(self.device_peak, self.device.used())
        self.lakebed.reset_peak()

    def result(self):
        told = self.lakebed.stats()
        return {
            "active_peak": max((step[1] for step in self.steps), default=0),
            "reserved_peak": max((step[3] for step in self.steps), default=0),
            "device_used_peak": self.device_peak,
            "memory_by_step": self.steps,
            "allocator_ms": self.allocator_ms,
            "allocator_driver_ms": self.driver_ms,
            "retries": told.get("retries", 0),
            "out_of_memory": told.get("out_of_memory", 0),
            "served": [told.get("served_allocations", 0), told.get("served_frees", 0)],
            "bypassed": [told.get("bypassed_allocations", 0), told.get("bypassed_frees", 0)],
            "failed_frees": told.get("failed_frees", 0),
            "counters": told.get("counters", {}),
            "driver_calls": told.get("driver_calls", {}),
            "longest_allocator_ms": round(told.get("longest_ns", 0) / 1e6, 3),
        }


def options_of(task):
    import train

    options = train.options_of([])
    for name, value in task.items():
        if hasattr(options, name):
            setattr(options, name, value)
    return options


def do_train(task, gpu, folder, allocator):
    import torch

    import lakebed
    import train

    recording = None
    if task.get("record") and not allocator.startswith("pytorch"):
        name = allocator.split(":")[0]
        recording = lakebed.record(os.path.join(folder, f"{task['name']}-{name}.lbt.zst"))
    watch = Watch(gpu)
    result = train.run(options_of(task), watch.step)
    if recording:
        result["whole_reserved_peak"] = max(step[3] for step in watch.steps)
        recording.stop()
    result |= watch.result()
    if allocator == "pytorch:expandable":
        result["expandable"] = torch.cuda.memory._snapshot().get("allocator_settings", {}).get("expandable_segments")
    return result


def do_checks(task, gpu, folder, allocator):
    import torch

    import allocation_checks

    torch.set_default_dtype(torch.float32)
    return {"checks": len(allocation_checks.CHECKS), "failed": allocation_checks.run()}


def do_largest_batch(task, gpu, folder, allocator):
    """Doubles until it fails, then halves the gap. A batch counts if all its steps are done."""
    import random

    import torch

    import lakebed
    import train

    torch.cuda.set_per_process_memory_fraction(task["fraction"])
    options = options_of(task)
    training = train.Training(options)
    tried = {}

    def trains(batch):
        random.seed(11)
        torch.manual_seed(11)
        options.batch = batch
        begin, failure = time.perf_counter(), ""
        lakebed.reset_peak()
        try:
            for number in range(options.steps):
                options.sequence = task["lengths"][number % len(task["lengths"])]
                training.step()
            torch.cuda.synchronize()
        except torch.OutOfMemoryError as error:
            failure = str(error)[:600]
        training.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        told = lakebed.stats()
        seconds = time.perf_counter() - begin
        tried[batch] = {"ok": not failure, "seconds": round(seconds, 2), "reserved_peak": told["reserved_bytes"]["peak"],
                        "active_peak": told["active_bytes"]["peak"], "failure": failure}
        torch.cuda.empty_cache()
        return not failure

    good, bad = 0, task["at_most"] + 1
    batch = task["from"]
    while bad - good > task.get("within", 1):
        if trains(batch):
            good = batch
        else:
            bad = batch
        batch = (good + bad) // 2 if bad <= task["at_most"] else min(good + task["from"], task["at_most"])
        if batch <= good or batch >= bad:
            break
    return {"largest_batch": good, "first_failing": bad, "tried": tried,
            "limit_bytes": int(task["fraction"] * torch.cuda.get_device_properties(0).total_memory)}


DO = {"train": do_train, "checks": do_checks, "largest_batch": do_largest_batch}


def write(path, record):
    with open(path, "a") as file:
        file.write(json.dumps(record) + "\n")


def too_late(_signal, _frame):
    raise Late()


def do_job(job, gpu, path, end):
    """In a process of its own."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch

    folder = os.path.dirname(os.path.abspath(path))
    signal.signal(signal.SIGALRM, too_late)
    install(job["allocator"])
    for task in job["tasks"]:
        record = {"allocator": job["allocator"], "gpu": gpu} | task
        left = int(min(task.get("seconds", 60), end - time.time()))
        if left < 3:
            write(path, record | {"left_out": "no time"})
            continue
        signal.alarm(left)
        begin = time.time()
        try:
            record |= DO[task.get("kind", "train")](task, gpu, folder, job["allocator"])
        except torch.OutOfMemoryError as error:
            record["out_of_memory_error"] = str(error)[:1000]
        except Late:
            record["left_out"] = f"not done in {left} s"
        except Exception:
            record["error"] = traceback.format_exc()[-1500:]
        signal.alarm(0)
        record["task_s"] = round(time.time() - begin, 2)
        write(path, record)
        if "Error: CUDA error" in record.get("error", ""):
            break
        gc.collect()
        torch.cuda.empty_cache()


def take_turns(connection, allocator, task, gpu):
    """One of several processes that hold their models and train when told."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch

    import train

    try:
        install(allocator)
        training = train.Training(options_of(task))
        connection.send("ready")
        while True:
            count = connection.recv()
            if not count:
                break
            times = []
            before = allocator_ns()
            for _ in range(count):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                training.step()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - begin) * 1e3)
            after = allocator_ns()
            connection.send((times, (after[0] - before[0]) / 1e6 / count))
    except BaseException:
        connection.send(traceback.format_exc()[-1500:])


def do_turns(job, gpu, path, end):
    processes = []
    for allocator in job["allocators"]:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=take_turns, args=(theirs, allocator, job, gpu))
        process.start()
        theirs.close()
        processes.append((allocator, process, ours))
    times = {allocator: [] for allocator in job["allocators"]}
    allocator_ms = {allocator: [] for allocator in job["allocators"]}
    failures = {}

    def answer(allocator, connection):
        if not connection.poll(max(1, end - time.time())):
            failures[allocator] = "no answer in time"
            return None
        got = connection.recv()
        if isinstance(got, str) and got != "ready":
            failures[allocator] = got
        return got

    for allocator, _, connection in processes:
        answer(allocator, connection)
    for turn in range(job["turns"]):
        order = processes[turn % len(processes):] + processes[:turn % len(processes)]
        for allocator, _, connection in order:
            if allocator in failures or time.time() > end - 5:
                continue
            connection.send(job["steps_a_turn"])
            got = answer(allocator, connection)
            if allocator not in failures:
                times[allocator].append([round(ms, 3) for ms in got[0]])
                allocator_ms[allocator].append(round(got[1], 4))
    for _, process, connection in processes:
        try:
            connection.send(0)
        except OSError:
            pass
        process.join(10)
        if process.is_alive():
            process.kill()
    write(path, job | {"gpu": gpu, "times": times, "allocator_ms_a_step": allocator_ms, "failures": failures})


def in_new_process(job, gpu, path, end):
    """cudaMallocAsync is chosen when PyTorch is loaded: such a job needs an interpreter of its own."""
    environment = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    subprocess.run([sys.executable, os.path.abspath(__file__), "--job", json.dumps(job), path, "--gpus", str(gpu),
                    "--seconds", str(int(end - time.time()))], env=environment, check=False)


def fsdp_rank(job, rank, gpus, path):
    os.environ |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "RANK": str(rank), "LOCAL_RANK": str(rank),
                   "WORLD_SIZE": str(len(gpus)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job["port"])}
    try:
        install(job["allocator"])
        import train_fsdp

        write(path, job | train_fsdp.run(job["arguments"]))
    except BaseException:
        write(path, job | {"error": traceback.format_exc()[-1500:]})


def do_fsdp(job, gpus, path, end):
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=fsdp_rank, args=(job, rank, gpus, path)) for rank in range(len(gpus))]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(max(1, end - time.time()))
        if process.is_alive():
            process.kill()
            write(path, job | {"left_out": "not done in time"})


def start(job, gpu, path, end):
    target = do_turns if job.get("kind") == "turns" else do_job
    if job.get("allocator") == "pytorch:async":
        target = in_new_process
    process = multiprocessing.get_context("fork").Process(target=target, args=(job, gpu, path, end))
    process.daemon = False
    process.start()
    return process


def run_plan(plan, gpus, path, end):
    waiting, running = [job for job in plan if job.get("kind") != "fsdp"], {}
    while waiting or running:
        for gpu in gpus:
            process = running.get(gpu)
            if process and (not process.is_alive() or time.time() > end + 3):
                if process.is_alive():
                    process.kill()
                process.join()
                if process.exitcode:
                    write(path, {"gpu": gpu, "error": f"a job ended with {process.exitcode}"})
                del running[gpu]
            if gpu not in running:
                fitting = [job for job in waiting if job.get("gpu", gpu) == gpu]
                if fitting:
                    job = fitting[0]
                    waiting.remove(job)
                    if time.time() < end - 5:
                        running[gpu] = start(job, gpu, path, end)
                    else:
                        write(path, {"left_out": "no time", "job": job.get("allocator", job.get("kind"))})
        time.sleep(0.05)


def run_fsdp(plan, gpus, path, end):
    for number, job in enumerate(job for job in plan if job.get("kind") == "fsdp"):
        do_fsdp(job | {"port": 29600 + number}, gpus, path, min(end, time.time() + job["seconds"]))


def brief(path):
    """A line for each record."""
    with open(path) as file:
        for record in map(json.loads, file):
            if "times" in record:
                for allocator, turns in record["times"].items():
                    steps = [ms for turn in turns[1:] for ms in turn]
                    if steps:
                        print(f"turns {allocator:20s} median {statistics.median(steps):9.2f} ms of {len(steps)} "
                              f"first {turns[0][0]:9.1f} allocator {statistics.median(record['allocator_ms_a_step'][allocator]):.3f}")
                print(record["failures"] or "", flush=True)
                continue
            text = f"{record.get('allocator', '?'):20s} {record.get('name', '?'):18s}"
            if "step_ms" in record and "rank" in record:
                text += (f" rank {record['rank']} reserved {record['reserved_peak'] / 2**30:7.2f} step "
                         f"{statistics.median(record['step_ms'][2:]):8.1f} loss {record['losses'][-1]:.6f}")
            elif "step_ms" in record:
                rest = record["step_ms"][2:] or record["step_ms"]
                own = record["allocator_ms"][2:] or record["allocator_ms"] or [0]
                text += (f" active {record['active_peak'] / 2**30:7.2f} reserved {record['reserved_peak'] / 2**30:7.2f} "
                         f"used {record['device_used_peak'] / 2**30:7.2f} step {statistics.median(rest):8.1f} ms first "
                         f"{record['step_ms'][0]:8.1f} own {statistics.median(own):7.3f} loss {record['losses'][-1]:.6f}")
            for name in ("largest_batch", "first_failing", "failed", "error", "left_out", "out_of_memory_error"):
                if name in record:
                    text += f" {name}: {record[name]}"
            print(text, f"{record.get('task_s', '')} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("plan", nargs="?")
    parser.add_argument("out")
    parser.add_argument("--job", help="one job, instead of a plan")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--seconds", type=int, default=300)
    options = parser.parse_args()
    end = time.time() + options.seconds
    gpus = [int(gpu) for gpu in options.gpus.split(",")]
    if options.job:
        do_job(json.loads(options.job), gpus[0], options.out, end)
        return
    with open(options.plan) as file:
        plan = json.load(file)
    import_everything()
    print(f"imported in {options.seconds - (end - time.time()):.1f} s", flush=True)
    kept = sum(job["seconds"] for job in plan if job.get("kind") == "fsdp")
    run_plan(plan, gpus, options.out, end - kept)
    run_fsdp(plan, gpus, options.out, end)
    brief(options.out)


if __name__ == "__main__":
    main()
