"""Trains models under many allocators and writes one JSON line for each run: what results/h200/torch holds.

    python live_matrix.py PLAN.json OUT.jsonl --gpus 0,1 --seconds 400 [--done RUNS.jsonl...]

PLAN.json, of plan.py, is a list of jobs; a job is a process with one allocator that does tasks in turn. PyTorch and
the models' libraries are imported once, and every job is a fork of that process from before CUDA was initialised, or
where that cannot be an interpreter of its own. Jobs that are timed have a GPU to themselves, others share one. Each
record is written as soon as it is there, at the end of OUT.jsonl; what is in OUT.jsonl or in the files after --done is
not run again, so that a plan can be spread over several machines and calls. What does not fit into the time is left
out and said so. Kinds of jobs:

  tasks   in turn: train (losses, step times, memory after every step; "record": a trace of it), checks
          (allocation_checks.py), largest_batch (the largest that trains under a memory fraction)
  turns   throughput: all allocators of the job resident at once, taking turns of some steps
  fsdp    train_fsdp.py over all GPUs, before the others; left out where there is one GPU

Allocators: a policy's spec, or pytorch, pytorch:expandable, pytorch:async, pytorch:uncached.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback

import live_tasks
from live_tasks import OWN_INTERPRETER, most_seconds, write

GPU_GIB = 120
START_SECONDS = 8
FORK = multiprocessing.get_context("fork")


def tasks_process(job, gpu, path, end):
    if job["allocator"] in OWN_INTERPRETER:
        live_tasks.run_apart(job["allocator"], "tasks", job, gpu, path, end)
    live_tasks.do_tasks(job, gpu, path, end)


def turns_process(job, allocator, gpu, connection, others):
    # Whoever waits for an answer must see the end of the one that asks.
    for other in others:
        other.close()
    if allocator in OWN_INTERPRETER:
        os.set_inheritable(connection.fileno(), True)
        live_tasks.run_apart(allocator, "turns", job, allocator, gpu, connection.fileno())
    live_tasks.take_turns(job, allocator, gpu, connection)


def start(target, *arguments):
    process = FORK.Process(target=target, args=arguments)
    process.start()
    return process


def wait_for(processes, end):
    """Those that still run then are killed and returned. (Process.join() would not see the time for one that became
    another interpreter.)"""
    while time.time() < end and any(process.is_alive() for process in processes):
        time.sleep(0.05)
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
    for process in processes:
        process.join()
    return late


class Turns:
    """The processes of a job of turns, and what they answered."""

    def __init__(self, job, gpu, end):
        self.job, self.end, self.failures, self.processes = job, end, {}, []
        self.times = {allocator: [] for allocator in job["allocators"]}
        self.allocator_ms = {allocator: [] for allocator in job["allocators"]}
        for allocator in job["allocators"]:
            ours, theirs = multiprocessing.Pipe()
            others = [ours] + [connection for _, _, connection in self.processes]
            self.processes.append((allocator, start(turns_process, job, allocator, gpu, theirs, others), ours))
            theirs.close()

    def answer(self, allocator, connection, seconds):
        """None, and the failure is kept, if there is no good answer."""
        try:
            if not connection.poll(max(1, min(seconds, self.end - time.time()))):
                self.failures[allocator] = "no answer in time"
                return None
            got = connection.recv()
        except (EOFError, OSError):
            self.failures[allocator] = "its process ended"
            return None
        if isinstance(got, str) and got != "ready":
            self.failures[allocator] = got
            return None
        return got

    def ask(self, allocator, connection):
        try:
            connection.send(self.job["steps_a_turn"])
        except OSError:
            self.failures[allocator] = "its process ended"
            return None
        return self.answer(allocator, connection, 60)

    def run(self):
        for allocator, _, connection in self.processes:
            self.answer(allocator, connection, 120)
        for turn in range(self.job["turns"]):
            at = turn % len(self.processes)
            for allocator, _, connection in self.processes[at:] + self.processes[:at]:
                if allocator in self.failures or time.time() > self.end - 5:
                    continue
                got = self.ask(allocator, connection)
                if got:
                    self.times[allocator].append([round(ms, 3) for ms in got[0]])
                    self.allocator_ms[allocator].append(round(got[1], 4))

    def stop(self):
        for _, _, connection in self.processes:
            try:
                connection.send(0)
            except OSError:
                pass
        wait_for([process for _, process, _ in self.processes], time.time() + 5)


def do_turns(job, gpu, path, end):
    turns = Turns(job, gpu, end)
    try:
        turns.run()
    finally:
        write(path, job | {"gpu": gpu, "plugin": live_tasks.plugin_digest(), "times": turns.times,
                           "allocator_ms_a_step": turns.allocator_ms, "failures": turns.failures})
        turns.stop()


def fsdp_rank(job, rank, gpus, path):
    os.environ |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "RANK": str(rank), "LOCAL_RANK": str(rank),
                   "WORLD_SIZE": str(len(gpus)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job["port"])}
    record = job | {"plugin": live_tasks.plugin_digest()}
    try:
        live_tasks.install(job["allocator"])
        import train_fsdp

        write(path, record | train_fsdp.run(job["arguments"]))
    except BaseException:
        write(path, record | {"error": traceback.format_exc()[-1500:]})


def do_fsdp(job, gpus, path, end):
    """Whether it ended in time."""
    ranks = [start(fsdp_rank, job, rank, gpus, path) for rank in range(len(gpus))]
    late = wait_for(ranks, end)
    if late:
        write(path, job | {"left_out": "took too long"})
    return not late


def run_fsdp(plan, gpus, path, end):
    hangs = False
    for number, job in enumerate(job for job in plan if job.get("kind") == "fsdp"):
        if hangs:
            write(path, job | {"left_out": "the one before took too long"})
        elif len(gpus) < 2:
            write(path, job | {"left_out": "needs two GPUs"})
        elif end - time.time() < job["seconds"]:
            write(path, job | {"left_out": "no time"})
        else:
            hangs = not do_fsdp(job | {"port": 29600 + number}, gpus, path, min(end, time.time() + 2.5 * job["seconds"]))


def least_seconds(job):
    """A job is started where so much time is left."""
    return START_SECONDS + (job["tasks"][0]["seconds"] if "tasks" in job else job["seconds"])


def limit_seconds(job):
    return 30 + (sum(map(most_seconds, job["tasks"])) if "tasks" in job else 2 * job["seconds"])


class Gpu:
    """The jobs that run on it."""

    def __init__(self, number):
        self.number, self.running = number, []

    def has_room(self, job):
        if not self.running:
            return True
        return all("gib" in other for other in [job] + self.jobs()) and \
            sum(other["gib"] for other in [job] + self.jobs()) <= GPU_GIB

    def jobs(self):
        return [job for _, job, _ in self.running]

    def start(self, job, path, end):
        target = do_turns if job.get("kind") == "turns" else tasks_process
        process = start(target, job, self.number, path, end)
        self.running.append((process, job, min(end + 5, time.time() + limit_seconds(job))))

    def reap(self, path):
        for entry in list(self.running):
            process, job, deadline = entry
            if process.is_alive() and time.time() < deadline:
                continue
            name = {"allocator": job.get("allocator", ""), "name": f"part {job['part']}", "gpu": self.number}
            if process.is_alive():
                process.kill()
                write(path, name | {"left_out": "ended: took too long"})
            process.join()
            if process.exitcode > 0 or process.exitcode < -9:
                write(path, name | {"error": f"a job ended with {process.exitcode}"})
            self.running.remove(entry)


def run_plan(plan, gpus, path, end):
    waiting = [job for job in plan if job.get("kind") != "fsdp"]
    gpus = [Gpu(number) for number in gpus]
    while True:
        for gpu in gpus:
            gpu.reap(path)
            for job in list(waiting):
                if gpu.has_room(job) and time.time() + least_seconds(job) < end:
                    waiting.remove(job)
                    gpu.start(job, path, end)
        in_time = any(time.time() + least_seconds(job) < end for job in waiting)
        if not in_time and not any(gpu.running for gpu in gpus):
            break
        time.sleep(0.05)
    for job in waiting:
        for task in job.get("tasks", [job]):
            write(path, {"allocator": job.get("allocator", ""), "name": task["name"], "left_out": "no time"})


def read(paths):
    """Records of files; a line that was cut off counts as none."""
    records = []
    for path in paths:
        with open(path) as file:
            for line in file:
                try:
                    records.append(json.loads(line))
                except ValueError:
                    continue
    return records


def is_whole(record):
    if "error" in record or "left_out" in record:
        return False
    if "times" in record:
        return not record["failures"] and all(len(turns) == record["turns"] for turns in record["times"].values())
    return any(name in record for name in ("losses", "tried", "checks"))


def remaining(plan, records):
    """The plan without what the records have."""
    done = {(record.get("allocator"), record["name"]) for record in records if is_whole(record)}
    left = []
    for job in plan:
        if "tasks" in job:
            tasks = [task for task in job["tasks"] if (job["allocator"], task["name"]) not in done]
            if tasks:
                left.append(job | {"tasks": tasks})
        elif (job.get("allocator"), job["name"]) not in done:
            left.append(job)
    return left


def write_provenance(gpus, path):
    """In a process of its own: NVML, too, is not to be in use when others are forked."""
    import pynvml
    import torch
    import transformers

    pynvml.nvmlInit()
    names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(gpu)) for gpu in gpus]
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    write(path, {"provenance": {
        "device": ", ".join(f"{names.count(name)} {text(name)}" for name in dict.fromkeys(names)),
        "driver": f"{text(pynvml.nvmlSystemGetDriverVersion())}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}, "
                  f"transformers {transformers.__version__}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "plugin": live_tasks.plugin_digest(),
    }})


def rest(values):
    """Without the first two steps, in which everything is new."""
    return values[2:] or values


def describe_turns(record):
    for allocator, turns in record["times"].items():
        steps = [ms for turn in turns[1:] for ms in turn]
        if steps:
            own = statistics.median(record["allocator_ms_a_step"][allocator])
            yield (f"turns {allocator:20s} median {statistics.median(steps):9.2f} ms of {len(steps)} "
                   f"first {turns[0][0]:9.1f} allocator {own:.3f}")
    if record["failures"]:
        yield f"turns {record['failures']}"


def describe(record):
    text = f"{record.get('allocator', '?'):20s} {record.get('name', '?'):28s}"
    if "step_ms" in record:
        text += f" reserved {record['reserved_peak'] / 2**30:7.2f} step {statistics.median(rest(record['step_ms'])):8.1f}"
        text += f" first {record['step_ms'][0]:8.1f} loss {record['losses'][-1]:.6f}"
    for name in ("rank", "deterministic", "largest_batch", "failed", "error", "left_out", "out_of_memory_error"):
        if name in record:
            text += f" {name}: {record[name]}"
    return f"{text} {record.get('task_s', '')} s"


def brief(path):
    """A line for each record."""
    for record in read([path]):
        if "provenance" in record:
            print(record["provenance"])
        elif "times" in record:
            print(*describe_turns(record), sep="\n")
        else:
            print(describe(record))
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("plan", metavar="PLAN.json")
    parser.add_argument("out", metavar="OUT.jsonl")
    parser.add_argument("--gpus", default="0", help="numbers, separated by commas (0)")
    parser.add_argument("--seconds", type=int, default=300, help="it ends within so many, give or take 10 (300)")
    parser.add_argument("--done", nargs="*", default=[], metavar="RUNS.jsonl", help="what these hold is not run again")
    options = parser.parse_args()
    begin = time.time()
    end = begin + options.seconds - 5
    gpus = [int(gpu) for gpu in options.gpus.split(",")]
    with open(options.plan) as file:
        plan = json.load(file)
    plan = remaining(plan, read([path for path in options.done + [options.out] if os.path.exists(path)]))
    live_tasks.import_everything()
    print(f"imported in {time.time() - begin:.1f} s; {len(plan)} jobs", flush=True)
    start(write_provenance, gpus, options.out).join()
    run_fsdp(plan, gpus, options.out, end)
    run_plan(plan, gpus, options.out, end)
    brief(options.out)


if __name__ == "__main__":
    main()
