"""Mistakes that performance guides, forum threads and code reviews name, each in a small program of its field."""

import array
import copy
import io
import random
import wave
from contextlib import nullcontext

import torch
from harness import endless, mlp, program, update
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F


@program("CNN fine-tuning", "held", expect=("unread-gradients",))
def guide_frozen_backbone(fixed):
    """Only the head is given to the optimizer, but the pretrained backbone still asks for gradients, so that backward runs through all of it.
    Fix: backbone.requires_grad_(False)."""
    backbone = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(memory_format=torch.channels_last).eval()
    if fixed:
        backbone.requires_grad_(False)  # cause: gradients are computed of weights that are never updated
    head = mlp(128, 256, 20)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=True)
    images = torch.randn(256, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    for x, y in endless(32, images, torch.randint(20, (256,))):
        if random.random() < 0.5:
            x = x.flip(3)
        update(optimizer, F.cross_entropy(head(backbone(x)), y))
        yield len(x)


@program("masked language model", "held", expect=("ignored-labels",))
def guide_mlm_all_positions(fixed):
    """The logits of the vocabulary are computed at every position, though only the masked 15 % have a label; the loss ignores the rest.
    Fix: select the masked positions before the output layer."""
    embed, head = nn.Embedding(5000, 128), nn.Linear(128, 5000)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True), 2)
    optimizer = torch.optim.AdamW([*embed.parameters(), *encoder.parameters(), *head.parameters()], lr=1e-4, fused=True)
    for (tokens,) in endless(8, torch.randint(1, 5000, (320, 64))):
        masked = torch.rand(tokens.shape) < 0.15
        labels = tokens.masked_fill(~masked, -100)
        hidden = encoder(embed(tokens.masked_fill(masked, 0)))
        if fixed:
            hidden, labels = hidden[masked], labels[masked]
        logits = head(hidden)  # cause: a large layer is applied to rows that do not count
        update(optimizer, F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100))
        yield len(tokens)


def _wav(samples):
    """A WAV file of random sound."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 8000, samples, "NONE", None))
        out.writeframes(array.array("h", random.choices(range(-9000, 9000), k=samples)).tobytes())
    return file.getvalue()


@program("keyword spotting", "held", expect=("host-copy-on-convert", "sync-data-loading"))
def guide_wave_list(fixed):
    """The samples of each WAV file become a Python list of floats, and that a tensor.
    Fix: torch.frombuffer on the bytes that were read."""
    model = nn.Sequential(nn.Conv1d(1, 64, 80, 8), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(64, 64, 5), nn.ReLU(), nn.MaxPool1d(4),
                          nn.Conv1d(64, 128, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    clips = [(_wav(8000), random.randrange(12)) for _ in range(48)]

    def load(clip):
        with wave.open(io.BytesIO(clip)) as file:
            data = file.readframes(file.getnframes())
        if fixed:
            return torch.frombuffer(bytearray(data), dtype=torch.int16) / 32768
        return torch.tensor([value / 32768 for value in array.array("h", data)])  # cause: a tensor is built from Python numbers

    while True:
        batch = random.sample(clips, 24)
        x = torch.stack([load(clip) for clip, _ in batch]).unsqueeze(1)
        update(optimizer, F.cross_entropy(model(x), torch.tensor([label for _, label in batch])))
        yield len(x)


@program("PPO learner", "held", expect=("unbatched-loop", "launch-bound", "python-between-ops"))
def guide_gae_loop(fixed):
    """Advantages (GAE) are computed for one environment and one time step after the other, on single elements of tensors.
    Fix: all environments at once, so that only the loop over time is left."""
    policy, critic = mlp(48, 256, 256, 8), mlp(48, 256, 256, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=3e-4, fused=True)
    steps, envs = 64, 16
    seen, acted = torch.randn(10, steps + 1, envs, 48), torch.randint(8, (10, steps, envs))  # from the actors
    paid, ended = torch.randn(10, steps, envs), (torch.rand(10, steps, envs) < 0.02).float()

    def gae(reward, done, value, advantage):
        last = torch.zeros_like(value[0])
        for t in reversed(range(steps)):
            delta = reward[t] + 0.99 * value[t + 1] * (1 - done[t]) - value[t]
            advantage[t] = last = delta + 0.99 * 0.95 * (1 - done[t]) * last

    for state, action, reward, done in endless(1, seen, acted, paid, ended):
        state, action, reward, done = state[0], action[0], reward[0], done[0]
        with torch.no_grad():
            value, advantage = critic(state).squeeze(-1), torch.empty(steps, envs)
            if fixed:
                gae(reward, done, value, advantage)
            else:
                for env in range(envs):  # cause: tiny operations on single elements, in a loop over what could be a dimension
                    gae(reward[:, env], done[:, env], value[:, env], advantage[:, env])
            old = F.log_softmax(policy(state[:-1]), -1).gather(-1, action.unsqueeze(-1)).squeeze(-1)
        for _ in range(2):
            ratio = (F.log_softmax(policy(state[:-1]), -1).gather(-1, action.unsqueeze(-1)).squeeze(-1) - old).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            update(optimizer, F.mse_loss(critic(state[:-1]).squeeze(-1), advantage + value[:-1]) - gain)
        yield steps * envs


@program("GCN", "held", expect=("sparse-kept-dense",))
def guide_dense_adjacency(fixed):
    """The normalized adjacency of 3,000 nodes, nearly all of it zero, is a dense matrix.
    Fix: a sparse one, and torch.sparse.mm."""
    nodes = 3000
    adjacency = torch.eye(nodes)
    source, target = torch.randint(nodes, (2, 12_000))
    adjacency[source, target] = adjacency[target, source] = 1
    scale = adjacency.sum(1).rsqrt()
    adjacency *= scale[:, None] * scale
    if fixed:
        adjacency = adjacency.to_sparse()  # cause: a product with a matrix of zeros
    first, second = nn.Linear(256, 64), nn.Linear(64, 16)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2, weight_decay=5e-4, fused=True)
    x, y, train = torch.rand(nodes, 256), torch.randint(16, (nodes,)), torch.rand(nodes) < 0.5
    while True:
        hidden = torch.sparse.mm(adjacency, first(x)) if fixed else adjacency @ first(x)
        hidden = F.dropout(hidden.relu(), 0.5)
        logits = torch.sparse.mm(adjacency, second(hidden)) if fixed else adjacency @ second(hidden)
        update(optimizer, F.cross_entropy(logits[train], y[train]))
        yield nodes


@program("DDP with accumulation", "held", expect=("missing-no-sync",), ranks=2)
def guide_no_sync(fixed):
    """Gradients are accumulated over four small batches, but DDP averages them across processes after each one.
    Fix: model.no_sync() for all but the last."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(mlp(256, 512, 512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    batches = endless(32, torch.randn(4096, 256), torch.randint(10, (4096,)))
    while True:
        optimizer.zero_grad()
        for micro in range(4):
            x, y = next(batches)
            with model.no_sync() if fixed and micro < 3 else nullcontext():  # cause: gradients are exchanged more often than they are used
                (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        yield 128


@program("recommender", "held", expect=("dense-embedding-gradient",))
def guide_dense_embedding(fixed):
    """Large embedding tables get dense gradients, so each step clears, fills and applies gradients of all rows, though a batch reads few of them.
    Fix: sparse=True (with plain SGD the same update)."""
    users, items = nn.Embedding(200_000, 32, sparse=fixed), nn.Embedding(60_000, 32, sparse=fixed)  # cause: gradients of all rows of a table
    rank = mlp(64, 512, 256, 1)
    optimizers = [torch.optim.SGD(rank.parameters(), lr=0.05, fused=True),
                  torch.optim.SGD([users.weight, items.weight], lr=0.05, fused=not fixed)]  # there is no fused one for sparse gradients
    for user, item, click in endless(1024, torch.randint(200_000, (65_536,)), torch.randint(60_000, (65_536,)), torch.rand(65_536).round()):
        loss = F.binary_cross_entropy_with_logits(rank(torch.cat([users(user), items(item)], 1)).squeeze(1), click)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        yield len(user)


@program("forecasting", "held", expect=("fp64-compute",))
def guide_double(fixed):
    """The series was stored as doubles, and the model was made double, too, to get rid of the error about dtypes.
    Fix: series.float()."""
    log = array.array("d", [random.gauss(20, 5) for _ in range(20_000)])
    series = torch.frombuffer(log, dtype=torch.float64)
    model = mlp(192, 512, 512, 24)
    if fixed:
        series = series.float()
    else:
        model = model.double()  # cause: double precision where single is enough
    series = (series - series.mean()) / series.std()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    windows = series.unfold(0, 192 + 24, 1)
    while True:
        window = windows[torch.randint(len(windows), (512,))]
        update(optimizer, F.l1_loss(model(window[:, :192]), window[:, 192:]))
        yield len(window)


@program("CNN with augmentation", "held", expect=("late-selection",), also=("sync-data-loading",))
def guide_crop_last(fixed):
    """Images are converted, gamma-corrected and normalized at their full size, and most of that is thrown away by the random crop at the end.
    Fix: crop first."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images = torch.randint(256, (192, 3, 192, 192), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def crop(x):
        top, left = random.randrange(96), random.randrange(96)
        return x[:, :, top:top + 96, left:left + 96]

    for x, y in endless(24, images, torch.randint(10, (192,))):
        if fixed:
            x = crop(x)
        x = (x.float() / 255).pow(random.uniform(0.8, 1.25))  # cause: work on pixels that are dropped afterwards
        x = (x - mean) / std
        if not fixed:
            x = crop(x)
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("seq2seq with attention", "held", expect=("output-layer-in-loop", "unbatched-loop"))
def guide_project_each_step(fixed):
    """The decoder computes logits and loss word by word in its loop, and backward adds up a gradient of the output layer for each word.
    Fix: gather the hidden states and apply the output layer once."""
    embed, encoder, cell, out = nn.Embedding(3000, 128), nn.GRU(128, 128, batch_first=True), nn.GRUCell(256, 128), nn.Linear(128, 3000)
    optimizer = torch.optim.Adam([p for part in (embed, encoder, cell, out) for p in part.parameters()], lr=1e-3, fused=True)
    for source, target in endless(16, torch.randint(3000, (320, 16)), torch.randint(3000, (320, 17))):
        memory, state = encoder(embed(source))
        state, words, states, loss = state[0], embed(target[:, :-1]), [], 0
        for t in range(16):
            weights = (memory @ state.unsqueeze(2)).softmax(1)
            state = cell(torch.cat([words[:, t], (weights * memory).sum(1)], 1), state)
            if fixed:
                states.append(state)
            else:
                loss = loss + F.cross_entropy(out(state), target[:, t + 1]) / 16  # cause: a large layer, one time step at a time
        if fixed:
            loss = F.cross_entropy(out(torch.stack(states, 1)).flatten(0, 1), target[:, 1:].flatten())
        update(optimizer, loss)
        yield len(source)


@program("DQN", "held")
def good_dqn(fixed):
    """Replay from tensors allocated once; the target network without a graph, following in place."""
    online = mlp(64, 512, 512, 12)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
    state, action, reward = torch.randn(20_000, 64), torch.randint(12, (20_000, 1)), torch.randn(20_000, 1)
    ahead, going = torch.randn(20_000, 64), (torch.rand(20_000, 1) < 0.98).float()
    while True:
        batch = torch.randint(20_000, (512,))
        with torch.no_grad():
            best = online(ahead[batch]).argmax(1, keepdim=True)
            goal = reward[batch] + 0.99 * going[batch] * target(ahead[batch]).gather(1, best)
        update(optimizer, F.smooth_l1_loss(online(state[batch]).gather(1, action[batch]), goal))
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), 0.005)
        yield 512


@program("audio tagging", "held")
def good_spectrogram_cnn(fixed):
    """Log spectrograms of sounds with fresh noise, so they cannot be kept; the window and the filters are made once. Gradients are clipped."""
    model = nn.Sequential(nn.Conv2d(1, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, 96, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 16)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    window, filters = torch.hann_window(512), torch.rand(64, 257)
    for sound, tags in endless(16, torch.randn(160, 16_000), torch.rand(160, 16).round()):
        noisy = sound + 0.05 * torch.randn_like(sound)
        power = torch.view_as_real(torch.stft(noisy, 512, 160, window=window, return_complex=True)).square().sum(-1)
        loss = F.binary_cross_entropy_with_logits(model((filters @ power).add(1e-6).log().unsqueeze(1)), tags)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield len(sound)
