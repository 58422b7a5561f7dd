"""Multi-layer perceptrons and tables: precision, threads, optimizers, batches, debugging left on."""

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F


@program("MLP", "held", expect=("fp64-compute",))
def float64(fixed):
    """The data is NumPy's default type, and the model was converted to it. Fix: float32."""
    dtype = torch.float32 if fixed else torch.float64
    model = mlp(256, 1024, 1024, 10).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(256, torch.randn(4096, 256, dtype=dtype), torch.randint(10, (4096,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("MLP", "tune", expect=("cores-idle",), knob=("intra_op_threads", 2))
def one_thread(fixed, threads):
    """OMP_NUM_THREADS=1 is left over from a cluster's script. Fix: as many threads as cores."""
    torch.set_num_threads(int(threads) if fixed else 1)
    model = mlp(256, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(256, torch.randn(4096, 256), torch.randint(10, (4096,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("regression", "held", expect=("cpu-oversubscription",), knob=("intra_op_threads", 2))
def oversubscribed(fixed, threads):
    """The number of threads is that of another machine. Fix: as many threads as cores."""
    torch.set_num_threads(int(threads) if fixed else 8)
    model = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(512, torch.randn(4096, 128), torch.randn(4096, 1)):
        update(optimizer, F.mse_loss(model(x), y))
        yield len(x)


@program("MLP", "tune", expect=("foreach-not-fused", "unfused-optimizer"), also=("small-batch",))
def foreach_adamw(fixed):
    """The optimizer goes over 2 million parameters a dozen times per step. Fix: fused=True."""
    model = mlp(512, 1024, 1024, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=not fixed, fused=fixed)
    for x, y in endless(32, torch.randn(1024, 512), torch.randn(1024, 512)):
        update(optimizer, F.mse_loss(model(x), y))
        yield len(x)


@program("multi-task", "held", expect=("debug-api-on",), knob=("anomaly_mode", False))
def multi_loss_anomaly(fixed, anomaly):
    """Anomaly detection was never switched off again. Fix: off."""
    torch.autograd.set_detect_anomaly(bool(anomaly) if fixed else True)
    trunk = mlp(128, 256, 256, 256, 256, 256)
    heads = nn.ModuleList(mlp(256, 256, 256, classes) for classes in (5, 10, 20, 40))
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=1e-3, fused=True)
    targets = [torch.randint(head[-1].out_features, (2048,)) for head in heads]
    for x, *ys in endless(128, torch.randn(2048, 128), *targets):
        shared = trunk(x)
        update(optimizer, sum(F.cross_entropy(head(shared), y) for head, y in zip(heads, ys)))
        yield len(x)


@program("tabular", "held", expect=("host-copy-on-convert", "sync-data-loading"))
def list_to_tensor(fixed):
    """Rows are kept as lists of Python numbers, and each batch is converted anew. Fix: converted once."""
    rows, labels = torch.randn(2048, 200).tolist(), torch.randint(2, (2048,))
    table = torch.tensor(rows)
    model = mlp(200, 512, 256, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    while True:
        for begin in range(0, 2048, 512):
            x = table[begin:begin + 512] if fixed else torch.tensor(rows[begin:begin + 512])
            update(optimizer, F.cross_entropy(model(x), labels[begin:begin + 512]))
            yield 512


@program("tabular", "tune", expect=("unfused-optimizer",), also=("launch-bound", "small-batch"))
def tabular_adam_loop(fixed):
    """Sixty columns have tables of their own, which Adam updates one by one. Fix: fused=True."""
    columns = nn.ModuleList(nn.Embedding(500, 8) for _ in range(60))
    head = mlp(480, 256, 1)
    optimizer = torch.optim.Adam([*columns.parameters(), *head.parameters()], lr=1e-3, fused=fixed)
    for x, y in endless(256, torch.randint(500, (4096, 60)), torch.rand(4096)):
        embedded = torch.cat([column(x[:, i]) for i, column in enumerate(columns)], 1)
        update(optimizer, F.binary_cross_entropy_with_logits(head(embedded)[:, 0], y))
        yield len(x)


@program("MLP", "held", expect=("zero-grad-kernels",), also=("small-batch",))
def zero_grad_zeros(fixed):
    """Gradients of 3 million parameters are filled with zeros and added to. Fix: set_to_none=True."""
    model = mlp(1024, 1024, 1024, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(16, torch.randn(512, 1024), torch.randn(512, 1024)):
        optimizer.zero_grad(set_to_none=fixed)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        yield len(x)


@program("MLP", "held", expect=("small-batch",), also=("small-batch",), knob=("batch_factor", 4))  # yet larger ones
def small_batch(fixed, factor):
    """Eight samples share the reading and updating of 1.6 million parameters. Fix: larger batches."""
    model = mlp(512, 1024, 1024, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for x, y in endless(int(8 * factor) if fixed else 8, torch.randn(2048, 512), torch.randint(10, (2048,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("gradient accumulation", "tune", expect=("small-micro-batches", "small-batch"), also=("small-batch", "launch-bound"), knob=("batch_factor", 4))
def accumulation_tiny(fixed, factor):
    """Gradients are accumulated over eight batches of four although memory has room. Fix: fewer and larger batches."""
    micro = min(32, int(4 * factor)) if fixed else 4
    model = mlp(256, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    batches = endless(micro, torch.randn(2048, 256), torch.randint(10, (2048,)))
    while True:
        optimizer.zero_grad()
        for _ in range(32 // micro):
            x, y = next(batches)
            (F.cross_entropy(model(x), y) * micro / 32).backward()
        optimizer.step()
        yield 32
