"""Puts a policy in the place of PyTorch's allocator, or under a memory pool."""

import os

from . import _library, _report

# The policy in use, and what must live as long as it.
_policy = None
_kept = []


def policy():
    """The policy in use as it was asked for; "pytorch" for PyTorch's own allocator."""
    return _policy or "pytorch"


def in_use():
    return _policy is not None


def _configure(spec, device):
    encode = lambda text: None if text is None else _library.text(text)
    status, message = _library.call("configure", encode(spec), encode(device))
    if status != 0:
        raise ValueError(message)


def _pluggable(torch):
    memory = torch.cuda.memory
    if not hasattr(memory, "CUDAPluggableAllocator") or not hasattr(torch._C, "_cuda_customAllocator"):
        raise RuntimeError(f"lakebed: needs PyTorch 2.1 or later with CUDA; this is {torch.__version__} without it")
    return memory.CUDAPluggableAllocator


def use(spec=None, device=None, fraction=None):
    """Serves all CUDA memory of this process by a policy, from now to its end.

    To be called before CUDA is initialised, which the first CUDA tensor does.

    spec: a policy and its options as in './lakebed replay --policy': "gmlake:frag_limit=2MiB". None: what
      $LAKEBED_POLICY says, else "aliasheap". "pytorch" changes nothing.
    device: None, or "sim:..." for tests without a GPU.
    fraction: the share of each device that its policy may hold, as set_per_process_memory_fraction sets it.

    ValueError for a bad spec or fraction, RuntimeError when it is too late or this PyTorch cannot do it.
    """
    global _policy
    import torch

    # The library would throw, through ctypes, which ends the process.
    if fraction is not None and not 0 <= fraction <= 1:
        raise ValueError(f"lakebed: fraction {fraction}: expected 0 to 1")
    if spec is None:
        spec = os.environ.get("LAKEBED_POLICY") or "aliasheap"
    if spec == "pytorch":
        if _policy:
            raise RuntimeError(f"lakebed: policy {_policy} is in use, for as long as the process lives")
        if fraction is not None:
            for index in range(torch.cuda.device_count()):
                torch.cuda.set_per_process_memory_fraction(fraction, index)
        return
    if _policy:
        if _policy == spec:
            return
        raise RuntimeError(f"lakebed: policy {_policy} is in use, for as long as the process lives")
    pluggable = _pluggable(torch)
    if torch.cuda.is_initialized():
        raise RuntimeError("lakebed: CUDA is initialised already: call lakebed.use() before the first CUDA tensor")
    _configure(spec, device)
    if fraction is not None:
        for index in range(torch.cuda.device_count()):
            _library.load().lakebed_torch_memory_fraction(fraction, index)
    allocator = pluggable(_library.path(), "lakebed_torch_malloc", "lakebed_torch_free")
    _set_hooks(allocator.allocator())
    torch.cuda.memory.change_current_allocator(allocator)
    _kept.append(allocator)
    _policy = spec
    _report.answer_for_torch()


def _set_hooks(allocator):
    for setter, function in (
        ("set_init_fn", "init"),
        ("set_reset_fn", "empty_cache"),
        ("set_memory_fraction_fn", "memory_fraction"),
        ("set_record_stream_fn", "record_stream"),
        ("set_begin_allocate_to_pool", "begin_pool"),
    ):
        # Older versions of PyTorch lack some. Without record_stream memory could be reused too early.
        if hasattr(allocator, setter):
            getattr(allocator, setter)(_library.address(function))
        elif setter == "set_record_stream_fn":
            raise RuntimeError("lakebed: this PyTorch cannot tell an allocator of streams: use 2.1 or later")


def mempool(spec=None, device=None):
    """A torch.cuda.MemPool whose segments come from a policy.

    PyTorch's own allocator stays in charge and caches; the policy sees requests of whole segments. For
    torch.cuda.use_mem_pool(). Not beside use().
    """
    import torch

    if _policy:
        raise RuntimeError("lakebed: with use() all memory is the policy's: there are no pools beside it")
    pluggable = _pluggable(torch)
    if not hasattr(torch.cuda, "MemPool"):
        raise RuntimeError(f"lakebed: memory pools need PyTorch 2.5 or later; this is {torch.__version__}")
    _configure(spec, device)
    allocator = pluggable(_library.path(), "lakebed_torch_segment_malloc", "lakebed_torch_free")
    _kept.append(allocator)
    return torch.cuda.MemPool(allocator.allocator())
