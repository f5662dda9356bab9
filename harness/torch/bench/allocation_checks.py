"""What PyTorch programs do with memory, as checks that use torch alone: to be run with and without a policy.

    python allocation_checks.py
    python -m lakebed --policy aliasheap allocation_checks.py

Prints one line a check and 'N passed, N failed'; exit status 1 if any failed, 4 without a GPU.
"""

import copy
import gc
import sys
import threading
import traceback

import torch


def empty_tensors():
    x = torch.empty(0, device="cuda")
    y = torch.empty(3, 0, 5, device="cuda")
    assert x.numel() == 0 and y.shape == (3, 0, 5)
    assert (x + 1).numel() == 0 and float(y.sum()) == 0
    assert torch.cat([x, torch.ones(2, device="cuda")]).tolist() == [1, 1]
    del x, y


def views_keep_their_memory():
    base = torch.arange(1000, device="cuda")
    view = base[100:200]
    pointer = view.data_ptr()
    del base
    gc.collect()
    other = torch.full((1000,), -1, device="cuda")
    assert view.tolist() == list(range(100, 200)) and view.data_ptr() == pointer
    del other


def addresses_are_aligned():
    kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (1, 3, 511, 513, 4097, 1 << 20, 3 << 21)]
    assert all(x.data_ptr() % 512 == 0 and x.data_ptr() != 0 for x in kept)
    spans = sorted((x.data_ptr(), x.data_ptr() + x.numel()) for x in kept)
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:]))


def contents_survive():
    """Many tensors of random sizes, freed in another order; each holds what was written."""
    generator = torch.Generator().manual_seed(1)
    kept = {}
    for number in range(600):
        size = int(2 ** (torch.rand(1, generator=generator, dtype=torch.float64) * 24).item())
        kept[number] = torch.full((size,), number % 251, dtype=torch.uint8, device="cuda")
        if number % 3 == 2:
            victim = sorted(kept)[int(torch.randint(len(kept), (1,), generator=generator))]
            x = kept.pop(victim)
            assert bool((x == victim % 251).all()), victim
    for number, x in kept.items():
        assert bool((x == number % 251).all()), number


def pinned_copies():
    host = torch.randn(1 << 20, dtype=torch.float32).pin_memory()
    device = host.to("cuda", non_blocking=True)
    back = torch.empty_like(host).pin_memory()
    back.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(host, back)


def streams():
    side = torch.cuda.Stream()
    x = torch.ones(1 << 22, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
        x.record_stream(side)
    del x
    z = torch.zeros(1 << 22, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    assert bool((y == 2).all()) and bool((z == 0).all())


def recorded_streams_are_waited_for():
    """Memory in use on a side stream is not given out before that stream is done."""
    side = torch.cuda.Stream()
    for _ in range(20):
        x = torch.full((1 << 22,), 7.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            y = x + 1
            x.record_stream(side)
        del x
        overwrite = [torch.zeros(1 << 22, device="cuda") for _ in range(3)]
        torch.cuda.current_stream().wait_stream(side)
        assert bool((y == 8).all())
        del y, overwrite


def threads():
    failures = []

    def work(seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for number in range(150):
                    size = int(torch.randint(1, 1 << 20, (1,), generator=generator))
                    x = torch.full((size,), float(number), device="cuda")
                    y = x * 2
                    del x
                    assert bool((y == 2 * number).all())
        except BaseException:
            failures.append(traceback.format_exc())

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]


def autograd():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 10)).cuda()
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    loss = model(x).square().mean()
    loss.backward()
    assert x.grad.isfinite().all() and all(p.grad is not None for p in model.parameters())
    reference = copy.deepcopy(model).cpu().double()
    y = x.detach().cpu().double().requires_grad_()
    reference(y).square().mean().backward()
    assert torch.allclose(x.grad.cpu().double(), y.grad, atol=1e-5)


def deep_copies():
    model = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).cuda().eval()
    twin = copy.deepcopy(model)
    x = torch.randn(2, 16, 128, device="cuda")
    with torch.no_grad():
        first = model(x)
        for p in model.parameters():
            p.zero_()
        assert torch.equal(first, twin(x))


def exceptions_mid_step():
    model = torch.nn.Linear(512, 512).cuda()

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise ValueError("in the backward pass")

    for _ in range(5):
        try:
            Failing.apply(model(torch.randn(1024, 512, device="cuda"))).sum().backward()
            raise AssertionError("no exception")
        except ValueError:
            pass
    model(torch.randn(1024, 512, device="cuda")).sum().backward()
    assert model.weight.grad.isfinite().all()


def out_of_memory():
    """Is torch.OutOfMemoryError, and smaller requests go on."""
    _, total = torch.cuda.mem_get_info()
    before = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        try:
            torch.empty(2 * total, dtype=torch.uint8, device="cuda")
            raise AssertionError("no exception")
        except torch.OutOfMemoryError as error:
            assert "out of memory" in str(error), error
    assert bool((before == 1).all())
    after = torch.ones(1 << 24, device="cuda")
    assert float(after.sum()) == 1 << 24


def out_of_memory_in_backward():
    _, total = torch.cuda.mem_get_info()

    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            return torch.empty(total, dtype=torch.float32, device="cuda")[: gradient.numel()]

    x = torch.ones(10, device="cuda", requires_grad=True)
    try:
        Greedy.apply(x).sum().backward()
        raise AssertionError("no exception")
    except torch.OutOfMemoryError:
        pass
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3] * 10


def storage_resize():
    x = torch.arange(1000, device="cuda")
    x.resize_(2_000_000)
    assert x[:1000].tolist() == list(range(1000))
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0


def empty_cache_keeps_what_lives():
    x = torch.full((1 << 22,), 5.0, device="cuda")
    junk = [torch.empty(1 << 24, device="cuda") for _ in range(4)]
    del junk
    torch.cuda.empty_cache()
    assert bool((x == 5).all())


def sorting_and_reductions():
    """Operations that take scratch memory."""
    x = torch.randn(1 << 21, device="cuda")
    y, order = x.sort()
    assert bool((y[1:] >= y[:-1]).all()) and torch.equal(x[order], y)
    assert torch.allclose(torch.linalg.qr(torch.randn(64, 64, device="cuda"))[0].norm(dim=0).cpu(), torch.ones(64))
    assert x.unique().numel() <= x.numel() and torch.fft.fft(x[:4096]).isfinite().all()


CHECKS = [
    empty_tensors,
    views_keep_their_memory,
    addresses_are_aligned,
    contents_survive,
    pinned_copies,
    streams,
    recorded_streams_are_waited_for,
    threads,
    autograd,
    deep_copies,
    exceptions_mid_step,
    out_of_memory,
    out_of_memory_in_backward,
    storage_resize,
    empty_cache_keeps_what_lives,
    sorting_and_reductions,
]


def run():
    """Names of the checks that failed, with the last line of why."""
    failed = {}
    for check in CHECKS:
        try:
            check()
            torch.cuda.synchronize()
        except BaseException as error:
            failed[check.__name__] = f"{type(error).__name__}: {error}"[:300]
        gc.collect()
    return failed


def main():
    if not torch.cuda.is_available():
        print("allocation_checks: PyTorch finds no GPU here, and these checks need one", file=sys.stderr)
        return 4
    failed = run()
    for check in CHECKS:
        print(f"{'FAILED' if check.__name__ in failed else 'passed'} {check.__name__} {failed.get(check.__name__, '')}")
    print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
