"""Training programs as people port them to PyTorch from NumPy, MATLAB, R, TensorFlow or JAX, or write them from a paper's
formulas: correct, but each with one thing done in a way that is slow in PyTorch; and two in which nothing is wrong."""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence
from torch.func import functional_call

from harness import endless, mlp, program, update


@program("transformer, relative positions from the paper", "held", expect=("broadcast-contraction", "attention-by-hand"))
def port_shaw_relative_attention(fixed):
    """The scores q_i . (k_j + a_ij) are written as the paper has them: a key of its own for each pair of positions, a tensor of
    batch x heads x length x length x width, multiplied and summed. Fix: distribute the product, q_i . k_j as a matrix
    product plus q_i . a_ij as an einsum, so that the large tensor is never made."""
    length, heads, width = 64, 4, 64
    embed, head = nn.Embedding(100, width), nn.Linear(width, 100)
    projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
    feeds = nn.ModuleList(mlp(width, 4 * width, width) for _ in range(2))
    norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
    tables = nn.ModuleList(nn.Embedding(2 * 16 + 1, width // heads) for _ in range(2))
    modules = nn.ModuleList([embed, head, projections, feeds, norms, tables])
    optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-3, fused=True)
    place = torch.arange(length)
    offsets = (place[None, :] - place[:, None]).clamp(-16, 16) + 16
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    text = torch.randint(100, (512, length + 1))
    for tokens, in endless(4, text):
        x = embed(tokens[:, :-1])
        for layer in range(2):
            q, k, v = projections[layer](norms[2 * layer](x)).view(len(x), length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            relative = tables[layer](offsets)
            if fixed:
                scores = q @ k.transpose(2, 3) + torch.einsum("bhid,ijd->bhij", q, relative)
            else:
                scores = (q[:, :, :, None] * (k[:, :, None] + relative)).sum(-1)
            weights = (scores / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
            x = x + (weights @ v).transpose(1, 2).reshape(x.shape)
            x = x + feeds[layer](norms[2 * layer + 1](x))
        update(optimizer, F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten()))
        yield len(tokens)


@program("physics-informed MLP, ported from TensorFlow 1", "held", expect=("repeated-backward",))
def port_heat_equation_network(fixed):
    """As with tf.gradients, u_t, u_x and u_y are asked for one by one: three passes backwards through the same network, which
    the loss then has to differentiate again. Fix: one autograd.grad call for the three inputs."""
    net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                        nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def slopes(of, *by):
        return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)

    points = torch.rand(16384, 3)
    start = torch.rand(16384, 3) * torch.tensor([0., 1., 1.])
    for inside, first in endless(1024, points, start):
        t, x, y = (column.contiguous().requires_grad_() for column in inside.split(1, dim=1))
        u = net(torch.cat([t, x, y], dim=1))
        if fixed:
            u_t, u_x, u_y = slopes(u, t, x, y)
        else:
            u_t, = slopes(u, t)
            u_x, = slopes(u, x)
            u_y, = slopes(u, y)
        u_xx, = slopes(u_x, x)
        u_yy, = slopes(u_y, y)
        residual = u_t - 0.1 * (u_xx + u_yy)
        wanted = torch.sin(math.pi * first[:, 1:]).prod(dim=1, keepdim=True)
        update(optimizer, residual.square().mean() + F.mse_loss(net(first), wanted))
        yield len(inside)


@program("VAE, ported from TensorFlow Probability", "held", expect=("diagonal-covariance",))
def port_diagonal_gaussian_vae(fixed):
    """MultivariateNormalDiag became MultivariateNormal with a diagonal matrix as covariance, so each step factorises a matrix
    per sample and solves with it. Fix: Independent(Normal(mean, deviation), 1); the samples and the KL term are the same."""
    latent = 32
    encoder, decoder = mlp(784, 256, 2 * latent), mlp(latent, 256, 784)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, fused=True)
    if fixed:
        prior = Independent(Normal(torch.zeros(latent), torch.ones(latent)), 1)
    else:
        prior = MultivariateNormal(torch.zeros(latent), torch.eye(latent))
    for images, in endless(128, torch.rand(8192, 784)):
        mean, log_variance = encoder(images).chunk(2, dim=1)
        if fixed:
            posterior = Independent(Normal(mean, (log_variance / 2).exp()), 1)
        else:
            posterior = MultivariateNormal(mean, torch.diag_embed(log_variance.exp()))
        logits = decoder(posterior.rsample())
        likelihood = F.binary_cross_entropy_with_logits(logits, images, reduction="none").sum(dim=1)
        update(optimizer, (likelihood + kl_divergence(posterior, prior)).mean())
        yield len(images)


@program("DQN on small frames, ported from JAX", "held", expect=("shifted-buffer",))
def port_minatar_replay_memory(fixed):
    """memory.at[rows].set(new) became index_copy, which copies the whole memory to write 16 of its 10,000 rows; under jax.jit
    the buffer is donated and nothing is copied. Fix: write in place, index_copy_."""
    def network():
        return nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 6))

    net, target = network(), network()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.RMSprop(net.parameters(), lr=2.5e-4)
    size, players = 10_000, 16
    memory = {"frame": torch.zeros(size, 4, 10, 10), "next": torch.zeros(size, 4, 10, 10),
              "action": torch.zeros(size, dtype=torch.long), "reward": torch.zeros(size)}
    frame = torch.rand(players, 4, 10, 10).lt(0.1).float()
    for step in itertools.count():
        with torch.no_grad():
            greedy = net(frame).argmax(dim=1)
            action = torch.where(torch.rand(players) < 0.1, torch.randint(6, (players,)), greedy)
            following = torch.rand(players, 4, 10, 10).lt(0.1).float()  # the game
            new = {"frame": frame, "next": following, "action": action, "reward": frame[:, 0, 0, 0] * (action == 1)}
            rows = (step * players + torch.arange(players)) % size
            if fixed:
                for key in memory:
                    memory[key].index_copy_(0, rows, new[key])
            else:
                memory = {key: memory[key].index_copy(0, rows, new[key]) for key in memory}
            frame = following
            chosen = torch.randint(min(size, (step + 1) * players), (128,))
            goal = memory["reward"][chosen] + 0.99 * target(memory["next"][chosen]).amax(dim=1)
        value = net(memory["frame"][chosen]).gather(1, memory["action"][chosen, None]).squeeze(1)
        update(optimizer, F.smooth_l1_loss(value, goal))
        if step % 1000 == 0:
            target.load_state_dict(net.state_dict())
        yield len(chosen)


@program("graph network with a learned adjacency, ported from MATLAB", "held", expect=("diagonal-product",))
def port_traffic_graph_normalisation(fixed):
    """D^-1/2 A D^-1/2 is written with diagonal matrices, two dense products of 400 x 400 matrices forwards and four backwards
    for what is a scaling of rows and columns. Fix: d[:, None] * A * d."""
    nodes, width = 400, 32
    source, sink = (nn.Parameter(torch.randn(nodes, 10)) for _ in range(2))
    into, within, out = nn.Linear(12, width), nn.Linear(width, width), nn.Linear(width, 3)
    layers = nn.ModuleList([into, within, out])
    optimizer = torch.optim.Adam([source, sink, *layers.parameters()], lr=1e-3, fused=True)
    past, future = torch.randn(512, nodes, 12), torch.randn(512, nodes, 3)
    for inputs, wanted in endless(8, past, future):
        adjacency = torch.sigmoid(source @ sink.T) + torch.eye(nodes)
        scale = adjacency.sum(dim=1).rsqrt()
        if fixed:
            propagate = scale[:, None] * adjacency * scale
        else:
            propagate = torch.diag(scale) @ adjacency @ torch.diag(scale)
        hidden = F.relu(propagate @ into(inputs))
        hidden = F.relu(propagate @ within(hidden))
        update(optimizer, F.l1_loss(out(hidden), wanted))
        yield len(inputs)


@program("recommender with a softmax over the items, ported from R", "held", expect=("double-argsort",))
def port_item_rank_metric(fixed):
    """For the reciprocal rank of the clicked item it ranks all items like R's rank(), with two argsorts of all scores per
    step. Fix: the rank of one item is the number of items with a higher score, a comparison and a sum."""
    items, width = 1500, 64
    history, tower = nn.EmbeddingBag(items, width), mlp(width, 256, width)
    output = nn.Linear(width, items)
    layers = nn.ModuleList([history, tower, output])
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, fused=True)
    reciprocal, hits, count = torch.zeros(()), torch.zeros(()), 0
    for seen, clicked in endless(96, torch.randint(items, (8160, 20)), torch.randint(items, (8160,))):
        scores = output(tower(history(seen)))
        update(optimizer, F.cross_entropy(scores, clicked))
        with torch.no_grad():
            if fixed:
                rank = (scores > scores.gather(1, clicked[:, None])).sum(dim=1)
            else:
                ranks = scores.argsort(dim=1, descending=True).argsort(dim=1)
                rank = ranks.gather(1, clicked[:, None]).squeeze(1)
            reciprocal += (1 / (rank + 1)).sum()
            hits += (rank < 10).sum()
            count += len(clicked)
        yield len(clicked)


@program("state-space sequence classifier from the paper", "held", expect=("growing-prefix", "unbatched-loop"))
def port_state_space_kernel(fixed):
    """The convolution kernel is computed as defined, K_k = C A^k B for each k, with a matrix_power from scratch per time step.
    Fix: build A^k B for all k by doubling, [X, P X] with P squared each time: 7 doublings instead of some 800 products."""
    length, state, width = 100, 16, 32
    dynamics = nn.Parameter(torch.randn(state, state) / 4 - 0.5 * torch.eye(state))
    entry, readout = nn.Parameter(torch.randn(state, 1)), nn.Parameter(torch.randn(width, state) / state)
    log_step = nn.Parameter(torch.tensor(-3.))
    into, out = nn.Linear(8, width), nn.Linear(width, 10)
    layers = nn.ModuleList([into, out])
    optimizer = torch.optim.Adam([dynamics, entry, readout, log_step, *layers.parameters()], lr=1e-3, fused=True)
    identity = torch.eye(state)
    for inputs, labels in endless(16, torch.randn(2048, length, 8), torch.randint(10, (2048,))):
        half = log_step.exp() / 2 * (dynamics - dynamics.T - identity)
        discrete = torch.linalg.solve(identity - half, identity + half)
        if fixed:
            states, power = entry, discrete
            while states.shape[1] < length:
                states, power = torch.cat([states, power @ states], dim=1), power @ power
            kernel = readout @ states[:, :length]
        else:
            kernel = torch.cat([readout @ torch.matrix_power(discrete, k) @ entry for k in range(length)], dim=1)
        signal = into(inputs).transpose(1, 2)
        spectrum = torch.fft.rfft(signal, 2 * length) * torch.fft.rfft(kernel, 2 * length)
        filtered = F.gelu(torch.fft.irfft(spectrum, 2 * length)[..., :length])
        update(optimizer, F.cross_entropy(out(filtered.mean(dim=2)), labels))
        yield len(labels)


@program("convolutional speech recogniser, CTC from the paper", "held", expect=("unbatched-loop", "function-by-hand"))
def port_speech_ctc_recursion(fixed):
    """The CTC loss is the paper's forward recursion, a Python loop over the frames with a handful of tiny operations each,
    which autograd walks back. Fix: F.ctc_loss, the same number."""
    frames, letters, classes = 60, 10, 29
    net = nn.Sequential(nn.Conv1d(40, 96, 9, stride=2, padding=4), nn.ReLU(), nn.Conv1d(96, 96, 9, padding=4), nn.ReLU(),
                        nn.Conv1d(96, 96, 9, padding=4), nn.ReLU(), nn.Conv1d(96, classes, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    sounds, texts = torch.randn(512, 40, 2 * frames), torch.randint(1, classes, (512, letters))
    for sound, text in endless(16, sounds, texts):
        log_probs = net(sound).permute(2, 0, 1).log_softmax(dim=2)
        if fixed:
            lengths = [torch.full((len(text),), length) for length in (frames, letters)]
            loss = F.ctc_loss(log_probs, text, *lengths, reduction="sum") / len(text)
        else:
            labels = torch.zeros(len(text), 2 * letters + 1, dtype=torch.long)
            labels[:, 1::2] = text
            no_skip = torch.ones_like(labels, dtype=torch.bool)
            no_skip[:, 2:] = (labels[:, 2:] == 0) | (labels[:, 2:] == labels[:, :-2])
            alpha = torch.full(labels.shape, -1e30)
            alpha[:, :2] = 0
            alpha = alpha + log_probs[0].gather(1, labels)
            for t in range(1, frames):
                one = F.pad(alpha[:, :-1], (1, 0), value=-1e30)
                two = F.pad(alpha[:, :-2], (2, 0), value=-1e30).masked_fill(no_skip, -1e30)
                alpha = torch.stack([alpha, one, two]).logsumexp(dim=0) + log_probs[t].gather(1, labels)
            loss = -alpha[:, -2:].logsumexp(dim=1).mean()
        update(optimizer, loss)
        yield len(text)


@program("MAML with a CNN, ported from JAX", "held", also=("layout-transpose",))
def good_port_second_order_maml(fixed):
    """Nothing is wrong: the gradient of the inner step has to keep its graph, as the meta gradient goes through it."""
    net = nn.Sequential(nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.ReLU(),
                        nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(),
                        nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    weights = dict(net.named_parameters())
    tasks = torch.randn(64, 100, 1, 28, 28)
    labels = torch.arange(5).repeat(20)
    for task, in endless(1, tasks):
        support, query = task[0].split([25, 75])
        inner = F.cross_entropy(functional_call(net, weights, support), labels[:25])
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        adapted = {name: weight - 0.1 * slope for (name, weight), slope in zip(weights.items(), slopes)}
        update(optimizer, F.cross_entropy(functional_call(net, adapted, query), labels[25:]))
        yield len(query)


@program("deep embedded clustering of tabular rows, ported from Keras", "held")
def good_port_embedded_clustering(fixed):
    """Nothing is wrong: the distances to the centres are a matrix product, and the target distribution has no graph."""
    encoder, decoder = mlp(64, 256, 256, 10), mlp(10, 256, 256, 64)
    centres = nn.Parameter(torch.randn(16, 10))
    optimizer = torch.optim.Adam([centres, *encoder.parameters(), *decoder.parameters()], lr=1e-3, fused=True)
    for rows, in endless(512, torch.randn(16384, 64)):
        codes = encoder(rows)
        distances = codes.square().sum(dim=1, keepdim=True) + centres.square().sum(dim=1) - 2 * codes @ centres.T
        soft = 1 / (1 + distances.clamp_min(0))
        soft = soft / soft.sum(dim=1, keepdim=True)
        with torch.no_grad():
            target = soft.square() / soft.sum(dim=0)
            target = target / target.sum(dim=1, keepdim=True)
        clustering = F.kl_div(soft.log(), target, reduction="batchmean")
        update(optimizer, F.mse_loss(decoder(codes), rows) + 0.1 * clustering)
        yield len(rows)
