"""Physics, reinforcement learning and logging, written without knowledge of the rules, and one good one."""

import json
import random
from collections import deque

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F


@program("PINN", "held", expect=("repeated-forward",))
def pinn_forwards(fixed):
    """Each derivative of the heat equation runs the network again. Fix: all derivatives of one output."""
    net = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def derivative(values, at):
        return torch.autograd.grad(values, at, torch.ones_like(values), create_graph=True)[0]

    def value(x, t):
        return net(torch.cat([x, t], 1))

    def value_x(x, t):
        return derivative(value(x, t), x)

    def value_xx(x, t):
        return derivative(value_x(x, t), x)

    def value_t(x, t):
        return derivative(value(x, t), t)

    for x, t in endless(1024, torch.rand(8192, 1), torch.rand(8192, 1)):
        x, t = x.requires_grad_(), t.requires_grad_()
        if fixed:
            u = value(x, t)
            u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), create_graph=True)
            u_xx = derivative(u_x, x)
        else:
            u, u_t, u_x, u_xx = value(x, t), value_t(x, t), value_x(x, t), value_xx(x, t)
        update(optimizer, ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean())
        yield len(x)


@program("replay buffer", "held", expect=("host-copy-on-convert", "sync-data-loading"))
def replay_of_lists(fixed):
    """Transitions are kept as tuples of Python lists, and each batch is converted anew. Fix: kept as tensors."""
    count, choose = 5000, random.Random(0)
    states, actions, rewards = torch.randn(count + 1, 64), torch.randint(4, (count,)), torch.randn(count)
    memory = deque(((states[i].tolist(), int(actions[i]), float(rewards[i]), states[i + 1].tolist()) for i in range(count)), count)
    network, target = mlp(64, 512, 256, 4), mlp(64, 512, 256, 4)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    while True:
        if fixed:
            rows = torch.tensor(choose.sample(range(count), 512))
            state, action, reward, after = states[rows], actions[rows], rewards[rows], states[rows + 1]
        else:
            state, action, reward, after = map(torch.tensor, zip(*choose.sample(memory, 512)))
        with torch.no_grad():
            goal = reward + 0.99 * target(after).amax(1)
        update(optimizer, F.smooth_l1_loss(network(state).gather(1, action[:, None])[:, 0], goal))
        yield 512


@program("MLP", "held", expect=("work-between-steps", "logging-checkpoint-stall", "python-between-ops"))
def histograms_each_step(fixed):
    """Histograms of all weights and gradients are written in every step. Fix: in every 3,000th."""
    model = mlp(256, 1024, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    with open("histograms.jsonl", "w", encoding="utf-8") as log:
        step = 0
        for x, y in endless(256, torch.randn(4096, 256), torch.randint(10, (4096,))):
            step += 1
            update(optimizer, F.cross_entropy(model(x), y))
            if not fixed or step % 3000 == 0:
                log.seek(0)
                for name, weights in model.named_parameters():
                    for what, values in ((name, weights.detach()), (name + ".grad", weights.grad)):
                        low, high = values.min().item(), values.max().item()
                        log.write(json.dumps({"step": step, "name": what, "low": low, "high": high,
                                              "mean": values.mean().item(), "counts": torch.histc(values, 64).tolist()}) + "\n")
            yield len(x)


@program("contrastive learning", "held")
def good_contrastive(fixed):
    """Two towers, and the similarities of all pairs as one matrix product."""
    left, right = mlp(256, 512, 512, 128), mlp(128, 512, 512, 128)
    optimizer = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=1e-3, fused=True)
    for x, y in endless(512, torch.randn(4096, 256), torch.randn(4096, 128)):
        scores = F.normalize(left(x), dim=1) @ F.normalize(right(y), dim=1).T / 0.07
        truth = torch.arange(len(x))
        update(optimizer, (F.cross_entropy(scores, truth) + F.cross_entropy(scores.T, truth)) / 2)
        yield len(x)
