"""Prints the plan behind results/h200/torch, for live_matrix.py: python plan.py [PART...] >plan.json

Parts: memory (every allocator, models and strategies), losses (the same with operations that give the same bits
again), throughput, batch (the largest that trains in 12 GiB), uncached, fsdp. Without any: all, some 25 minutes of GPU time.
"""

import json
import sys

FEW = ["pytorch", "pytorch:expandable", "gmlake", "aliasheap"]
ALL = FEW + ["bfc", "expandable", "async", "pytorch:async"]
DEVICE_BYTES = 150109880320


def run(name, seconds=45, **options):
    return {"name": name, "deterministic": True, "steps": 20, "seconds": seconds} | options


OPT_LR = {"model": "opt-1.3b", "strategy": "LR", "batch": 16, "sequence": 512}
OPT_N = {"model": "opt-1.3b", "strategy": "N", "batch": 16, "sequence": 512, "vary": True}
NEOX_LR = {"model": "gpt-neox-20b", "strategy": "LR", "batch": 4, "sequence": 512}
VICUNA_LR = {"model": "vicuna-13b", "strategy": "LR", "batch": 4, "sequence": 512, "vary": True}
GPT2_LRO = {"model": "gpt2-xl", "strategy": "LRO", "batch": 8, "sequence": 512, "vary": True}
CONVNEXT_N = {"model": "convnext-base", "strategy": "N", "batch": 16, "sequence": 256, "vary": True}

MEMORY = [
    run("opt-1.3b LR", record=True, **OPT_LR),
    run("opt-1.3b N varying", **OPT_N),
    run("gpt-neox-20b LR", **NEOX_LR),
    run("vicuna-13b LR varying", **VICUNA_LR),
    run("gpt2-xl LRO varying", **GPT2_LRO),
    run("convnext-base N varying", **CONVNEXT_N),
]
LOSSES = [
    run("opt-1.3b LR (equal losses)", attention="plain", **OPT_LR),
    run("opt-1.3b N varying (equal losses)", attention="plain", **OPT_N),
    run("gpt-neox-20b LR (equal losses)", attention="plain", **NEOX_LR),
    run("vicuna-13b LR varying (equal losses)", attention="plain", **VICUNA_LR),
]
UNCACHED = [{"name": "opt-1.3b LR uncached", "steps": 10, "seconds": 30} | OPT_LR]
BATCH = [{"kind": "largest_batch", "name": "largest batch", "model": "opt-1.3b", "strategy": "LR", "sequence": 512, "steps": 6,
          "lengths": [512, 352, 448, 224, 480, 320], "fraction": 12 * 2**30 / DEVICE_BYTES, "from": 16, "at_most": 63,
          "within": 1, "seconds": 45}]


def jobs(allocators, tasks):
    return [{"allocator": allocator, "tasks": tasks} for allocator in allocators]


PARTS = {
    "memory": jobs(ALL, MEMORY),
    "losses": jobs(["pytorch", "gmlake", "aliasheap"], LOSSES),
    "batch": jobs(FEW, BATCH),
    "throughput": [{"kind": "turns", "name": "turns", "gpu": 0, "allocators": ["pytorch", "gmlake", "aliasheap"],
                    "model": "opt-1.3b", "strategy": "LR", "batch": 24, "sequence": 1024, "turns": 11, "steps_a_turn": 5}],
    "uncached": jobs(["pytorch", "pytorch:uncached", "native"], UNCACHED),
    "fsdp": [{"kind": "fsdp", "allocator": allocator, "name": "fsdp 2 ranks", "seconds": 30,
              "arguments": ["--model", "opt-1.3b", "--strategy", "N", "--batch", "8", "--sequence", "512", "--steps", "20"]}
             for allocator in ("pytorch", "gmlake", "aliasheap")],
}


def main():
    parts = sys.argv[1:] or list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        sys.exit(f"plan.py: no part {unknown[0]}; there are: {', '.join(PARTS)}")
    print(json.dumps([job for part in parts for job in PARTS[part]], indent=1))


if __name__ == "__main__":
    main()
