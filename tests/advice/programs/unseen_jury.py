"""Programs of a contest of profilers, by an author who knows neither the engine nor its rules; four in which nothing is wrong."""

import contextlib
import math
import os
import random
import time
import wave

import torch
import torch.distributed as dist
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Rows(Dataset):
    """A table in memory whose features are standardised when they are read."""
    def __init__(self):
        self.x, self.y = 3 * torch.randn(65_536, 48) + 1, torch.randn(65_536, 1)
        self.mean, self.std = self.x.mean(0), self.x.std(0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return (self.x[i] - self.mean) / self.std, self.y[i]


@program("MLP on a table", "held", expect=("sync-data-loading",))
def jury_table_rows(fixed):
    """The loader reads a table that is in memory row by row and stacks the rows. Index a whole batch at once."""
    rows = Rows()
    loader = (DataLoader(rows, batch_size=None, sampler=BatchSampler(RandomSampler(rows), 2048, True)) if fixed else
              DataLoader(rows, batch_size=2048, shuffle=True, drop_last=True))
    model = mlp(48, 512, 512, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    while True:
        for x, y in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
            yield len(x)


class Clips(Dataset):
    """Log-mel spectrograms of wave files of one second on a slow drive."""
    def __init__(self):
        self.window, self.mel = torch.hann_window(512), torch.rand(64, 257)
        for i in range(200):
            with wave.open(f"{i}.wav", "wb") as file:
                file.setparams((1, 2, 16_000, 0, "NONE", ""))
                file.writeframes(random.Random(i).randbytes(32_000))

    def __len__(self):
        return 200_000

    def __getitem__(self, i):
        time.sleep(0.0005)  # a network drive answers
        with wave.open(f"{i % 200}.wav", "rb") as file:
            sound = torch.frombuffer(bytearray(file.readframes(16_000)), dtype=torch.int16) / 32_768
        sound = sound - 0.97 * F.pad(sound[:-1], (1, 0))
        power = torch.stft(sound, 512, 160, window=self.window, return_complex=True).abs().square()
        return (self.mel @ power + 1e-6).log()[None], i % 10


@program("audio", "held", expect=("sync-data-loading",), warm=8)
def jury_audio_files(fixed):
    """Files are read and turned into spectrograms in the training process between two steps. Give the loader workers."""
    loader = DataLoader(Clips(), batch_size=32, shuffle=True, num_workers=2 if fixed else 0, persistent_workers=fixed)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                          nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        for x, y in loader:
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y)
            update(optimizer, loss)
            yield len(x)


@program("RNN", "held", expect=("debug-api-on",))
def jury_translator(fixed):
    """Anomaly detection, once switched on to hunt a NaN, is still on: every operation notes its Python stack, and every gradient is
    searched for NaN. Switch it off."""
    torch.autograd.set_detect_anomaly(not fixed)
    words, encoder, cell = nn.Embedding(2000, 96), nn.GRU(96, 96, batch_first=True), nn.GRUCell(192, 96)
    query, output = nn.Linear(96, 96), nn.Linear(192, 2000)
    layers = nn.ModuleList([words, encoder, cell, query, output])
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, fused=True)
    texts = torch.randint(2000, (512, 11))
    for source, target in endless(32, texts, texts.flip(1)):
        memory, last = encoder(words(source))
        state, states, inputs = last[0], [], words(target)
        for t in range(10):
            weights = (memory @ query(state)[:, :, None]).softmax(1)
            context = (weights * memory).sum(1)
            state = cell(torch.cat([inputs[:, t], context], 1), state)
            states.append(torch.cat([state, context], 1))
        loss = F.cross_entropy(output(torch.stack(states, 1)).flatten(0, 1), target[:, 1:].flatten())
        update(optimizer, loss)
        yield len(source)


class Block(nn.Module):
    """A layer of a decoder; `cache` holds the keys and values of the tokens before x, if there is one."""
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out, self.mlp = nn.Linear(width, 3 * width), nn.Linear(width, width), mlp(width, 4 * width, width)

    def forward(self, x, cache=None):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, -1, 32)).permute(2, 0, 3, 1, 4)
        if cache:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=not cache)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x)), (k, v)


@program("generation", "held", expect=("growing-prefix",))
def jury_writer(fixed):
    """Each new token runs the model over the whole text again. Keep the keys and values and run it over the new token only."""
    words, places, head = nn.Embedding(1000, 128), nn.Embedding(128, 128), nn.Linear(128, 1000)
    blocks = nn.ModuleList(Block(128) for _ in range(3)).eval()
    with torch.inference_mode():
        while True:
            text, caches, done = torch.randint(1000, (8, 64)), [None] * 3, 0
            for _ in range(12):
                x = words(text[:, done:]) + places.weight[done:text.shape[1]]
                for i, block in enumerate(blocks):
                    x, kept = block(x, caches[i])
                    if fixed:
                        caches[i] = kept
                done = text.shape[1] if fixed else 0
                text = torch.cat([text, head(x[:, -1]).argmax(1, keepdim=True)], 1)
            yield len(text)


@program("recommender", "held", expect=("dense-embedding-gradient",))
def jury_recommender(fixed):
    """A batch touches some of 240,000 rows, but the gradient and Adagrad's update cover all of them. Use sparse=True, which
    computes the same, as rows without a gradient stay as they are."""
    users, items = (nn.Embedding(n, 32, sparse=fixed) for n in (200_000, 40_000))
    net = mlp(64, 256, 128, 1)
    tables = torch.optim.Adagrad([users.weight, items.weight], lr=1e-2, fused=not fixed)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=1e-2, fused=True)
    log = endless(4096, torch.randint(200_000, (65_536,)), torch.randint(40_000, (65_536,)), torch.rand(65_536).round())
    for user, item, clicked in log:
        with torch.autocast("cpu", torch.bfloat16):
            scores = net(torch.cat([users(user), items(item)], 1))[:, 0]
        loss = F.binary_cross_entropy_with_logits(scores.float(), clicked)
        tables.zero_grad()
        update(optimizer, loss)
        tables.step()
        yield len(user)


@program("DDP with gradient accumulation", "held", expect=("missing-no-sync",), ranks=2)
def jury_ddp_accumulation(fixed):
    """Gradients are summed over both ranks after each of four micro-batches. Once, after the last, is enough: no_sync."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=2)
    model = DistributedDataParallel(mlp(128, 768, 768, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    batches = endless(128, torch.randn(4096, 128), torch.randint(10, (4096,)))
    while True:
        optimizer.zero_grad()
        for i in range(4):
            x, y = next(batches)
            with model.no_sync() if fixed and i < 3 else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16):
                    loss = F.cross_entropy(model(x), y) / 4
                loss.backward()
        optimizer.step()
        yield 512


@program("time series", "held", expect=("fp64-compute",))
def jury_forecast(fixed):
    """The table came in as Python floats in float64, and the model was made double to fit. Use float32 for both."""
    series = torch.tensor([[math.sin(t / (c + 3)) + random.gauss(0, 0.1) for c in range(16)] for t in range(4000)],
                          dtype=torch.float64)
    model = nn.Sequential(nn.Conv1d(16, 48, 3, padding=1), nn.ReLU(), nn.Conv1d(48, 48, 3, padding=2, dilation=2), nn.ReLU(),
                          nn.Conv1d(48, 48, 3, padding=4, dilation=4), nn.ReLU(), nn.Flatten(), nn.Linear(48 * 96, 16)).double()
    if fixed:
        series, model = series.float(), model.float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        starts = torch.randint(len(series) - 97, (128, 1))
        windows = series[starts + torch.arange(97)]
        loss = F.mse_loss(model(windows[:, :96].transpose(1, 2)), windows[:, 96])
        update(optimizer, loss)
        yield 128


class Pole:
    """A pole on a cart, to be balanced."""
    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        x, v, angle, turn = self.state
        force = (20 * action - 10 + 0.05 * turn * turn * math.sin(angle)) / 1.1
        bend = (9.8 * math.sin(angle) - math.cos(angle) * force) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        push = force - 0.05 * bend * math.cos(angle) / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * bend]
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2
        return self.reset() if done else self.state, 1.0, done


@program("RL rollout", "held", expect=("unbatched-loop",))
def jury_rollout(fixed):
    """The policy chooses an action for one environment at a time. Let it choose for all of them in one batch."""
    policy, critic = mlp(4, 256, 256, 2), mlp(4, 256, 256, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3, fused=True)
    poles = [Pole() for _ in range(64)]
    seen = torch.tensor([pole.reset() for pole in poles])
    while True:
        steps = []
        for _ in range(16):
            with torch.no_grad():
                if fixed:
                    actions = torch.multinomial(policy(seen).softmax(1), 1)[:, 0]
                else:
                    actions = torch.cat([torch.multinomial(policy(one).softmax(0), 1) for one in seen])
            states, rewards, ends = zip(*(pole.step(action) for pole, action in zip(poles, actions.tolist())))
            steps.append((seen, actions, torch.tensor(rewards), torch.tensor(ends)))
            seen = torch.tensor(states)
        returns, total = [], torch.zeros(64)
        for _, _, reward, end in reversed(steps):
            total = reward + 0.99 * total * ~end
            returns.insert(0, total)
        states, actions = torch.cat([s for s, *_ in steps]), torch.cat([a for _, a, *_ in steps])
        better = torch.cat(returns) - critic(states)[:, 0]
        chosen = -F.cross_entropy(policy(states), actions, reduction="none")
        loss = better.square().mean() - (chosen * better.detach()).mean()
        update(optimizer, loss)
        yield 1024


@program("segmentation", "held", expect=("unbatched-loop",))
def jury_segmenter(fixed):
    """The mean intersection over union is counted image by image and class by class in Python. Count all pairs of classes of all
    images with one bincount."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(),
                          nn.Conv2d(32, 20, 1)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images = torch.randn(128, 3, 48, 48).contiguous(memory_format=torch.channels_last)
    for x, y in endless(16, images, torch.randint(20, (128, 48, 48))):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
        update(optimizer, loss)
        guess, scores = logits.argmax(1), []
        if fixed:
            pairs = torch.arange(16)[:, None, None] * 400 + y * 20 + guess
            pairs = pairs.flatten().bincount(minlength=6400).view(16, 20, 20)
            both = pairs.diagonal(dim1=1, dim2=2)
            either = pairs.sum(1) + pairs.sum(2) - both
            score = (both / either.clamp(min=1)).mean().item()
        else:
            for one, true in zip(guess, y):
                for c in range(20):
                    either = ((one == c) | (true == c)).sum().item()
                    scores.append(((one == c) & (true == c)).sum().item() / max(either, 1))
            score = sum(scores) / len(scores)
        print(f"IoU {score:.3f}")
        yield len(x)


@program("transformer encoder", "held", expect=("ignored-labels", "late-selection"))
def jury_masked_words(fixed):
    """One word in seven is masked, but the logits of 8,000 words are computed for all, and the loss ignores the others. Pick the
    masked positions before the last layer."""
    words, head = nn.Embedding(8000, 128), nn.Linear(128, 8000)
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.ModuleList([words, encoder, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    texts = torch.randint(1, 8000, (512, 64))
    for text, in endless(8, texts):
        masked = torch.rand(text.shape) < 0.15
        hidden = encoder(words(text.masked_fill(masked, 0)))
        if fixed:
            loss = F.cross_entropy(head(hidden[masked]), text[masked])
        else:
            loss = F.cross_entropy(head(hidden).flatten(0, 1), text.masked_fill(~masked, -100).flatten())
        update(optimizer, loss)
        yield len(text)


@program("GNN", "held", expect=("renormalised-adjacency", "constant-rebuilt"))
def jury_citations(fixed):
    """Each layer builds and normalises the same adjacency matrix again in each step. Build it once before training."""
    edges = torch.randint(4000, (2, 40_000))
    one, two = nn.Linear(128, 64), nn.Linear(64, 8)
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=1e-2, fused=True)
    x, y = torch.randn(4000, 128), torch.randint(8, (4000,))

    def adjacency():
        pairs = torch.cat([edges, edges.flip(0), torch.arange(4000).expand(2, -1)], 1)
        graph = torch.sparse_coo_tensor(pairs, torch.ones(pairs.shape[1]), (4000, 4000)).coalesce()
        (source, target), values = graph.indices(), graph.values()
        scale = torch.zeros(4000).index_add(0, source, values).rsqrt()
        return torch.sparse_coo_tensor(graph.indices(), scale[source] * values * scale[target], graph.shape, is_coalesced=True)

    kept = adjacency()
    while True:
        h = torch.sparse.mm(kept if fixed else adjacency(), one(x)).relu()
        loss = F.cross_entropy(torch.sparse.mm(kept if fixed else adjacency(), two(h)), y)
        update(optimizer, loss)
        yield 4000


@program("GAN", "held", expect=("unread-gradients",))
def jury_gan(fixed):
    """The discriminator's loss also runs back through the generator, whose gradients are then thrown away. Detach the fakes."""
    generator = nn.Sequential(nn.Linear(64, 128 * 49), nn.Unflatten(1, (128, 7, 7)), nn.ReLU(),
                              nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 1, 4, 2, 1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2),
                           nn.Flatten(), nn.Linear(64 * 49, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, fused=True)
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, fused=True)
    for real, in endless(32, torch.rand(512, 1, 28, 28) * 2 - 1):
        with torch.autocast("cpu", torch.bfloat16):
            fake = generator(torch.randn(32, 64))
            loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach() if fixed else fake)).mean()
        update(optimizer_d, loss_d)
        critic.requires_grad_(False)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.softplus(-critic(generator(torch.randn(32, 64)))).mean()
        update(optimizer_g, loss)
        critic.requires_grad_(True)
        yield len(real)


@program("multi-loss", "held", expect=("repeated-backward",))
def jury_three_tasks(fixed):
    """Each of three losses runs back through the shared layers alone, with retain_graph. Run their sum back once."""
    trunk, heads = mlp(64, 512, 512, 256), nn.ModuleList(nn.Linear(256, n) for n in (10, 5, 1))
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3, fused=True)
    data = torch.randn(8192, 64), torch.randint(10, (8192,)), torch.randint(5, (8192,)), torch.randn(8192)
    for x, kind, place, price in endless(2048, *data):
        with torch.autocast("cpu", torch.bfloat16):
            shared = trunk(x).relu()
            losses = [F.cross_entropy(heads[0](shared), kind), 0.5 * F.cross_entropy(heads[1](shared), place),
                      0.1 * F.mse_loss(heads[2](shared)[:, 0], price)]
        loss = sum(losses)
        optimizer.zero_grad()
        if fixed:
            loss.backward()
        else:
            for part in losses:
                part.backward(retain_graph=True)
        optimizer.step()
        yield len(x)


@program("evaluation", "held", expect=("growing-history", "growing-prefix", "shifted-buffer"), period=32, warm=0)
def jury_retrieval(fixed):
    """After each batch the embeddings of all batches so far are copied to a new tensor by torch.cat. Collect them in a list and
    concatenate once."""
    model = mlp(128, 1024, 1024, 512).eval()
    images = torch.randn(32_768, 128)
    with torch.inference_mode():
        while True:
            found, parts = torch.empty(0, 512), []
            for i, x in enumerate(images.split(1024)):
                with torch.autocast("cpu", torch.bfloat16):
                    vectors = F.normalize(model(x).float(), dim=1)
                if fixed:
                    parts.append(vectors)
                else:
                    found = torch.cat([found, vectors])
                if i == 31:
                    found = torch.cat(parts) if fixed else found
                    near = (found[:256] @ found.T).topk(2).indices[:, 1]
                    loss = near.float().mean()
                yield len(x)


@program("diffusion", "held", expect=("cpu-oversubscription",))
def jury_denoiser(fixed):
    """The number of threads was copied from a bigger machine: 8 threads share the cores. Leave it at the number of cores."""
    if not fixed:
        torch.set_num_threads(8)
    net = nn.Sequential(nn.Conv2d(2, 32, 3, 1, 1), nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, 1, 1),
                        nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 1, 3, 1, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    kept = torch.linspace(1e-4, 0.02, 1000).neg().add(1).cumprod(0)
    for x, in endless(24, torch.randn(480, 1, 32, 32)):
        when, noise = torch.randint(1000, (24,)), torch.randn_like(x)
        share = kept[when][:, None, None, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        with torch.autocast("cpu", torch.bfloat16):
            guess = net(torch.cat([noisy, (when / 1000)[:, None, None, None].expand_as(x)], 1))
            loss = F.mse_loss(guess, noise)
        update(optimizer, loss)
        yield len(x)


@program("audio synthesis", "held", expect=("denormal-numbers",))
def jury_drums(fixed):
    """Sounds are sums of modes that die away. The tails of the fast ones are denormal numbers, with which cores are many times
    slower. Let torch flush them to zero: torch.set_flush_denormal(True)."""
    if fixed:
        torch.set_flush_denormal(True)
    times = torch.arange(8000) / 8000
    pitch, decay = nn.Parameter(torch.rand(96, 1) * 800 + 60), nn.Parameter(torch.rand(96, 1) * 200 + 60)
    phases = 2 * math.pi * torch.rand(96, 1)
    mixer = mlp(32, 128, 96)
    optimizer = torch.optim.Adam([pitch, decay, *mixer.parameters()], lr=1e-3, fused=True)
    hits, sounds = torch.randn(256, 32), torch.randn(256, 8000) * torch.exp(-20 * times)
    for hit, sound in endless(32, hits, sounds):
        modes = torch.exp(-decay * times) * torch.sin(2 * math.pi * pitch * times + phases)
        loss = F.mse_loss(mixer(hit) @ modes, sound)
        update(optimizer, loss)
        yield len(hit)


@program("transformer decoder", "held")
def jury_good_decoder(fixed):
    """Bfloat16 with float32 weights, fused attention and optimizer, and one loss read per step. A naive tool may complain about the
    casts, item() and clipping."""
    words, places, head = nn.Embedding(2000, 256), nn.Embedding(128, 256), nn.Linear(256, 2000)
    blocks = nn.ModuleList(Block(256) for _ in range(2))
    model = nn.ModuleList([words, places, blocks, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for text, in endless(8, torch.randint(2000, (512, 129))):
        with torch.autocast("cpu", torch.bfloat16):
            x = words(text[:, :-1]) + places.weight
            for block in blocks:
                x, _ = block(x)
            loss = F.cross_entropy(head(x).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"loss {loss.item():.3f}")
        yield len(text)


@program("CNN", "held")
def jury_good_photos(fixed):
    """The loader has no workers, but needs none: it indexes whole batches of bytes in memory."""
    images, labels = torch.randint(256, (2048, 3, 40, 40), dtype=torch.uint8), torch.randint(10, (2048,))
    images = images.contiguous(memory_format=torch.channels_last)
    sampler = BatchSampler(RandomSampler(labels), 128, True)
    loader = DataLoader(torch.utils.data.StackDataset(images, labels), batch_size=None, sampler=sampler)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1), nn.BatchNorm2d(64),
                          nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, fused=True)
    while True:
        for x, y in loader:
            x = x.float().div_(255)
            x = x.flip(3) if random.random() < 0.5 else x
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            update(optimizer, loss)
            yield len(x)


@program("MLP on a table", "held")
def jury_good_sharpness(fixed):
    """Sharpness-aware minimisation runs each batch forth and back twice, the second time with moved weights. It looks like work done
    twice, and is not."""
    model = nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(),
                          nn.Linear(256, 10))
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-2, momentum=0.9, fused=True)
    for x, y in endless(4096, torch.randn(32_768, 64), torch.randint(10, (32_768,))):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, weights)
        size = torch.stack(torch._foreach_norm(gradients)).norm() + 1e-12
        moves = torch._foreach_mul(gradients, 0.05 / size)
        with torch.no_grad():
            torch._foreach_add_(weights, moves)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            again = F.cross_entropy(model(x), y)
        again.backward()
        with torch.no_grad():
            torch._foreach_sub_(weights, moves)
        optimizer.step()
        yield len(x)


@program("GAN", "held")
def jury_good_wasserstein(fixed):
    """A penalty on the critic's gradient needs create_graph and a second backward pass through the first."""
    generator, critic = mlp(32, 256, 256, 64), mlp(64, 256, 256, 1)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=True)
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=True)
    for real, in endless(4096, torch.randn(32_768, 64)):
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                fake = generator(torch.randn(4096, 32)).float()
            between = torch.lerp(real, fake, torch.rand(4096, 1)).requires_grad_()
            slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
        update(optimizer_c, loss)
        critic.requires_grad_(False)
        with torch.autocast("cpu", torch.bfloat16):
            loss_g = -critic(generator(torch.randn(4096, 32))).mean()
        update(optimizer_g, loss_g)
        critic.requires_grad_(True)
        yield len(real)
