"""How batches reach the loop."""

import time

import torch
from harness import mlp, program, update
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset


def train(loader, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    while True:
        for x, y in loader:
            update(optimizer, F.cross_entropy(model(x), y))
            yield len(x)


class Lines(Dataset):
    """Rows of a CSV file, read as text."""
    def __init__(self):
        self.lines = [",".join(f"{v:.4f}" for v in row) for row in torch.randn(200, 100).tolist()]

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        return torch.tensor([float(word) for word in self.lines[i % 200].split(",")]), i % 10


@program("tabular", "held", expect=("sync-data-loading",), also=("cores-idle",), knob=("workers", 1), warm=4)
def sync_loader(fixed, workers):
    """Rows are parsed on the training thread while a core is free. Fix: a worker."""
    torch.set_num_threads(1)
    workers = max(1, int(workers)) if fixed else 0
    return train(DataLoader(Lines(), 256, num_workers=workers), mlp(100, 512, 512, 10))


class Storage(Dataset):
    """Samples that arrive 1 ms after they are asked for."""
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((128,), i % 7 / 7), i % 10


@program("remote storage", "tune", expect=("loader-bound",), knob=("workers", 4), warm=20)
def slow_workers(fixed, workers):
    """One worker waits for 32 samples in turn, three times as long as a step takes. Fix: more workers."""
    return train(DataLoader(Storage(), 32, num_workers=max(1, int(workers)) if fixed else 1), mlp(128, 1024, 1024, 10))


class Shards(IterableDataset):
    """Batches of 8 each from shards that take 60 ms to open."""
    def __iter__(self):
        while True:
            time.sleep(0.06)
            for _ in range(8):
                yield torch.randn(128, 128), torch.randint(10, (128,))


@program("sharded data", "held", expect=("loader-bound",), period=8, warm=24)
def bursty_loader(fixed):
    """Every eighth batch waits for a shard, and only two batches are made ahead. Fix: a longer queue."""
    return train(DataLoader(Shards(), None, num_workers=1, prefetch_factor=16 if fixed else 2), mlp(128, 512, 512, 10))


class Augmented(IterableDataset):
    """Images from memory, flipped, brightened and with noise."""
    def __iter__(self):
        images, labels = torch.rand(64, 3, 64, 64), torch.randint(10, (64,))
        while True:
            x = torch.where(torch.rand(64, 1, 1, 1) < 0.5, images.flip(-1), images)
            x = x * torch.empty(64, 1, 1, 1).uniform_(0.8, 1.2) + 0.05 * torch.randn_like(x)
            yield ((x - 0.5) / 0.25).flatten(1), labels


@program("augmentation", "tune", expect=("sync-data-loading",), also=("cores-idle",), warm=4)
def augment_inline(fixed):
    """Images are augmented in the loop itself while a core is free. Fix: in a loader worker."""
    torch.set_num_threads(1)
    return train(DataLoader(Augmented(), None, num_workers=1) if fixed else Augmented(), mlp(12288, 64, 10))
