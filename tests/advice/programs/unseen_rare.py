"""What few guides name, written without knowledge of the rules. An expected name that is no ID is a cause that no rule asks about."""

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F


@program("graphs", "held", expect=("sparse-kept-dense",))
def dense_adjacency(fixed):
    """A graph with 8 edges a node is a dense matrix of mostly zeros. Fix: neighbours as indices."""
    # cause: dense matrix product over an almost empty adjacency matrix
    nodes = 3000
    near = torch.stack([torch.randperm(nodes)[:8] for _ in range(nodes)])
    dense = torch.zeros(nodes, nodes).scatter_(1, near, 1 / 8)
    features, y = torch.randn(nodes, 64), torch.randint(5, (nodes,))
    first, second = nn.Linear(64, 64), nn.Linear(64, 5)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3, fused=True)

    def spread(h):
        return F.embedding_bag(near, h, mode="mean") if fixed else dense @ h

    while True:
        update(optimizer, F.cross_entropy(spread(second(spread(first(features)).relu())), y))
        yield nodes


@program("metric learning", "held", expect=("large-broadcast-temporary", "broadcast-contraction"))
def pairs_by_broadcast(fixed):
    """Distances of all pairs subtract a tensor of N x N x D. Fix: norms and one matrix product."""
    # cause: memory-bound elementwise ops on a huge broadcast temporary instead of a matrix product
    model = mlp(128, 1024, 1024, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(192, torch.randn(2048, 128), torch.randint(16, (2048,))):
        z = model(x)
        if fixed:
            norms = z.square().sum(1)
            apart = norms[:, None] + norms - 2 * z @ z.T
        else:
            apart = (z[:, None] - z[None]).square().sum(2)
        same = (y[:, None] == y).float()
        update(optimizer, (same * apart + (1 - same) * (1 - apart).relu()).mean())
        yield len(x)


@program("scientific", "held", expect=("explicit-inverse",))
def process_inverse(fixed):
    """A Gaussian process inverts its covariance and takes another factorisation for the determinant. Fix: one Cholesky factor."""
    # cause: expensive linear algebra (inverse, slogdet) where one factorisation and a solve do
    x, y = torch.rand(500, 4, dtype=torch.double), torch.randn(500, 1, dtype=torch.double)
    scale, noise = nn.Parameter(torch.zeros(4, dtype=torch.double)), nn.Parameter(torch.zeros((), dtype=torch.double))
    optimizer = torch.optim.Adam([scale, noise], lr=1e-2)
    eye = torch.eye(500, dtype=torch.double)
    while True:
        at = x * scale.exp()
        norms = at.square().sum(1)
        k = (-(norms[:, None] + norms - 2 * at @ at.T) / 2).exp() + noise.exp() * eye
        if fixed:
            factor = torch.linalg.cholesky(k)
            loss = (y * torch.cholesky_solve(y, factor)).sum() / 2 + factor.diagonal().log().sum()
        else:
            loss = (y.T @ torch.linalg.inv(k) @ y).sum() / 2 + torch.linalg.slogdet(k)[1] / 2
        update(optimizer, loss)
        yield len(x)


@program("diffusion", "held", expect=("debug-api-on",))
def anomaly_mode(fixed):
    """detect_anomaly was left on after a search for NaN. Fix: off."""
    # cause: autograd anomaly detection (debug mode) is on
    model = mlp(65, *[128] * 16, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for x, t, noise in endless(128, torch.randn(1024, 64), torch.rand(1024, 1), torch.randn(1024, 64)):
        with torch.autograd.set_detect_anomaly(not fixed):
            update(optimizer, F.mse_loss(model(torch.cat([(1 - t).sqrt() * x + t.sqrt() * noise, t], 1)), noise))
        yield len(x)


@program("private learning", "held", expect=("unbatched-loop",))
def private_loop(fixed):
    """Clipped gradients of single samples are taken one backward pass at a time. Fix: vmap over the batch."""
    # cause: a Python loop over samples, each with tiny forward and backward
    model = mlp(32, 64, 5)
    weights = dict(model.named_parameters())

    def loss_of(values, x, y):
        return F.cross_entropy(torch.func.functional_call(model, values, x[None]), y[None])

    grads_of = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))
    optimizer = torch.optim.SGD(weights.values(), lr=1e-2, fused=True)
    for x, y in endless(64, torch.randn(1024, 32), torch.randint(5, (1024,))):
        if fixed:
            grads = list(grads_of({name: value.detach() for name, value in weights.items()}, x, y).values())
        else:
            each = [torch.autograd.grad(loss_of(weights, a, b), list(weights.values())) for a, b in zip(x, y)]
            grads = [torch.stack(parts) for parts in zip(*each)]
        norm = sum(g.flatten(1).square().sum(1) for g in grads).sqrt()
        share = (1 / (norm + 1e-6)).clamp(max=1) / len(x)
        for value, grad in zip(weights.values(), grads):
            value.grad = torch.tensordot(share, grad, 1)
        optimizer.step()
        yield len(x)


@program("masked language model", "held", expect=("ignored-labels",))
def scores_of_all(fixed):
    """Scores over the vocabulary are computed at all positions, and the loss ignores 85 % of them. Fix: at masked positions only."""
    # cause: the output layer and loss work on positions whose result is thrown away
    embed, layer = nn.Embedding(8000, 64), nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    head = nn.Linear(64, 8000)
    optimizer = torch.optim.SGD([p for part in (embed, layer, head) for p in part.parameters()], lr=1e-2, fused=True)
    tokens = torch.randint(1, 8000, (512, 64))
    chosen = torch.rand(512, 64) < 0.15
    for x, y in endless(16, tokens.masked_fill(chosen, 0), tokens.masked_fill(~chosen, -100)):
        h = layer(embed(x))
        if fixed:
            h, y = h[y != -100], y[y != -100]
        update(optimizer, F.cross_entropy(head(h).flatten(0, -2), y.flatten()))
        yield len(x)


@program("language model", "held")
def good_causal(fixed):
    """Causal attention by the fused op, whole sequences, a fused optimizer."""
    embed, mix, out = nn.Embedding(1000, 128), nn.Linear(128, 384), nn.Linear(128, 1000)
    deep = mlp(128, 512, 128)
    optimizer = torch.optim.AdamW([p for part in (embed, mix, out, deep) for p in part.parameters()], lr=1e-3, fused=True)
    for x, in endless(16, torch.randint(1000, (512, 129))):
        h = embed(x[:, :-1])
        q, k, v = mix(h).unflatten(2, (3, 4, 32)).permute(2, 0, 3, 1, 4)
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        update(optimizer, F.cross_entropy(out(h + deep(h)).flatten(0, 1), x[:, 1:].flatten()))
        yield len(x)


@program("reinforcement learning", "held")
def good_actor_critic(fixed):
    """Actor and critic share a trunk, and a batch of transitions is one forward and one backward pass."""
    trunk, actor, critic = mlp(64, 1024, 1024), nn.Linear(1024, 6), nn.Linear(1024, 1)
    optimizer = torch.optim.SGD([p for part in (trunk, actor, critic) for p in part.parameters()], lr=1e-3, fused=True)
    for x, action, reward in endless(512, torch.randn(4096, 64), torch.randint(6, (4096,)), torch.randn(4096)):
        h = trunk(x).relu()
        value = critic(h)[:, 0]
        chance = F.log_softmax(actor(h), 1).gather(1, action[:, None])[:, 0]
        update(optimizer, F.mse_loss(value, reward) - (chance * (reward - value.detach())).mean())
        yield len(x)
