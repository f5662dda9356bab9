"""For live_matrix.py without a GPU: what it imports, in every interpreter that it starts."""

import os
import sys
import time
import types

import torch
import torch.cuda.memory


def _module(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def _statistics(device):
    zero = {field: 0 for field in ("current", "peak", "allocated", "freed")}
    held = zero | {"current": 2 << 20, "peak": 4 << 20}
    return {name: {"all": held if "bytes" in name else zero} for name in ("active_bytes", "allocated_bytes", "reserved_bytes")}


def _backend():
    if torch.cuda.memory.current:
        return "pluggable"
    return os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "backend:native").partition(":")[2]


torch.__version__ = "2.11"
torch.version = _module("torch.version", cuda="13.0")
torch.float32 = "float32"
torch.set_default_dtype = torch.manual_seed = lambda value: None
torch._C._cuda_memoryStats = _statistics
torch._C._cuda_resetPeakMemoryStats = lambda device: None
torch._C._accelerator_setAllocatorSettings = lambda text: None
torch.cuda.get_allocator_backend = _backend
torch.cuda.synchronize = torch.cuda.empty_cache = lambda: None
torch.cuda.set_per_process_memory_fraction = lambda fraction: None
torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(total_memory=1 << 30)

for _name in ("transformers", "transformers.models", "torchvision", "peft"):
    _module(_name, __version__="5", models=None)
for _name in ("gpt2", "gpt_neox", "llama", "opt"):
    _module(f"transformers.models.{_name}", **{f"modeling_{_name}": None})
_module("torchvision.models")
_module("pynvml", nvmlInit=lambda: None, nvmlDeviceGetHandleByIndex=lambda gpu: gpu, nvmlDeviceGetName=lambda gpu: "GPU",
        nvmlSystemGetDriverVersion=lambda: "1", nvmlDeviceGetMemoryInfo=lambda gpu: types.SimpleNamespace(used=5 << 20))


class Training:
    """Allocates and frees; above a batch of 24 there is no memory."""

    def __init__(self, options):
        torch.cuda.init()
        self.options, self.optimizer = options, types.SimpleNamespace(zero_grad=lambda set_to_none: None)

    def step(self):
        if self.options.batch > 24 and self.options.sequence:
            raise torch.OutOfMemoryError("CUDA out of memory")
        time.sleep(0.001)
        allocator = torch.cuda.memory.current
        if allocator:
            allocator.free(allocator.malloc(3 << 20, 0, None), 3 << 20, 0, None)
        return 1.5, 64


def options_of(arguments):
    return types.SimpleNamespace(model="", strategy="", batch=1, sequence=1, vary=False, steps=2, deterministic=None)


def run(options, after_step=None):
    if options.model == "hangs":
        while True:
            pass
    if options.model == "cannot" and options.deterministic == "strict":
        raise RuntimeError("this does not have a deterministic implementation")
    training = Training(options)
    losses = []
    for number in range(options.steps):
        losses.append(training.step()[0])
        after_step(number)
    return {"losses": losses, "step_ms": [2.0] * options.steps, "counts": [64] * options.steps}


def run_rank(arguments):
    return {"rank": int(os.environ["RANK"]), "losses": [1.5, 1.25], "step_ms": [3.0, 2.0], "reserved_peak": 4 << 20,
            "allocated_peak": 2 << 20, "backend": _backend()}


_module("train", Training=Training, options_of=options_of, run=run)
_module("train_fsdp", run=run_rank)
_module("allocation_checks", CHECKS=[run, run], run=lambda: {})
