"""Prints the plan behind results/h200/torch, for live_matrix.py: python plan.py [PART...] >plan.json

Parts, the most telling first, with the seconds that each takes on one H200 (fsdp: on two):
  fsdp       OPT-1.3B over two ranks, 4 allocators                                             110
  memory     20 steps of five models under 8 allocators, losses compared bit by bit            560
  throughput all allocators resident at once and taking turns, medians of 50 steps             170
  batch      the largest batch of OPT-1.3B that trains in 12 GiB, 8 allocators side by side     70
  more       20 steps of three more models and strategies under 8 allocators                   440
  recorded   traces of two runs under our policies, to be replayed; side by side                50
  uncached   OPT-1.3B without any caching                                                       90
  checks     allocation_checks.py under 8 allocators, one after another                         95
  others     throughput of the other allocators                                                140
Without any: all.
"""

import json
import sys

EVERY = ["pytorch", "aliasheap", "gmlake", "pytorch:async", "pytorch:expandable", "bfc", "expandable", "async"]
DEVICE_BYTES = 150109880320


def run(name, seconds, **options):
    """seconds: what it takes; live_matrix.py starts it where so much is left, and ends it after three times as much."""
    return {"name": name, "deterministic": "strict", "steps": 20, "seconds": seconds} | options


OPT = {"model": "opt-1.3b", "batch": 16, "sequence": 512}
OPT_LR = OPT | {"strategy": "LR"}
OPT_N = OPT | {"strategy": "N"}
NEOX_LR = {"model": "gpt-neox-20b", "strategy": "LR", "batch": 4, "sequence": 512}
VICUNA_LR = {"model": "vicuna-13b", "strategy": "LR", "batch": 4, "sequence": 512, "vary": True}
GPT2_LRO = {"model": "gpt2-xl", "strategy": "LRO", "batch": 8, "sequence": 512, "vary": True}
CONVNEXT_N = {"model": "convnext-base", "strategy": "N", "batch": 16, "sequence": 256, "vary": True}

MEMORY = [
    run("opt-1.3b LR", 11, **OPT_LR),
    run("opt-1.3b N varying", 7, vary=True, **OPT_N),
    run("gpt-neox-20b LR", 16, **NEOX_LR),
    run("vicuna-13b LR varying", 17, **VICUNA_LR),
    run("convnext-base N varying", 25, **CONVNEXT_N),
]
MORE = [
    run("opt-1.3b N", 7, **OPT_N),
    run("opt-1.3b LRO", 12, **OPT, strategy="LRO"),
    run("gpt2-xl LRO varying", 36, **GPT2_LRO),
]
RECORDED = [
    run("opt-1.3b LR recorded", 30, record="opt-1.3b-LR", **OPT_LR),
    run("opt-1.3b N varying recorded", 25, record="opt-1.3b-N-varying", vary=True, **OPT_N),
]
UNCACHED = [{"name": "opt-1.3b LR uncached", "steps": 20, "seconds": 35} | OPT_LR]
BATCH = [{"kind": "largest_batch", "name": "largest batch", "model": "opt-1.3b", "strategy": "LR", "sequence": 512, "steps": 6,
          "lengths": [512, 352, 448, 224, 480, 320], "fraction": 12 * 2**30 / DEVICE_BYTES, "from": 16, "at_most": 63,
          "within": 1, "seconds": 60}]
CHECKS = [{"kind": "checks", "name": "allocation checks", "seconds": 20}]


def jobs(part, allocators, tasks, **options):
    """gib: so much of a GPU each may take; such jobs run side by side, as nothing of them is timed."""
    return [{"part": part, "allocator": allocator, "tasks": tasks} | options for allocator in allocators]


def turns(part, name, allocators):
    return [{"part": part, "kind": "turns", "name": name, "allocators": allocators, "model": "opt-1.3b", "strategy": "LR",
             "batch": 24, "sequence": 1024, "turns": 11, "steps_a_turn": 5, "seconds": 20 + 31 * len(allocators)}]


FSDP = ["--model", "opt-1.3b", "--strategy", "N", "--batch", "8", "--sequence", "512", "--steps", "20"]

PARTS = {
    "fsdp": [{"part": "fsdp", "kind": "fsdp", "allocator": allocator, "name": "fsdp 2 ranks", "seconds": 30, "arguments": FSDP}
             for allocator in ("pytorch", "aliasheap", "gmlake", "pytorch:expandable")],
    "memory": jobs("memory", EVERY, MEMORY),
    "throughput": turns("throughput", "turns", ["pytorch", "gmlake", "aliasheap", "pytorch:expandable", "pytorch:async"]),
    "batch": jobs("batch", EVERY, BATCH, gib=16),
    "more": jobs("more", EVERY, MORE),
    "recorded": jobs("recorded", ["aliasheap", "gmlake", "bfc", "expandable", "async"], RECORDED, gib=28),
    "uncached": jobs("uncached", ["pytorch", "pytorch:uncached", "native"], UNCACHED),
    "checks": jobs("checks", EVERY, CHECKS),  # alone: they ask for more than there is, and fill the device before they fail
    "others": turns("others", "turns of the others", ["pytorch", "bfc", "expandable", "async"]),
}


def main():
    parts = sys.argv[1:] or list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        sys.exit(f"plan.py: no part {unknown[0]}; there are: {', '.join(PARTS)}")
    print(json.dumps([job for part in parts for job in PARTS[part]], indent=1))


if __name__ == "__main__":
    main()
