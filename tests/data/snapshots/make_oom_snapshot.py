"""Writes oom.pickle.xz beside this file: python3 make_oom_snapshot.py (needs xz).

A recording that begins mid-run and ends with an out-of-memory event, in sizes as PyTorch's default allocator
would have them (pytorch#35901): a freed block of 11.6 GB is cut up by small ones that stay, and the next request
of 11.6 GB finds neither a free block nor enough of the device. What the tests expect of it stands in
tests/harness_oom_test.c.
"""

import os
import pickle
import subprocess

MIB = 1 << 20
DEVICE = 22000 * MIB
WEIGHTS = 0x7F0000000000
HUGE = 0x7F1000000000
HUGE_BYTES = 11600 * MIB
SMALL_BYTES = 16 * MIB

clock = 1795985714661019
events = []


def entry(action, address, size, key="addr"):
    global clock
    clock += 7
    events.append({"action": action, key: address, "size": size, "stream": 0, "time_us": clock})


def block(address, size, active):
    state = "active_allocated" if active else "inactive"
    return {"address": address, "size": size, "requested_size": size if active else 0, "state": state, "frames": []}


def segment(address, blocks):
    total = sum(b["size"] for b in blocks)
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


entry("segment_alloc", HUGE, HUGE_BYTES)
entry("alloc", HUGE, HUGE_BYTES)
for action in ("free_requested", "free_completed"):
    entry(action, HUGE, HUGE_BYTES)
small = [HUGE + i * SMALL_BYTES for i in range(40)]
for address in small:
    entry("alloc", address, SMALL_BYTES)
for i, address in enumerate(small):
    if i % 3 != 0:
        for action in ("free_requested", "free_completed"):
            entry(action, address, SMALL_BYTES)
entry("oom", DEVICE - 1024 * MIB - HUGE_BYTES, HUGE_BYTES, "device_free")

blocks = []
for i, address in enumerate(small):
    if i % 3 == 0:
        blocks.append(block(address, SMALL_BYTES, True))
    elif i % 3 == 1:
        blocks.append(block(address, 2 * SMALL_BYTES, False))
blocks.append(block(small[-1] + SMALL_BYTES, HUGE_BYTES - 40 * SMALL_BYTES, False))

snapshot = {
    "segments": [segment(WEIGHTS, [block(WEIGHTS, 1024 * MIB, True)]), segment(HUGE, blocks)],
    "device_traces": [events],
    "allocator_settings": {},
    "external_annotations": [],
}
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oom.pickle")
with open(path, "wb") as file:
    pickle.dump(snapshot, file, protocol=4)
subprocess.run(["xz", "--force", "-9e", path], check=True)
