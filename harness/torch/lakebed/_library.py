"""liblakebed_torch.so: where it is, and its functions (harness/torch/lakebed_torch.h)."""

import ctypes
import json
import os

_MESSAGE_BYTES = 1024

_loaded = None


def path():
    """The library's file: $LAKEBED_TORCH_LIBRARY, else the one beside this module."""
    found = os.environ.get("LAKEBED_TORCH_LIBRARY")
    if not found:
        found = os.path.join(os.path.dirname(os.path.abspath(__file__)), "liblakebed_torch.so")
    if not os.path.exists(found):
        raise ImportError(
            f"{found} does not exist: build it with './lakebed torch' in Lakebed's tree, then install again"
        )
    return found


def load():
    global _loaded
    if _loaded is None:
        library = ctypes.CDLL(path())
        text, size, number = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
        for name, arguments in {
            "configure": [text, text, text, size],
            "describe": [text, size],
            "record_begin": [text, number, text, size],
            "record_end": [number, text, size],
            "check": [number, text, size],
        }.items():
            function = getattr(library, "lakebed_torch_" + name)
            function.argtypes, function.restype = arguments, number
        library.lakebed_torch_statistics.argtypes = [number, text, size]
        library.lakebed_torch_statistics.restype = size
        library.lakebed_torch_reset_peaks.argtypes = [number]
        library.lakebed_torch_reset_peaks.restype = None
        library.lakebed_torch_memory_fraction.argtypes = [ctypes.c_double, number]
        library.lakebed_torch_memory_fraction.restype = None
        _loaded = library
    return _loaded


def text(value):
    """A text as C takes it."""
    if not isinstance(value, str):
        raise TypeError(f"lakebed: {value!r}: expected a text")
    if "\0" in value:
        raise ValueError(f"lakebed: {value!r}: expected a text without NUL characters")
    return os.fsencode(value)


def address(name):
    """The address of a function, for PyTorch's hooks."""
    return ctypes.cast(getattr(load(), "lakebed_torch_" + name), ctypes.c_void_p).value


def call(name, *arguments):
    """Calls a function that ends with a message; returns its status (0: success) and the message."""
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    status = getattr(load(), "lakebed_torch_" + name)(*arguments, message, _MESSAGE_BYTES)
    return status, message.value.decode(errors="replace")


def statistics(device):
    """What is known of a device's policy; None if the device is not open."""
    size = 16384
    while True:
        text = ctypes.create_string_buffer(size)
        needed = load().lakebed_torch_statistics(device, text, size)
        if needed == 0:
            return None
        if needed < size:
            return json.loads(text.value)
        size = needed + 4096
