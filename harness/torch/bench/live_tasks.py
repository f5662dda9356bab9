"""What the processes of live_matrix.py do: each with one allocator, on one GPU, in a process that has not used CUDA.

cudaMallocAsync is chosen when PyTorch is loaded, so its jobs run in an interpreter of their own:
python live_tasks.py tasks|turns JOB.json-text ARGUMENT...
"""

import gc
import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Threads of several processes would be in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "4")

OWN_INTERPRETER = {"pytorch:async": "backend:cudaMallocAsync"}
STATISTICS = ("active_bytes", "reserved_bytes")


class Late(Exception):
    """A task's time is up."""


def too_late(_signal, _frame):
    raise Late()


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


def write(path, record):
    """A whole line at once: several processes write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, (json.dumps(record) + "\n").encode())
    finally:
        os.close(file)


def plugin_digest():
    """Tells versions of the plugin apart."""
    import lakebed

    with open(lakebed._library.path(), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:12]


def run_apart(allocator, kind, job, *arguments):
    """Becomes an interpreter that loads PyTorch anew; does not return."""
    setting = OWN_INTERPRETER[allocator]
    environment = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting}
    os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), kind, json.dumps(job), *map(str, arguments)],
              environment)


def install(allocator):
    """Puts the allocator in place; before CUDA is initialised."""
    warnings.simplefilter("ignore")
    if allocator == "pytorch:uncached":
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

    import torch

    import lakebed

    if allocator == "pytorch:expandable":
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    elif allocator == "pytorch:async":
        if torch.cuda.get_allocator_backend() != "cudaMallocAsync":
            raise RuntimeError(f"PyTorch's allocator is {torch.cuda.get_allocator_backend()}, not cudaMallocAsync")
    elif not allocator.startswith("pytorch"):
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
        self.steps.append([told[name][field] for name in STATISTICS for field in ("current", "peak")]
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


def train_watched(options, gpu):
    import train

    watch = Watch(gpu)
    result = train.run(options, watch.step)
    return result | watch.result()


def train_tolerantly(options, gpu):
    """Strictly first; where an operation has no form that gives the same bits again, without that claim."""
    try:
        return train_watched(options, gpu)
    except RuntimeError as error:
        if options.deterministic != "strict" or "deterministic" not in str(error):
            raise
    gc.collect()
    options.deterministic = "tolerant"
    return train_watched(options, gpu)


def do_train(task, gpu, folder, allocator):
    import torch

    import lakebed

    options = options_of(task)
    recording = None
    if task.get("record"):
        name = f"{task['record']}-{allocator.split(':')[0]}.lbt.zst"
        recording = lakebed.record(os.path.join(folder, name))
    try:
        result = train_tolerantly(options, gpu)
    finally:
        if recording:
            recording.stop()
    if recording:
        result["recording"] = name
    result["deterministic"] = options.deterministic
    result["backend"] = torch.cuda.get_allocator_backend()
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


def do_task(task, record, gpu, path, allocator):
    """What the task came to, as entries of its record."""
    import torch

    try:
        return DO[task.get("kind", "train")](task, gpu, os.path.dirname(os.path.abspath(path)), allocator)
    except torch.OutOfMemoryError as error:
        return {"out_of_memory_error": str(error)[:1000]}
    except Late:
        return {"left_out": "took too long"}
    except Exception:
        return {"error": traceback.format_exc()[-1500:]}


def most_seconds(task):
    """A task that takes longer hangs."""
    return task.get("most_seconds", 3 * task["seconds"] + 20)


def do_tasks(job, gpu, path, end):
    """A job's tasks in turn; each one's record is written when it is done."""
    allocator = job["allocator"]
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    signal.signal(signal.SIGALRM, too_late)
    common = {"allocator": allocator, "part": job["part"], "gpu": gpu, "beside": "gib" in job}
    try:
        install(allocator)
        common["plugin"] = plugin_digest()
        import torch
    except Exception:
        write(path, common | {"error": traceback.format_exc()[-1500:]})
        return
    for task in job["tasks"]:
        record = common | task
        left = end - time.time()
        if left < 0.8 * task["seconds"]:
            write(path, record | {"left_out": "no time"})
            continue
        signal.alarm(max(1, int(min(most_seconds(task), left))))
        begin = time.time()
        record |= do_task(task, record, gpu, path, allocator)
        signal.alarm(0)
        record["task_s"] = round(time.time() - begin, 2)
        write(path, record)
        if "Error: CUDA error" in record.get("error", ""):
            break
        gc.collect()
        torch.cuda.empty_cache()


def take_turns(job, allocator, gpu, connection):
    """One of several processes that hold their models and train when told."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    try:
        install(allocator)
        import torch

        import train

        training = train.Training(options_of(job))
        torch.cuda.synchronize()
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


def main():
    kind, job, *arguments = sys.argv[1:]
    job = json.loads(job)
    if kind == "tasks":
        gpu, path, end = arguments
        do_tasks(job, int(gpu), path, float(end))
    else:
        from multiprocessing.connection import Connection

        allocator, gpu, descriptor = arguments
        take_turns(job, allocator, int(gpu), Connection(int(descriptor)))


if __name__ == "__main__":
    main()
