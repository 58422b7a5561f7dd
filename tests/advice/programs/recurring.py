"""What happens in some steps only: checkpoints, the garbage collector, validation."""

import gc
import itertools

import torch
from harness import endless, mlp, program, update
from torch.nn import functional as F


@program("checkpoints", "held", expect=("logging-checkpoint-stall",), period=3)
def checkpoint_every_third(fixed):
    """The model is saved after every third step. Fix: once in 3,000 steps."""
    model = mlp(256, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    batches = endless(64, torch.randn(2048, 256), torch.randint(10, (2048,)))
    for number, (x, y) in enumerate(batches, 1):
        update(optimizer, F.cross_entropy(model(x), y))
        if number % (3000 if fixed else 3) == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
        yield len(x)


@program("replay buffer", "tune", expect=("gc-pause",), period=5)
def gc_collect(fixed):
    """Every fifth step collects garbage over 400,000 stored objects. Fix: freeze them, and let Python collect."""
    buffer = [{"state": [float(i)], "reward": float(i % 3)} for i in range(200_000)]
    if fixed:
        gc.freeze()
    model = mlp(64, 512, 512, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    batches = endless(256, torch.randn(2048, 64))
    for number, (x,) in enumerate(batches):
        y = torch.tensor([buffer[(256 * number + i) % len(buffer)]["reward"] for i in range(256)])
        update(optimizer, F.mse_loss(model(x)[:, 0], y))
        if number % 5 == 0 and not fixed:
            gc.collect()
        yield len(x)


@program("validation", "tune", expect=("grad-in-validation",), also=("validation-mode",))
def validation_with_grad(fixed):
    """After every batch four more are validated, with gradients recorded. Fix: torch.no_grad()."""
    model = mlp(64, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    kept = list(itertools.islice(endless(256, torch.randn(1024, 64), torch.randint(10, (1024,))), 4))
    for x, y in endless(64, torch.randn(2048, 64), torch.randint(10, (2048,))):
        model.train()
        update(optimizer, F.cross_entropy(model(x), y))
        model.eval()
        with torch.set_grad_enabled(not fixed):
            sum(F.cross_entropy(model(a), b) for a, b in kept).item()
        yield len(x)
