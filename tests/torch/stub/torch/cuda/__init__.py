from . import memory
from .memory import memory_stats, reset_peak_memory_stats

_initialized = False
_waiting = []


def is_initialized():
    return _initialized


def _lazy_call(call):
    call() if _initialized else _waiting.append(call)


def init():
    """What the first CUDA tensor does."""
    global _initialized
    _initialized = True
    while _waiting:
        _waiting.pop(0)()


def current_device():
    return 0


def device_count():
    return 2


def get_allocator_backend():
    return "pluggable" if memory.current else "native"


class MemPool:
    def __init__(self, allocator):
        self.allocator = allocator
