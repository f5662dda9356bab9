"""What a test, fuzz target or benchmark of a layer may include."""

_VMM = ["//vmm"]
_POOLS = ["//pools"] + _VMM
_WORKLOADS = ["//workloads"]
_ALL = ["//harness", "//policies", "//vmm:cuda"] + _POOLS + _WORKLOADS

LAYERS = {
    "vmm": ["//vmm:cuda"] + _VMM,
    "pools": _POOLS,
    # A policy is tested by replaying traces, which is the harness's work.
    "policies": _ALL,
    "workloads": _WORKLOADS,
    "harness": _ALL,
    "tests": [],
}

ALL_LAYERS = _ALL
