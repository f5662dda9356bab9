"""Lakebed's allocator policies under PyTorch.

    import lakebed
    lakebed.use("aliasheap")        # before the first CUDA tensor

or, with no change to a script:  python -m lakebed --policy aliasheap train.py ARGS

docs/pytorch.md tells the rest.
"""

from ._install import mempool, policy, use
from ._record import record
from ._report import reset_peak, stats, summary

__all__ = ["mempool", "policy", "record", "reset_peak", "stats", "summary", "use"]
