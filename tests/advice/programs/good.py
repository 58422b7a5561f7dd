"""Programs in which nothing is wrong; distributed.py has one more. Any advice to change them is false."""

import itertools
import time

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


@program("gradient accumulation", "tune")
def good_accumulation(fixed):
    """Four batches that fill the cores."""
    model = mlp(128, 512, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    batches = endless(256, torch.randn(4096, 128), torch.randint(10, (4096,)))
    while True:
        optimizer.zero_grad()
        for _ in range(4):
            x, y = next(batches)
            (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        yield 1024


@program("CNN", "held")
def good_cnn(fixed):
    """Convolutions in channels_last."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    images = torch.randn(256, 3, 48, 48).contiguous(memory_format=torch.channels_last)
    for x, y in endless(32, images, torch.randint(10, (256,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("GNN", "held", also=("product-order",))
def good_gnn(fixed):
    """Messages along 20,000 edges by index_select and index_add. The sums are 64 wide, and 7 if `second` came first: half of the step."""
    source, target = torch.randint(2000, (2, 20_000))
    first, second = nn.Linear(64, 64), nn.Linear(64, 7)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3, fused=True)
    x, y = torch.randn(2000, 64), torch.randint(7, (2000,))
    while True:
        h = first(x).relu()
        mixed = torch.zeros_like(h).index_add(0, target, h.index_select(0, source))
        update(optimizer, F.cross_entropy(second(mixed), y))
        yield 2000


class Files(Dataset):
    """Batches that take 2 ms to arrive, but nearly nothing of a core."""
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((64, 128), i % 7 / 7), torch.full((64,), i % 10)


@program("loader", "tune", warm=8)
def good_loader(fixed):
    """One worker that is always ahead of the loop."""
    model = mlp(128, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    while True:
        for x, y in DataLoader(Files(), None, num_workers=1):
            update(optimizer, F.cross_entropy(model(x), y))
            yield len(x)


@program("RNN", "held")
def good_lstm(fixed):
    """nn.LSTM with a batch that fills the cores."""
    rnn, head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for x, y in endless(128, torch.randn(512, 20, 64), torch.randint(10, (512,))):
        update(optimizer, F.cross_entropy(head(rnn(x)[0][:, -1]), y))
        yield len(x)


@program("MLP", "tune")
def good_mlp(fixed):
    """Matrices that fill the cores, a fused optimizer."""
    model = mlp(512, 1024, 1024, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for x, y in endless(256, torch.randn(4096, 512), torch.randint(10, (4096,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("transformer", "held")
def good_transformer(fixed):
    """Layers of torch itself, whose attention is fused."""
    layers = nn.Sequential(*(nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True) for _ in range(2)))
    head = nn.Linear(128, 10)
    optimizer = torch.optim.AdamW([*layers.parameters(), *head.parameters()], lr=1e-4, fused=True)
    for x, y in endless(16, torch.randn(64, 64, 128), torch.randint(10, (64,))):
        update(optimizer, F.cross_entropy(head(layers(x).mean(1)), y))
        yield len(x)


@program("validation", "tune", period=4)
def good_validation(fixed):
    """Every fourth step validates two batches, in evaluation mode and without gradients."""
    model = mlp(128, 512, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    kept = list(itertools.islice(endless(512, torch.randn(1024, 128), torch.randint(10, (1024,))), 2))
    for number, (x, y) in enumerate(endless(512, torch.randn(4096, 128), torch.randint(10, (4096,)))):
        model.train()
        update(optimizer, F.cross_entropy(model(x), y))
        if number % 4 == 3:
            model.eval()
            with torch.inference_mode():
                sum(F.cross_entropy(model(a), b) for a, b in kept).item()
        yield len(x)
