"""python -m lakebed --policy SPEC SCRIPT ARGS: runs a PyTorch script under a policy."""

import argparse
import atexit
import os
import runpy
import sys

DEVICE_UNUSABLE = 4  # as of ./lakebed


def _parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m lakebed",
        usage="%(prog)s [OPTIONS] SCRIPT [ARGS...]\n       %(prog)s [OPTIONS] -m MODULE [ARGS...]",
        description="Runs a PyTorch script with all its CUDA memory served by one of Lakebed's policies. "
        "Under torchrun: torchrun [OPTIONS] -m lakebed --policy SPEC SCRIPT ARGS, each rank with a policy of its own.",
        epilog="Exit status: the script's; 2: bad usage; 4: no CUDA in this PyTorch, or too old. Policies and their options: ./lakebed policies. More: docs/pytorch.md.",
    )
    parser.add_argument(
        "--policy",
        metavar="SPEC",
        help="a policy with its options, as gmlake:frag_limit=2MiB; pytorch is PyTorch's own allocator "
        "(default: $LAKEBED_POLICY, else aliasheap)",
    )
    parser.add_argument(
        "--fraction", type=float, metavar="SHARE", help="the share of each device that may be held, 0 to 1"
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write a trace of the first device used; {rank} in FILE stands for the rank",
    )
    parser.add_argument("--summary", action="store_true", help="print what the policy did at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.fraction is not None and not 0 <= options.fraction <= 1:
        parser.error(f"argument --fraction: {options.fraction}: expected 0 to 1")
    if not options.module and not os.path.exists(options.script):
        parser.error(f"{options.script} does not exist")
    return parser, options


def _print_summary():
    import torch

    import lakebed

    for device in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        if lakebed.stats(device):
            print(lakebed.summary(device), file=sys.stderr)


def main(arguments=None):
    parser, options = _parse(arguments)
    import lakebed

    try:
        lakebed.use(options.policy, fraction=options.fraction)
    except (ImportError, ValueError) as error:
        parser.error(str(error))
    except RuntimeError as error:
        parser.exit(DEVICE_UNUSABLE, f"{error}\n")
    if options.summary:
        atexit.register(_print_summary)
    if options.record:
        lakebed.record(options.record)
    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.script))
        runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
