"""Trains with FSDP over the ranks of torchrun and prints losses and memory of each rank; knows nothing of Lakebed.

    torchrun --nproc-per-node 2 train_fsdp.py
    torchrun --nproc-per-node 2 -m lakebed --policy aliasheap train_fsdp.py
"""

import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import train


def run(arguments=None):
    """Trains as one rank; a dict of what came out."""
    options = train.options_of(arguments)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    torch.distributed.init_process_group("nccl")
    train.make_deterministic(strict=False, plain_attention=True)
    training = train.Training(options)
    for module in training.model.modules():
        if type(module).__name__ in ("OPTDecoderLayer", "GPT2Block", "GPTNeoXLayer", "LlamaDecoderLayer"):
            fully_shard(module)
    fully_shard(training.model)
    training.parameters = [p for p in training.model.parameters() if p.requires_grad]
    training.optimizer = torch.optim.AdamW(training.parameters, lr=1e-5)
    # Every rank has its own data.
    torch.manual_seed(100 + rank)
    losses, milliseconds = [], []
    for _ in range(options.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        losses.append(training.step()[0])
        torch.cuda.synchronize()
        milliseconds.append(round((time.perf_counter() - begin) * 1e3, 3))
    check_copies(world)
    result = {
        "rank": rank,
        "losses": losses,
        "step_ms": milliseconds,
        "reserved_peak": torch.cuda.max_memory_reserved(),
        "allocated_peak": torch.cuda.max_memory_allocated(),
        "backend": torch.cuda.get_allocator_backend(),
    }
    torch.distributed.destroy_process_group()
    return result


def check_copies(world):
    """Memory of one device is read by others, through NCCL and by copies."""
    here = torch.cuda.current_device()
    numbers = torch.ones(1 << 20, device=torch.device("cuda", here))
    torch.distributed.all_reduce(numbers)
    assert bool((numbers == world).all())
    other = torch.device("cuda", (here + 1) % torch.cuda.device_count())
    assert bool((numbers.to(other) == world).all())


if __name__ == "__main__":
    print(json.dumps(run()), flush=True)
