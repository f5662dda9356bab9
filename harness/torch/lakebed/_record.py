"""Traces of live runs."""

import atexit
import os
import pickle
import sys

from . import _library, _report

# PyTorch keeps so many events at most; one takes some 100 bytes of host memory.
_MOST_EVENTS = 10_000_000


class Recording:
    """A recording that goes on: ends with stop(), at the end of a with block, or with the process."""

    def __init__(self, path):
        self.path = path
        self._stop = None

    def stop(self):
        """Completes the file. Further calls do nothing."""
        stop, self._stop = self._stop, None
        if stop:
            stop()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.stop()
        return False


def record(path, device=None):
    """Records every allocation and free from now on; what is live already comes first.

    Under a policy the file is in Lakebed's own format (compressed if its name ends with .xz, .gz or .zst); under
    PyTorch's own allocator it is a snapshot of its memory history. './lakebed replay' reads either.

    device: None: the current one, or before CUDA is initialised, the first that is used. In path, {rank} stands
      for the rank of this process.
    """
    from . import _install

    path = os.fsdecode(path).replace("{rank}", os.environ.get("RANK", "0"))
    recording = Recording(path)
    if _install.in_use():
        _record_policy(recording, device)
    else:
        _record_pytorch(recording)
    atexit.register(_stop_at_exit, recording)
    return recording


def _stop_at_exit(recording):
    try:
        recording.stop()
    except Exception as error:
        print(f"lakebed: {recording.path} was not written: {error}", file=sys.stderr)


def _record_policy(recording, device):
    import torch

    if device is None:
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
    else:
        device = _report._index(device)
    status, message = _library.call("record_begin", _library.text(recording.path), device)
    if status != 0:
        raise OSError(message)

    def stop():
        status, message = _library.call("record_end", device)
        if status != 0:
            raise OSError(message)

    recording._stop = stop


def _record_pytorch(recording):
    import torch

    # When CUDA is initialised, not now: that would choose a device for the script.
    torch.cuda._lazy_call(
        lambda: torch.cuda.memory._record_memory_history("all", context=None, max_entries=_MOST_EVENTS)
    )

    def stop():
        if not torch.cuda.is_initialized():
            raise OSError("CUDA was not used")
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(None)
        _write_snapshot(snapshot, recording.path)

    recording._stop = stop


def _write_snapshot(snapshot, path):
    if path.endswith(".xz"):
        import lzma as compression
    elif path.endswith(".gz"):
        import gzip as compression
    elif path.endswith(".zst"):
        raise OSError(f"{path}: a snapshot is written plain, or to .xz or .gz")
    else:
        compression = None
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with compression.open(partial, "wb") if compression else open(partial, "wb") as file:
            pickle.dump(snapshot, file)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise
