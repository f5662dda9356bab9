"""Writes a PyTorch memory snapshot of any size, byte for byte as CPython's pickle (protocol 4) would, without
ever holding it: python3 make_large_snapshot.py ENTRIES FILE [FRAMES]

ENTRIES events over a few thousand addresses; FRAMES references to stack frames per allocation (0). A
little over 50 bytes an entry: 9,500,000 make 500 MB. For trace_read_bench and for memory measurements.
"""

import random
import struct
import sys

BATCH = 1000  # items between MARK and APPENDS


class Writer:
    def __init__(self, file, frames):
        self.file, self.frames = file, frames
        self.parts, self.memo, self.strings = [], 0, {}
        self.clock = 1795985714661019

    def put(self, opcodes):
        self.memo += 1
        return opcodes + b"\x94"

    def fresh(self, text):
        data = text.encode()
        return self.put(b"\x8c" + bytes([len(data)]) + data)

    def get(self, index):
        return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def shared(self, text):
        if text in self.strings:
            return self.get(self.strings[text])
        self.strings[text] = self.memo
        return self.fresh(text)

    def integer(self, value):
        if value < 1 << 8:
            return b"K" + bytes([value])
        if value < 1 << 16:
            return b"M" + struct.pack("<H", value)
        if value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        size = value.bit_length() // 8 + 1
        return b"\x8a" + bytes([size]) + value.to_bytes(size, "little")

    def entry(self, action, address, size):
        self.clock += random.randrange(1, 40)
        made = [self.put(b"}"), b"("]
        made += [self.shared("action"), self.shared(action), self.shared("addr"), self.integer(address)]
        made += [self.shared("size"), self.integer(size), self.shared("stream"), b"K\0"]
        made += [self.shared("time_us"), self.integer(self.clock)]
        made += [self.shared("compile_context"), self.fresh("N/A"), self.shared("user_metadata"), self.shared("")]
        if self.frames:
            made += [self.shared("frames"), self.put(b"]")]
            if action != "free_completed":
                made += [b"(", self.get(3) * self.frames, b"e"]
        self.write(b"".join(made) + b"u")

    def write(self, opcodes):
        self.parts.append(opcodes)
        if len(self.parts) >= 5000:
            self.flush()

    def flush(self):
        self.file.write(b"".join(self.parts))
        self.parts.clear()


def events():
    """Endless (action, address, size); about 2,000 to 3,000 allocations live at a time."""
    live, free, fresh = [], [], 139724243075072
    while True:
        if len(live) < 2000 or random.random() < 0.5:
            address, fresh = (free.pop(), fresh) if free else (fresh, fresh + (2 << 20))
            live.append((address, random.choice([512, 4096, 33554432, 7 << 20, 205914112])))
            yield "alloc", *live[-1]
        else:
            chosen = random.randrange(len(live))
            live[chosen], live[-1] = live[-1], live[chosen]
            address, size = live.pop()
            free.append(address)
            yield "free_requested", address, size
            yield "free_completed", address, size


def main():
    entries, path, frames = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    random.seed(1)
    with open(path, "wb") as file:
        writer = Writer(file, frames)
        writer.write(b"\x80\x04" + writer.put(b"}") + b"(")
        writer.write(writer.shared("segments") + writer.put(b"]"))
        writer.write(writer.shared("device_traces") + writer.put(b"]") + writer.put(b"]"))
        for index, event in zip(range(entries), events()):
            if index % BATCH == 0:
                writer.write(b"e(" if index else b"(")
            writer.entry(*event)
        writer.write((b"e" if entries else b"") + b"au.")
        writer.flush()


main()
