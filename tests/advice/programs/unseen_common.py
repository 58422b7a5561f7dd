"""What every tuning guide names, written without knowledge of the rules."""

import math

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F


@program("speech", "held", expect=("unbatched-loop", "python-between-ops"))
def mel_bank(fixed):
    """The mel filter bank is built in Python in every step. Fix: once."""
    # cause: a constant table is rebuilt element by element in Python in every step
    def bank(mels=40, bins=257):
        edges = [700 * (math.exp(i / (mels + 1) * math.log(1 + 8000 / 700)) - 1) / 8000 * (bins - 1) for i in range(mels + 2)]
        table = torch.zeros(bins, mels)
        for m in range(mels):
            for k in range(bins):
                value = min((k - edges[m]) / (edges[m + 1] - edges[m]), (edges[m + 2] - k) / (edges[m + 2] - edges[m + 1]))
                if value > 0:
                    table[k, m] = value
        return table

    ready, window = bank(), torch.hann_window(512)
    net, head = nn.GRU(40, 96, batch_first=True), nn.Linear(96, 12)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for wave, y in endless(32, torch.randn(256, 8000), torch.randint(12, (256,))):
        power = torch.stft(wave, 512, 256, window=window, return_complex=True).abs().square().transpose(1, 2)
        features = (power @ (ready if fixed else bank())).clamp_min(1e-6).log()
        update(optimizer, F.cross_entropy(head(net(features)[0].mean(1)), y))
        yield len(wave)


@program("segmentation", "held", expect=("unbatched-loop",))
def confusion(fixed):
    """The confusion matrix is counted class pair by class pair for each image in every step. Fix: one bincount."""
    # cause: a metric is computed in a Python loop of small ops with .item()
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, fused=True)
    total = torch.zeros(8, 8, dtype=torch.long)
    for x, y in endless(16, torch.randn(64, 3, 48, 48), torch.randint(8, (64, 48, 48))):
        scores = net(x)
        update(optimizer, F.cross_entropy(scores, y))
        guess = scores.detach().argmax(1)
        if fixed:
            total += torch.bincount((y * 8 + guess).flatten(), minlength=64).view(8, 8)
        else:
            for true, seen in zip(y, guess):
                for a in range(8):
                    for b in range(8):
                        total[a, b] += ((true == a) & (seen == b)).sum().item()
        yield len(x)


class Rows(torch.utils.data.Dataset):
    """A table that is standardised row by row, as it is read."""

    def __init__(self, x, y):
        self.x, self.y, self.mean, self.std = x, y, x.mean(0), x.std(0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return (self.x[i] - self.mean) / self.std, self.y[i]


@program("tabular", "held", expect=("sync-data-loading", "loader-bound"))
def tabular_rows(fixed):
    """Rows of a table in memory pass one by one through a DataLoader without workers. Fix: slices of the standardised table."""
    # cause: the data loader (per-sample work in the main process) holds up the step
    data = Rows(torch.randn(8192, 64) * 3 + 1, torch.randint(2, (8192,)))
    model = mlp(64, 256, 256, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    table = (data.x - data.mean) / data.std
    while True:
        pairs = zip(table.split(1024), data.y.split(1024)) if fixed else torch.utils.data.DataLoader(data, 1024)
        for x, y in pairs:
            update(optimizer, F.cross_entropy(model(x), y))
            yield len(x)


@program("transfer learning", "held", expect=("unread-gradients",))
def frozen_backbone(fixed):
    """Only the head is trained, but gradients of the whole backbone are computed. Fix: the backbone under no_grad."""
    # cause: backward computes gradients that nobody uses (frozen part not frozen)
    body = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-2, fused=True)
    for x, y in endless(32, torch.randn(256, 3, 64, 64), torch.randint(10, (256,))):
        with torch.set_grad_enabled(not fixed):
            features = body(x)
        update(optimizer, F.cross_entropy(head(features), y))
        yield len(x)


@program("self-supervised", "held", expect=("work-between-steps",))
def teacher_average(fixed):
    """The teacher's moving average goes through 200 small tensors by one op or two each. Fix: torch._foreach_lerp_."""
    # cause: many tiny ops from a Python loop over parameters
    def tower():
        return nn.Sequential(*[layer for _ in range(50) for layer in (nn.Linear(48, 48), nn.LayerNorm(48), nn.ReLU())])

    student, teacher = tower(), tower()
    teacher.load_state_dict(student.state_dict())
    new, old = list(student.parameters()), list(teacher.parameters())
    optimizer = torch.optim.SGD(new, lr=1e-3, fused=True)
    for x, in endless(64, torch.randn(1024, 48)):
        with torch.no_grad():
            goal = teacher(x)
        update(optimizer, F.mse_loss(student(x + 0.1), goal))
        with torch.no_grad():
            if fixed:
                torch._foreach_lerp_(old, new, 0.01)
            else:
                state = teacher.state_dict()
                for name, value in student.state_dict().items():
                    state[name] = 0.99 * state[name] + 0.01 * value
                teacher.load_state_dict(state)
        yield len(x)


@program("time series", "held", expect=("rnn-in-python",))
def cell_by_cell(fixed):
    """An LSTMCell is called for each time step. Fix: nn.LSTM over the whole sequence."""
    # cause: a Python loop over time of small ops, where one batched op exists
    net, head = nn.LSTM(16, 192, batch_first=True), nn.Linear(192, 1)
    w, u, a, b = net.all_weights[0]
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for x, y in endless(64, torch.randn(512, 48, 16), torch.randn(512, 1)):
        if fixed:
            last = net(x)[0][:, -1]
        else:
            last = cell = torch.zeros(len(x), 192)
            for t in range(x.shape[1]):
                i, f, g, o = (F.linear(x[:, t], w, a) + F.linear(last, u, b)).chunk(4, 1)
                cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
                last = o.sigmoid() * cell.tanh()
        update(optimizer, F.mse_loss(head(last), y))
        yield len(x)


@program("tabular", "held")
def good_autoencoder(fixed):
    """Batches are slices, the layers fill the cores, the optimizer is fused."""
    model = mlp(256, 1024, 512, 1024, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, in endless(512, torch.randn(4096, 256)):
        update(optimizer, F.mse_loss(model(x), x))
        yield len(x)


@program("time series", "held")
def good_forecast(fixed):
    """Strided convolutions over whole windows."""
    net = nn.Sequential(nn.Conv1d(16, 128, 5, 2), nn.ReLU(), nn.Conv1d(128, 128, 5, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(24))
    net(torch.zeros(1, 16, 128))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    for x, y in endless(128, torch.randn(1024, 16, 128), torch.randn(1024, 24)):
        update(optimizer, F.mse_loss(net(x), y))
        yield len(x)
