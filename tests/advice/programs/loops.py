"""Python between the ops: loops over samples, nodes, environments and numbers."""

import json
import math

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F

LOOP = ("unbatched-loop", "launch-bound", "python-between-ops")  # fewer and larger ops, or less Python between them


@program("GNN", "held", expect=LOOP)
def gnn_node_loop(fixed):
    """Each node collects its neighbours in a Python loop. Fix: one index_add for all edges."""
    source, target = torch.randint(200, (2000,)), torch.randint(200, (2000,))
    neighbours = [source[target == node] for node in range(200)]
    layer, head = nn.Linear(32, 32), nn.Linear(32, 4)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for x, y in endless(200, torch.randn(3200, 32), torch.randint(4, (3200,))):
        h = layer(x).relu()
        if fixed:
            mixed = torch.zeros_like(h).index_add(0, target, h[source])
        else:
            mixed = torch.stack([h[near].sum(0) for near in neighbours])
        update(optimizer, F.cross_entropy(head(mixed), y))
        yield len(x)


@program("metric learning", "tune", expect=LOOP, also=("small-batch",))
def per_sample_loop(fixed):
    """The model is called for each sample of a batch. Fix: once for the batch."""
    model = mlp(64, 128, 128, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, like in endless(64, torch.randn(1024, 64), torch.randn(1024, 32)):
        if fixed:
            loss = 1 - F.cosine_similarity(model(x), like).mean()
        else:
            loss = sum(1 - F.cosine_similarity(model(one), two, 0) for one, two in zip(x, like)) / len(x)
        update(optimizer, loss)
        yield len(x)


class Pendulum:
    """An environment in plain Python."""
    def __init__(self, angle):
        self.angle, self.speed = angle, 0.0

    def step(self, push):
        self.speed += 0.05 * (15 * math.sin(self.angle) + 3 * push)
        self.angle += 0.05 * self.speed
        return [math.cos(self.angle), math.sin(self.angle), self.speed / 8]


@program("RL rollout", "held", expect=LOOP, also=("small-batch", "grad-in-validation"))
def rl_one_env(fixed):
    """The policy is asked for one environment at a time. Fix: for all of them together."""
    policy = mlp(3, 64, 64, 1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, fused=True)
    games = [Pendulum(i / 16) for i in range(16)]
    seen = [game.step(0.0) for game in games]
    while True:
        logs, rewards = [], []
        for _ in range(5):
            if fixed:
                pushes = torch.distributions.Normal(policy(torch.tensor(seen))[:, 0], 0.5)
                actions = pushes.sample()
                logs.append(pushes.log_prob(actions))
                actions = actions.tolist()
            else:
                each = [torch.distributions.Normal(policy(torch.tensor(one))[0], 0.5) for one in seen]
                picks = [one.sample() for one in each]
                logs.append(torch.stack([one.log_prob(pick) for one, pick in zip(each, picks)]))
                actions = [pick.item() for pick in picks]
            seen = [game.step(action) for game, action in zip(games, actions)]
            rewards.append(torch.tensor([cosine for cosine, _, _ in seen]))
        update(optimizer, -(torch.stack(logs) * torch.stack(rewards)).mean())
        yield 16 * 5


@program("classification", "tune", expect=LOOP)
def metrics_loop(fixed):
    """Accuracy is counted sample by sample. Fix: one comparison of two tensors."""
    model = mlp(128, 512, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    right = 0
    for x, y in endless(512, torch.randn(4096, 128), torch.randint(10, (4096,))):
        logits = model(x)
        update(optimizer, F.cross_entropy(logits, y))
        guesses = logits.argmax(1)
        if fixed:
            right += (guesses == y).sum().item()
        else:
            for guess, label in zip(guesses, y):
                if guess == label:
                    right += 1
        yield len(x)


@program("classification", "held", expect=("python-between-ops", "logging-checkpoint-stall"))
def logging_lists(fixed):
    """Every step writes all activations of a layer as JSON. Fix: their mean."""
    first, second = mlp(128, 256), mlp(256, 10)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-3, fused=True)
    with open("log.jsonl", "w", encoding="utf-8") as log:
        for x, y in endless(128, torch.randn(2048, 128), torch.randint(10, (2048,))):
            hidden = first(x).relu()
            loss = F.cross_entropy(second(hidden), y)
            update(optimizer, loss)
            values = hidden.detach().mean().item() if fixed else hidden.tolist()
            log.seek(0)
            log.write(json.dumps({"loss": loss.item(), "hidden": values}) + "\n")
            print(f"loss {loss.item():.4f}")
            yield len(x)
