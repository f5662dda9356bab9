"""Writes the small snapshots beside this file: python3 make_snapshots.py (needs xz, gzip and zstd).

small.pN.pickle hold the same snapshot at pickle protocol N, small.p4.pickle.* are
compressed. Two devices; the recording of device 0 begins mid-run. What the tests
expect of it stands in tests/workloads_snapshot_test.c.
"""

import copy
import os
import pickle
import subprocess

BASE = 0x7F0000000000
BIG = BASE + (2 << 20)
OTHER = 0x7E0000000000


def frames():
    return [
        {"name": "forward", "filename": "/model/layer.py", "line": 41},
        {"name": "<module>", "filename": "/model/train.py", "line": 7},
    ]


def block(address, size, requested, state):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": []}


def segment(device, address, size, stream, kind, blocks):
    active = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": sum(b["size"] for b in active),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": stream,
        "segment_type": kind,
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


clock = 1795985714661019


def entry(action, address, size, stream=0, with_frames=True):
    global clock
    clock += 11
    made = {
        "action": action,
        "device_free" if action == "oom" else "addr": address,
        "size": size,
        "stream": stream,
        "time_us": clock,
        "compile_context": "N/A",
        "user_metadata": "",
    }
    if with_frames:
        made["frames"] = frames()
    return made


SNAPSHOT = {
    "segments": [
        segment(1, OTHER, 2 << 20, 0, "small", [block(OTHER, 2 << 20, 700, "active_allocated")]),
        segment(
            0,
            BASE,
            2 << 20,
            0,
            "small",
            [
                block(BASE, 512, 400, "active_allocated"),
                block(BASE + 512, 1024, 1000, "active_pending_free"),
                block(BASE + 1536, (2 << 20) - 1536, 100, "inactive"),
            ],
        ),
        segment(
            0,
            BIG,
            20 << 20,
            593655040,
            "large",
            [
                block(BIG, 5 << 20, 5000000, "active_allocated"),
                block(BIG + (5 << 20), 15 << 20, 0, "inactive"),
            ],
        ),
    ],
    "device_traces": [
        [
            entry("segment_alloc", BIG, 20 << 20, 593655040),
            entry("free_requested", BASE + 1536, 2048),
            entry("free_completed", BASE + 1536, 2048),
            entry("alloc", BIG, 5000000, 593655040),
            entry("alloc", BASE + 1536, 3000),
            entry("free_requested", BASE + 1536, 3000),
            entry("free_requested", BASE + 512, 1000),
            entry("oom", 123, 1 << 40),
            entry("alloc", BASE + 8192, 1, with_frames=False),
            entry("free_completed", BASE + 1536, 3000),
            entry("alloc", BASE + 1536, 100),
            entry("free_requested", BASE + 1536, 100),
            entry("free_completed", BASE + 1536, 100),
            entry("free_requested", BASE + 8192, 1),
            entry("free_completed", BASE + 8192, 1),
            entry("snapshot", 0, 5000000),
        ],
        [
            entry("alloc", OTHER + 4096, 4096),
            entry("free_requested", OTHER + 4096, 4096),
            entry("free_completed", OTHER + 4096, 4096),
        ],
        [],
    ],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                           "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "32768": 0}},
    "external_annotations": [],
}


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for protocol in range(2, 6):
        with open(f"small.p{protocol}.pickle", "wb") as file:
            pickle.dump(SNAPSHOT, file, protocol)
    for command in (["xz", "--lzma2=preset=9,dict=64KiB"], ["gzip", "-9", "-n"], ["zstd", "-19", "-q", "--check"]):
        ending = {"xz": "xz", "gzip": "gz", "zstd": "zst"}[command[0]]
        with open(f"small.p4.pickle.{ending}", "wb") as file:
            subprocess.run(command + ["-c", "small.p4.pickle"], stdout=file, check=True)
    unrecorded = copy.copy(SNAPSHOT)
    unrecorded["device_traces"] = []
    with open("unrecorded.pickle", "wb") as file:
        pickle.dump(unrecorded, file, 4)


main()
