"""As much of PyTorch as Lakebed's package touches, over the real plugin library: for tests without a GPU."""

from . import _C, cuda


class OutOfMemoryError(RuntimeError):
    pass


class device:
    def __init__(self, text):
        self.index = int(text.split(":")[1]) if ":" in text else None
