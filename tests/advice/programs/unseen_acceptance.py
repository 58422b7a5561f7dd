"""Acceptance test of a profiler that gives advice: training programs with one mistake each, and two with none."""

import contextlib
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, RandomSampler

from harness import endless, mlp, program, update


# --- Segmentation

@program("segmenter, fully convolutional", "held", expect=("unbatched-loop",))
def accept_segmenter_metric(fixed):
    """The confusion matrix for the training mIoU is counted by a Python loop over all pairs of classes, with masks over
    all pixels and one .item() each. Fix: one torch.bincount over target * classes + prediction."""
    classes = 12
    net = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.ReLU(),
                        nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(32, classes, 1), nn.Upsample(scale_factor=2, mode="bilinear"))
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images = torch.randn(64, 3, 96, 96).contiguous(memory_format=torch.channels_last)
    masks = torch.randint(classes, (64, 12, 12)).repeat_interleave(8, 1).repeat_interleave(8, 2)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    for number, (image, mask) in enumerate(endless(4, images, masks), 1):
        logits = net(image)
        update(optimizer, F.cross_entropy(logits, mask))
        predicted = logits.detach().argmax(1)
        if fixed:
            pairs = torch.bincount((mask * classes + predicted).flatten(), minlength=classes * classes)
            confusion += pairs.view(classes, classes)
        else:
            for target in range(classes):
                for guess in range(classes):
                    confusion[target, guess] += ((mask == target) & (predicted == guess)).sum().item()
        if number % 50 == 0:
            hit = confusion.diagonal()
            print("mIoU", (hit / (confusion.sum(0) + confusion.sum(1) - hit).clamp(min=1)).mean().item())
            confusion.zero_()
        yield len(image)


# --- Recurrent text classifier

class ReviewClassifier(nn.Module):
    def __init__(self, words=5000, width=96, hidden=128):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, tokens, lengths):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(states[torch.arange(len(tokens)), lengths - 1])  # state at the last real word


@program("LSTM classifier of short reviews", "held", expect=("padded-to-maximum",))
def accept_lstm_padding(fixed):
    """Every batch is padded to the maximal length of 160 although the reviews have at most 60 words, so that most of the
    LSTM's time steps are padding. Fix: cut a batch to its longest review (dynamic padding in collate_fn)."""
    max_length = 160
    reviews = [torch.randint(1, 5000, (random.Random(n).randint(15, 60),)) for n in range(1024)]
    sentiment = torch.randint(2, (1024,))
    net = ReviewClassifier()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def collate(samples):
        words, labels = zip(*samples)
        lengths = torch.tensor([len(text) for text in words])
        tokens = nn.utils.rnn.pad_sequence(words, batch_first=True)
        if not fixed:
            tokens = F.pad(tokens, (0, max_length - tokens.shape[1]))
        return tokens, lengths, torch.stack(labels)

    loader = DataLoader(list(zip(reviews, sentiment)), batch_size=16, shuffle=True, collate_fn=collate)
    while True:
        for tokens, lengths, labels in loader:
            loss = F.cross_entropy(net(tokens, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            yield len(labels)


# --- Text generation with a reward

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x)), (k, v)


class Decoder(nn.Module):
    def __init__(self, words=256, width=128, heads=4, depth=2, longest=64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, words)

    def forward(self, tokens, past=None):
        start = past[0][0].shape[2] if past else 0
        x = self.words(tokens) + self.places(torch.arange(start, start + tokens.shape[1]))
        kept = []
        for block, old in zip(self.blocks, past or [None] * len(self.blocks)):
            x, pair = block(x, old)
            kept.append(pair)
        return self.head(x), kept


@program("transformer decoder, generation and REINFORCE", "held", expect=("growing-prefix",))
def accept_generation_cache(fixed):
    """The sampled continuation runs the whole sequence through the decoder again for each new token. Fix: keep the keys
    and values of the past tokens (KV cache) and feed only the newest token."""
    net = Decoder()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    prompts = torch.randint(256, (512, 12))
    for prompt, in endless(8, prompts):
        tokens, past = prompt, None
        with torch.no_grad():
            for _ in range(18):
                if fixed:
                    logits, past = net(tokens if past is None else tokens[:, -1:], past)
                else:
                    logits, _ = net(tokens)
                choice = torch.multinomial(logits[:, -1].softmax(-1), 1)
                tokens = torch.cat([tokens, choice], 1)
        # the reward is the share of "good" words in the answer
        answer = tokens[:, prompt.shape[1]:]
        reward = (answer < 64).float().mean(1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        logits = net(tokens[:, :-1])[0][:, prompt.shape[1] - 1:]
        logp = -F.cross_entropy(logits.transpose(1, 2), answer, reduction="none").sum(1)
        update(optimizer, -(advantage * logp).mean())
        yield len(prompt)


# --- Graph network

class Interaction(nn.Module):
    """One round of messages over the edges."""
    def __init__(self, width):
        super().__init__()
        self.message, self.change = mlp(2 * width + 16, width, width), mlp(2 * width, width, width)

    def forward(self, atoms, source, target, shells):
        messages = self.message(torch.cat([atoms[source], atoms[target], shells], 1))
        total = torch.zeros_like(atoms).index_add(0, target, messages)
        return atoms + self.change(torch.cat([atoms, total], 1))


@program("GNN of molecules, energy regression", "held", expect=("fp64-compute",))
def accept_gnn_precision(fixed):
    """The positions of the simulation are float64, and the network was made .double() to match, so that everything is
    computed in double precision. Fix: convert the data to float32 and train in float32."""
    dtype = torch.float32 if fixed else torch.float64
    molecules, atoms, near, width = 24, 18, 6, 96
    torch.manual_seed(1)
    embed = nn.Embedding(10, width)
    rounds = nn.ModuleList(Interaction(width) for _ in range(2))
    head = mlp(width, 48, 1)
    net = nn.ModuleList([embed, rounds, head]).to(dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    # the trajectory files hold double precision
    positions = torch.randn(480, atoms, 3, dtype=torch.float64)
    kinds = torch.randint(10, (480, atoms))
    energies = torch.cdist(positions, positions).mean((1, 2))
    offset = (torch.arange(molecules) * atoms)[:, None, None]
    owner = torch.arange(molecules).repeat_interleave(atoms)
    centers = torch.linspace(0, 4, 16, dtype=dtype)
    for place, kind, energy in endless(molecules, positions.to(dtype), kinds, energies.to(dtype)):
        distance, source = torch.cdist(place, place).topk(near + 1, largest=False)
        source = (source[:, :, 1:] + offset).flatten()
        target = torch.arange(molecules * atoms).repeat_interleave(near)
        shells = torch.exp(-(distance[:, :, 1:].reshape(-1, 1) - centers) ** 2)
        state = embed(kind.flatten())
        for layer in rounds:
            state = layer(state, source, target, shells)
        predicted = torch.zeros(molecules, 1, dtype=dtype).index_add(0, owner, head(state))[:, 0] / atoms
        update(optimizer, F.mse_loss(predicted, energy))
        yield molecules


# --- Distillation

def convnet(width, classes=20):
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(2 * width, classes)).to(memory_format=torch.channels_last)


@program("distillation of a CNN", "held", expect=("unread-gradients",))
def accept_distill_teacher(fixed):
    """The teacher runs with autograd on and the loss is not cut off from it, so that backward also goes through the large
    teacher, whose gradients nobody uses. Fix: run the teacher under torch.no_grad()."""
    teacher, student = convnet(48).eval(), convnet(12)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    images = torch.randn(512, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(20, (512,))
    temperature = 2.0
    for image, label in endless(32, images, labels):
        with torch.no_grad() if fixed else contextlib.nullcontext():
            wanted = F.log_softmax(teacher(image) / temperature, 1)
        logits = student(image)
        soft = F.kl_div(F.log_softmax(logits / temperature, 1), wanted, reduction="batchmean", log_target=True)
        loss = 0.3 * F.cross_entropy(logits, label) + 0.7 * temperature ** 2 * soft
        update(optimizer, loss)
        yield len(image)


# --- Two processes

@program("DDP with gradient accumulation", "held", expect=("missing-no-sync",), ranks=2)
def accept_ddp_accumulation(fixed):
    """The gradients are averaged over the ranks in the backward of each of the eight micro-batches, although only their sum
    is used. Fix: model.no_sync() around all micro-batches but the last."""
    torch.set_num_threads(1)  # as torchrun has it
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    micro, accumulate = 8, 8
    model = DistributedDataParallel(mlp(256, 768, 768, 768, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    inputs, labels = torch.randn(4096, 256), torch.randint(50, (4096,))
    batches = endless(micro, inputs[rank::ranks], labels[rank::ranks])
    while True:
        optimizer.zero_grad()
        for part in range(accumulate):
            features, target = next(batches)
            last = part == accumulate - 1
            with model.no_sync() if fixed and not last else contextlib.nullcontext():
                loss = F.cross_entropy(model(features), target) / accumulate
                loss.backward()
        optimizer.step()
        yield micro * accumulate


# --- Language model

@program("GRU language model", "held", expect=("logging-checkpoint-stall",), period=3)
def accept_gru_checkpoint(fixed):
    """Model and optimizer state are written and synced to disk every third step, and training waits for it. Fix: write
    checkpoints rarely (every few hundred steps or by time), or in the background."""
    every = 600 if fixed else 3
    words, width = 4000, 192
    embed, gru, head = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, words)
    net = nn.ModuleList([embed, gru, head])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    text = torch.randint(words, (2048, 25))

    def save(step):
        state = {"step": step, "model": net.state_dict(), "optimizer": optimizer.state_dict()}
        with open("last.tmp", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace("last.tmp", "last.pt")

    for step, (chunk,) in enumerate(endless(8, text), 1):
        states, _ = gru(embed(chunk[:, :-1]))
        loss = F.cross_entropy(head(states).flatten(0, 1), chunk[:, 1:].flatten())
        update(optimizer, loss)
        if step % every == 0:
            save(step)
        yield len(chunk)


# --- Audio

class Recordings(Dataset):
    """Clips of 0.5 s at 16 kHz as log-mel spectrograms, with their labels."""
    def __init__(self, waves, labels, in_advance):
        self.window = torch.hann_window(512)
        self.filters = torch.rand(64, 257) / 257
        self.waves, self.labels = waves, labels
        self.ready = [self.log_mel(wave) for wave in waves] if in_advance else None

    def log_mel(self, wave):
        power = torch.stft(wave, 512, 80, window=self.window, return_complex=True).abs() ** 2
        return torch.log(self.filters @ power + 1e-6)[None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.ready[index] if self.ready else self.log_mel(self.waves[index])
        return image, self.labels[index]


@program("CNN on audio clips, DataLoader", "held", expect=("loader-bound",), also=("layout-transpose",))
def accept_audio_features(fixed):
    """The log-mel spectrograms, which do not depend on chance, are computed anew from the waves for each sample of each
    epoch, and training waits for the workers. Fix: compute them once before training and load those."""
    dataset = Recordings(torch.randn(512, 8000), torch.randint(10, (512,)), in_advance=fixed)
    net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    endlessly = RandomSampler(dataset, replacement=True, num_samples=10 ** 6)
    for images, labels in DataLoader(dataset, batch_size=32, sampler=endlessly, num_workers=2):
        update(optimizer, F.cross_entropy(net(images), labels))
        yield len(labels)


# --- Diffusion

class Denoiser(nn.Module):
    def __init__(self, size=64, width=128, depth=6):
        super().__init__()
        self.time, self.enter, self.leave = mlp(32, width, width), nn.Linear(size, width), nn.Linear(width, size)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(depth))

    def forward(self, noisy, when):
        angles = when[:, None] * torch.exp(-torch.arange(16) / 2)
        about = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        hidden = self.enter(noisy)
        for block in self.blocks:
            hidden = hidden + block(hidden + about)
        return self.leave(hidden)


@program("diffusion of small vectors", "held", expect=("debug-api-on",))
def accept_diffusion_anomaly(fixed):
    """autograd's anomaly detection was left on after a search for NaNs: it keeps a traceback per operation and checks
    every gradient. Fix: torch.autograd.set_detect_anomaly(False)."""
    torch.autograd.set_detect_anomaly(not fixed)
    net = Denoiser()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4, fused=True)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    for clean, in endless(192, torch.randn(6144, 64)):
        when = torch.randint(1000, (len(clean),))
        noise = torch.randn_like(clean)
        alpha = kept[when, None]
        noisy = alpha.sqrt() * clean + (1 - alpha).sqrt() * noise
        update(optimizer, F.mse_loss(net(noisy, when.float()), noise))
        yield len(clean)


# --- Recommender

@program("recommender with large embeddings", "held", expect=("dense-embedding-gradient",))
def accept_recommender_tables(fixed):
    """The tables of 90,000 users and items get dense gradients, so that backward and Adagrad go over all rows although a
    batch looks up only few. Fix: nn.Embedding(..., sparse=True); Adagrad does the same with sparse gradients."""
    users, items, width = 60_000, 30_000, 32
    user_table = nn.Embedding(users, width, sparse=fixed)
    item_table = nn.Embedding(items, width, sparse=fixed)
    tower = mlp(2 * width, 256, 128, 1)
    net = nn.ModuleList([user_table, item_table, tower])
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.02)
    history = torch.randint(users, (16384,)), torch.randint(items, (16384,)), torch.randint(1, 6, (16384,)).float()
    for user, item, stars in endless(1024, *history):
        rating = tower(torch.cat([user_table(user), item_table(item)], 1))[:, 0]
        update(optimizer, F.mse_loss(rating, stars))
        yield len(stars)


# --- Good ones

@program("tabular with embeddings", "held")
def good_accept_tabular(fixed):
    """Nothing is wrong: batches are slices of tensors in memory, the tables are small, bfloat16, a fused
    optimizer."""
    sizes = [12, 40, 7, 300]
    starts = torch.tensor([0, 12, 52, 59])
    table = nn.Embedding(sum(sizes), 16)  # all columns in one table, each from its start
    net = nn.ModuleList([table, mlp(4 * 16 + 10, 256, 128, 1)])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    codes = torch.stack([torch.randint(size, (16384,)) for size in sizes], 1) + starts
    numbers, clicked = torch.randn(16384, 10), torch.randint(2, (16384,)).float()
    shown = torch.zeros(())
    for step, (code, number, target) in enumerate(endless(2048, codes, numbers, clicked), 1):
        with torch.autocast("cpu", torch.bfloat16):
            logits = net[1](torch.cat([table(code).flatten(1), number], 1))[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits.float(), target)
        update(optimizer, loss)
        shown += loss.detach()
        if step % 100 == 0:
            print(f"step {step}: loss {shown.item() / 100:.4f}")
            shown.zero_()
        yield len(target)


@program("GRU forecaster of series", "held")
def good_accept_forecast(fixed):
    """Nothing is wrong: one call of the fused nn.GRU per batch, data in memory, rare logging and rare validation."""
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = nn.GRU(8, 64, batch_first=True), nn.Linear(64, 1)

        def forward(self, series):
            return self.head(self.gru(series)[0][:, -1])[:, 0]

    net = Forecaster()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    series = torch.randn(4096, 32, 8).cumsum(1)
    following = series[:, -4:].mean((1, 2)) + 0.1 * torch.randn(4096)
    held_series, held_following = series[:256], following[:256]
    for step, (past, target) in enumerate(endless(96, series[256:], following[256:]), 1):
        update(optimizer, F.smooth_l1_loss(net(past), target))
        if step % 500 == 0:
            with torch.inference_mode():
                print(f"step {step}: held-out loss {F.smooth_l1_loss(net(held_series), held_following).item():.4f}")
        yield len(past)
