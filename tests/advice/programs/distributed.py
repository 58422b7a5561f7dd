"""Two ranks on one machine, DistributedDataParallel on gloo."""

import contextlib

import torch
from harness import endless, mlp, program, update
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def deep(width, layers):
    return nn.Sequential(mlp(64, width), *(nn.Sequential(nn.ReLU(), nn.Linear(width, width)) for _ in range(layers)))


@program("DDP", "tune", expect=("ddp-bucket-shape",), also=("exposed-collective", "small-batch"), ranks=2)
def ddp_small_buckets(fixed):
    """Each parameter is reduced by itself. Fix: buckets of the default 25 MB."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(deep(128, 40), bucket_cap_mb=25 if fixed else 0.0001)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(64, torch.randn(2048, 64), torch.randint(128, (2048,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("DDP", "tune", expect=("missing-no-sync",), also=("exposed-collective", "small-batch"), ranks=2)
def ddp_no_sync(fixed):
    """Gradients are reduced after each of four accumulated batches. Fix: no_sync() for the first three."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(mlp(64, 1024, 1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    batches = endless(32, torch.randn(2048, 64), torch.randint(10, (2048,)))
    while True:
        optimizer.zero_grad()
        for part in range(4):
            x, y = next(batches)
            with model.no_sync() if fixed and part < 3 else contextlib.nullcontext():
                (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        yield 128


@program("DDP", "tune", ranks=2)
def good_ddp(fixed):
    """Large batches on one thread for each of two ranks, buckets as they are by default."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(mlp(128, 512, 512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(512, torch.randn(2048, 128), torch.randint(10, (2048,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)
