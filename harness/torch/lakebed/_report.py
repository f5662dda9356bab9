"""Statistics of the policy in use, for people, for programs, and for torch.cuda.memory_*."""

from . import _library

_STATISTICS = (
    "requested_bytes",
    "allocated_bytes",
    "active_bytes",
    "reserved_bytes",
    "inactive_split_bytes",
    "allocation",
    "segment",
    "inactive_split",
)
_FIELDS = ("current", "peak", "allocated", "freed")


def _index(device):
    """The number of a device given as torch takes it; None: the current one."""
    import torch

    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        device = device.index
    if device is None:
        return torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    # ctypes would take the lower bits of any other.
    if not 0 <= int(device) < 2**31:
        raise ValueError(f"lakebed: device {device}: expected the number of a device")
    return int(device)


def _of_torch(device):
    """The same of PyTorch's own allocator, as far as it tells."""
    import torch

    if not torch.cuda.is_initialized():
        return {"policy": "pytorch"}
    flat = torch.cuda.memory_stats(device)
    told = {"policy": "pytorch", "backend": torch.cuda.get_allocator_backend()}
    for name in _STATISTICS:
        told[name] = {field: flat.get(f"{name}.all.{field}", 0) for field in _FIELDS}
    told["retries"] = flat.get("num_alloc_retries", 0)
    told["out_of_memory"] = flat.get("num_ooms", 0)
    told["served_allocations"] = told["allocation"]["allocated"]
    told["served_frees"] = told["allocation"]["freed"]
    return told


def stats(device=None):
    """Everything that is known of a device's allocator, as a dict; docs/pytorch.md lists it.

    Empty for a device on which nothing was allocated yet.
    """
    from . import _install

    if not _install.in_use():
        pooled = _library.statistics(_index(device)) if _install._kept else None
        return pooled or _of_torch(device)
    return _library.statistics(_index(device)) or {}


def reset_peak(device=None):
    """Peaks begin anew at the current values."""
    import torch

    from . import _install

    if _install.in_use():
        _library.load().lakebed_torch_reset_peaks(_index(device))
    elif torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats(device)


def _gib(number):
    return f"{number / 2**30:10.3f} GiB"


def summary(device=None):
    """What torch.cuda.memory_summary shows, of the policy in use, and what the policy counts itself."""
    told = stats(device)
    if not told or "reserved_bytes" not in told:
        return "lakebed: nothing was allocated yet"
    lines = [f"lakebed: device {_index(device)}, policy {told.get('spec', told['policy'])}"]
    if told.get("options"):
        lines.append("  " + ", ".join(f"{name}={value}" for name, value in told["options"].items()))
    lines.append(f"  {'':22s}{'now':>14s}{'peak':>14s}{'allocated':>14s}{'freed':>14s}")
    for name in ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes"):
        values = "".join(_gib(told[name][field]) for field in _FIELDS)
        lines.append(f"  {name:22s}{values}")
    for name in ("allocation", "segment"):
        values = "".join(f"{told[name][field]:14d}" for field in _FIELDS)
        lines.append(f"  {name:22s}{values}")
    peak = told["reserved_bytes"]["peak"]
    if peak:
        lines.append(f"  utilisation at the peaks: {told['active_bytes']['peak'] / peak:.1%} (active of reserved)")
    lines.append(f"  out of memory {told['out_of_memory']} times, {told['retries']} retries")
    if "alloc_ns" in told:
        calls = told["served_allocations"] + told["served_frees"]
        spent = told["alloc_ns"] + told["free_ns"]
        lines.append(
            f"  {told['served_allocations']} allocations and {told['served_frees']} frees served, "
            f"{told['bypassed_allocations']} and {told['bypassed_frees']} bypassed"
        )
        lines.append(
            f"  {spent / 1e6:.3f} ms in them ({spent / 1e3 / max(calls, 1):.2f} us each, longest "
            f"{told['longest_ns'] / 1e6:.3f} ms), of which {told['driver_ns'] / 1e6:.3f} ms in the driver"
        )
        for name, call in told["driver_calls"].items():
            lines.append(f"    {name:32s}{call['count']:10d} calls{call['total_ns'] / 1e6:12.3f} ms")
        for name, value in told["counters"].items():
            lines.append(f"    {name:32s}{value:10d}")
    return "\n".join(lines)


def _nested(device):
    """The nested dict that torch._C._cuda_memoryStats gives."""
    told = _library.statistics(device) or {}
    zero = dict.fromkeys(_FIELDS, 0)
    named = {name: told.get(name, zero) for name in _STATISTICS}
    named["active"] = named["allocation"]
    # Policies have no small and large pool: only the sums are known.
    nested = {
        name: {"all": dict(value), "large_pool": dict(zero), "small_pool": dict(zero)}
        for name, value in named.items()
    }
    nested["oversize_allocations"] = dict(zero)
    nested["oversize_segments"] = dict(zero)
    nested["num_alloc_retries"] = told.get("retries", 0)
    nested["num_ooms"] = told.get("out_of_memory", 0)
    nested["num_sync_all_streams"] = told.get("host_waits", 0)
    nested["num_device_alloc"] = told.get("driver_allocations", 0)
    nested["num_device_free"] = told.get("driver_frees", 0)
    nested["max_split_size"] = -1
    return nested


def answer_for_torch():
    """Under a pluggable allocator torch.cuda.memory_stats and all that is built on it raise: now they answer."""
    import torch

    def reset(device):
        _library.load().lakebed_torch_reset_peaks(device)

    for name, function in (
        ("_cuda_memoryStats", _nested),
        ("_cuda_resetPeakMemoryStats", reset),
        ("_cuda_resetAccumulatedMemoryStats", lambda device: None),
        ("_accelerator_getDeviceStats", _nested),
        ("_accelerator_resetPeakStats", reset),
        ("_accelerator_resetAccumulatedStats", lambda device: None),
    ):
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
