import ctypes

import torch

current = None
history = []


class _Hooks:
    def __init__(self):
        self.set = {}

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.set.__setitem__(name, address)


class CUDAPluggableAllocator:
    def __init__(self, path, alloc_name, free_name):
        library = ctypes.CDLL(path)
        self.malloc = getattr(library, alloc_name)
        self.malloc.argtypes, self.malloc.restype = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        self.free = getattr(library, free_name)
        self.free.argtypes, self.free.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p], None
        self.hooks = _Hooks()

    def allocator(self):
        return self.hooks


def change_current_allocator(allocator):
    global current
    if torch.cuda.is_initialized() or current:
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator


def memory_stats(device=None):
    flat = {}

    def flatten(prefix, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                flatten(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    flatten("", torch._C._cuda_memoryStats(0 if device is None else device))
    return flat


def reset_peak_memory_stats(device=None):
    torch._C._cuda_resetPeakMemoryStats(0 if device is None else device)


def _record_memory_history(enabled, **_options):
    history.append(enabled)


def _snapshot():
    return {"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": 1000, "stream": 0}]]}
