"""What code reviews name: eleven training programs with one mistake each, and three in which nothing is wrong."""

import copy
import itertools
import os
import random

import torch
import torch.distributed as dist
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


def encoder(width, layers, heads=4):
    """A Transformer encoder without dropout."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


# Input pipeline.

class Photos(Dataset):
    """Large photos of which a random crop is trained on."""
    def __init__(self, crop_first):
        self.crop_first, self.photos = crop_first, torch.randint(256, (48, 3, 320, 320), dtype=torch.uint8)
        self.mean, self.std = torch.tensor([0.48, 0.45, 0.41]).view(3, 1, 1), torch.tensor([0.23, 0.22, 0.22]).view(3, 1, 1)

    def __len__(self):
        return 4096

    def crop(self, photo):
        top, left = random.randrange(320 - 64), random.randrange(320 - 64)
        return photo[:, top:top + 64, left:left + 64]

    def colour(self, photo):
        photo = photo.float().div_(255).mul_(random.uniform(0.8, 1.2)).clamp_(0, 1)
        grey = photo.mean(0, keepdim=True)
        photo = torch.lerp(grey, photo, random.uniform(0.6, 1.4)).clamp_(0, 1)
        photo = photo.flip(-1) if random.random() < 0.5 else photo
        return photo.sub_(self.mean).div_(self.std)

    def __getitem__(self, index):
        photo = self.photos[index % len(self.photos)]
        return (self.colour(self.crop(photo)) if self.crop_first else self.crop(self.colour(photo))), index % 10


@program("image classifier with augmentation", "held", expect=("loader-bound",), warm=5)
def crop_comes_last(fixed):
    """Every photo is converted, jittered, flipped and normalised at its full size and only then cropped to a 25th of it.
    Fix: crop first."""
    model = nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1), nn.BatchNorm2d(64),
                          nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 128, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    # cause: augmentation of pixels that are thrown away keeps the loader's worker busy, and training waits for it
    loader = DataLoader(Photos(crop_first=fixed), batch_size=16, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)
    while True:
        for x, y in loader:
            update(optimizer, F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y))
            yield len(x)


class Reviews(Dataset):
    """Texts, split into the longest pieces that a vocabulary knows."""
    def __init__(self, count, once):
        letters = "etaoinshrdlu"
        pieces = list(letters) + [a + b for a in letters for b in letters] + ["".join(random.choices(letters, k=4)) for _ in range(2000)]
        self.ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces), 1)}
        self.texts = [" ".join("".join(random.choices(letters, k=random.randint(5, 14))) for _ in range(48)) for _ in range(count)]
        self.encoded = [self.encode(text) for text in self.texts] if once else None

    def encode(self, text):
        ids = []
        for word in text.lower().split():
            start = 0
            while start < len(word):
                end = len(word)
                while word[start:end] not in self.ids:
                    end -= 1
                ids.append(self.ids[word[start:end]])
                start = end
        return torch.tensor(ids[:96])

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return (self.encoded[index] if self.encoded else self.encode(self.texts[index])), index % 2


@program("text classifier", "held", expect=("sync-data-loading",))
def tokenised_every_epoch(fixed):
    """The dataset tokenises a text in Python each time it is asked for it. Fix: tokenise all texts once, before training."""
    data = Reviews(1024, once=fixed)
    embed = nn.Embedding(len(data.ids) + 1, 64, padding_idx=0)
    body = nn.Sequential(nn.Conv1d(64, 96, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), mlp(96, 256, 2))
    optimizer = torch.optim.AdamW([*embed.parameters(), *body.parameters()], lr=1e-3, fused=True)

    def collate(samples):
        texts, labels = zip(*samples)
        return pad_sequence(texts, batch_first=True), torch.tensor(labels)
    # cause: the same slow Python work on the same samples in every epoch, within the training loop
    loader = DataLoader(data, batch_size=64, shuffle=True, collate_fn=collate)
    while True:
        for x, y in loader:
            update(optimizer, F.cross_entropy(body(embed(x).transpose(1, 2)), y))
            yield len(x)


# Model code.

class Head(nn.Module):
    """One head of causal attention, as in the tutorial."""
    def __init__(self, width, size, length):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(width, size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.ones(length, length).tril())

    def forward(self, x):
        weights = self.query(x) @ self.key(x).transpose(1, 2) * self.key.out_features ** -0.5
        return weights.masked_fill(self.tril == 0, float("-inf")).softmax(-1) @ self.value(x)


class LoopedAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.out = nn.ModuleList(Head(width, width // heads, length) for _ in range(heads)), nn.Linear(width, width)

    def forward(self, x):
        return self.out(torch.cat([head(x) for head in self.heads], -1))  # cause: many small matmuls instead of one large one


class FusedAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, attention, width, *rest):
        super().__init__()
        self.attention, self.norm1, self.norm2 = attention(width, *rest), nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = mlp(width, 4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


@program("character language model", "held", expect=("attention-by-hand",))
def heads_one_by_one(fixed):
    """Each attention head is a module of its own with three small projections, run in a Python loop and concatenated.
    Fix: one projection for all heads and scaled_dot_product_attention."""
    attention = FusedAttention if fixed else LoopedAttention
    embed, place = nn.Embedding(96, 192), nn.Parameter(0.02 * torch.randn(64, 192))
    body = nn.Sequential(*(Block(attention, 192, 12, 64) for _ in range(2)), nn.LayerNorm(192), nn.Linear(192, 96))
    optimizer = torch.optim.AdamW([place, *embed.parameters(), *body.parameters()], lr=3e-4, fused=True)
    for tokens, in endless(8, torch.randint(96, (512, 65))):
        logits = body(embed(tokens[:, :-1]) + place)
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
        yield len(tokens)


@program("masked language model", "held", expect=("ignored-labels",))
def vocabulary_for_all_tokens(fixed):
    """Logits over the vocabulary are computed for every token, though only the 15 % that are masked have a label (-100 elsewhere).
    Fix: pick the masked tokens in front of the output layer."""
    embed, place = nn.Embedding(4000, 128), nn.Parameter(0.02 * torch.randn(48, 128))
    body, head = encoder(128, 2), nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 4000))
    optimizer = torch.optim.AdamW([place, *(p for m in (embed, body, head) for p in m.parameters())], lr=3e-4, fused=True)
    for tokens, in endless(8, torch.randint(4, 4000, (512, 48))):
        masked = torch.rand(tokens.shape) < 0.15
        hidden = body(embed(tokens.masked_fill(masked, 3)) + place)
        if fixed:
            loss = F.cross_entropy(head(hidden[masked]), tokens[masked])
        else:  # cause: the widest layer works on positions that the loss ignores
            loss = F.cross_entropy(head(hidden).flatten(0, 1), tokens.masked_fill(~masked, -100).flatten(), ignore_index=-100)
        update(optimizer, loss)
        yield len(tokens)


@program("contrastive learning with a queue of negatives", "held", expect=("shifted-buffer",))
def queue_by_concatenation(fixed):
    """The queue of 32768 keys is made anew at every step by concatenating all of it but the oldest keys with the new ones.
    Fix: overwrite the oldest keys in place and move a pointer."""
    query = nn.Sequential(mlp(256, 512, 512, 128))
    slow = copy.deepcopy(query).requires_grad_(False)
    queue, oldest = F.normalize(torch.randn(32768, 128), dim=1), 0
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9, fused=True)
    for x, in endless(32, torch.randn(2048, 256)):
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(query.parameters()), 0.001)
            keys = F.normalize(slow(x + 0.1 * torch.randn_like(x)), dim=1)
        found = F.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
        logits = torch.cat([(found * keys).sum(1, keepdim=True), found @ queue.T], 1) / 0.2
        update(optimizer, F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long)))
        if fixed:
            queue[oldest:oldest + len(x)] = keys
            oldest = (oldest + len(x)) % len(queue)
        else:
            queue = torch.cat([queue[len(x):], keys])  # cause: all of a large buffer is copied to exchange a few rows
        yield len(x)


# Autograd.

@program("GAN", "held", expect=("unread-gradients", "repeated-backward"))
def fakes_not_detached(fixed):
    """The discriminator's loss is backpropagated through the generator, too, whose gradients are thrown away. Fix: detach the fakes."""
    make = nn.Sequential(nn.Linear(64, 128 * 16), nn.ReLU(), nn.Unflatten(1, (128, 4, 4)), nn.ConvTranspose2d(128, 128, 4, 2, 1), nn.ReLU(),
                         nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(),
                         nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).to(memory_format=torch.channels_last)
    judge = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2),
                          nn.Flatten(), nn.Linear(64 * 64, 1)).to(memory_format=torch.channels_last)
    makes, judges = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True) for net in (make, judge))
    yes, no = torch.ones(16, 1), torch.zeros(16, 1)
    for real, in endless(16, torch.rand(512, 3, 32, 32).to(memory_format=torch.channels_last)):
        fake = make(torch.randn(16, 64))
        scores = judge(torch.cat([real, fake.detach() if fixed else fake]))
        judges.zero_grad()
        # cause: a backward pass goes through a network that is not updated with it
        F.binary_cross_entropy_with_logits(scores, torch.cat([yes, no])).backward(retain_graph=not fixed)
        judges.step()
        judge.requires_grad_(False)
        update(makes, F.binary_cross_entropy_with_logits(judge(fake), yes))
        judge.requires_grad_(True)
        yield len(real)


@program("multi-task regression and classification", "held", expect=("repeated-backward",))
def backward_per_task(fixed):
    """Each of four tasks has a backward() of its own with retain_graph=True, so the shared trunk is backpropagated four times.
    Fix: add the losses and call backward() once."""
    trunk = nn.Sequential(mlp(128, 512, 768, 512), nn.ReLU())
    heads = nn.ModuleList(mlp(512, 64, size) for size in (1, 1, 5, 20))
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3, fused=True)
    data = torch.randn(4096, 128), torch.randn(4096), torch.rand(4096).round(), torch.randint(5, (4096,)), torch.randint(20, (4096,))
    measures = F.mse_loss, F.binary_cross_entropy_with_logits, F.cross_entropy, F.cross_entropy
    for x, *targets in endless(256, *data):
        shared = trunk(x)
        losses = [measure(head(shared).squeeze(1), target) for head, measure, target in zip(heads, measures, targets)]
        optimizer.zero_grad()
        if fixed:
            (losses[0] + losses[1] + 0.5 * losses[2] + 0.5 * losses[3]).backward()
        else:
            for loss, weight in zip(losses, (1, 1, 0.5, 0.5)):
                (weight * loss).backward(retain_graph=True)  # cause: one backward pass through the same layers per loss
        optimizer.step()
        yield len(x)


# Optimizer and EMA.

@program("tabular regression with an average of the weights", "held", expect=("work-between-steps",))
def average_by_new_state_dict(fixed):
    """The moving average of the weights is made as a new dict of new tensors at every step and loaded into the averaged model.
    Fix: update the averaged parameters in place, all with one call."""
    columns = nn.ModuleList(nn.Embedding(300, 32) for _ in range(16))
    model = nn.ModuleDict({"columns": columns, "body": mlp(512, 1024, 1024, 512, 1)})
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(64, torch.randint(300, (4096, 16)), torch.randn(4096, 1)):
        row = torch.cat([column(values) for column, values in zip(model["columns"], x.unbind(1))], 1)
        update(optimizer, F.mse_loss(model["body"](row), y))
        if fixed:
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
        else:  # cause: several new copies of all weights per step instead of one update in place
            new = {key: value.detach().clone() for key, value in model.state_dict().items()}
            old = copy.deepcopy(average.state_dict())
            average.load_state_dict({key: 0.999 * old[key] + 0.001 * new[key] for key in old})
        yield len(x)


# Metrics.

@program("semantic segmentation", "held", expect=("unbatched-loop", "launch-bound", "python-between-ops"))
def iou_class_by_class(fixed):
    """The mean IoU of a batch is computed in a Python loop over images and classes, with .item() for every count.
    Fix: a confusion matrix with one bincount, added up on tensors."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 2, 2), nn.ReLU(),
                          nn.Conv2d(64, 20, 1), nn.Upsample(scale_factor=2, mode="bilinear")).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    matrix, scores = torch.zeros(20, 20, dtype=torch.long), []
    for x, y in endless(8, torch.randn(128, 3, 64, 64).to(memory_format=torch.channels_last), torch.randint(20, (128, 64, 64))):
        logits = model(x)
        update(optimizer, F.cross_entropy(logits, y))
        guess = logits.detach().argmax(1)
        if fixed:
            matrix += torch.bincount((20 * y + guess).flatten(), minlength=400).view(20, 20)
        else:
            for one, truth in zip(guess, y):
                for c in range(20):  # cause: many tiny operations, each fetched into Python, for a metric in the training loop
                    both = ((one == c) & (truth == c)).sum().item()
                    either = ((one == c) | (truth == c)).sum().item()
                    scores = scores[-1000:] + [both / max(either, 1)]
        yield len(x)


# Layout.

class ConvNext(nn.Module):
    """Depthwise convolution, then normalisation and two linear layers on channels."""
    def __init__(self, width, copies):
        super().__init__()
        self.copies, self.spread = copies, nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.spread(x).permute(0, 2, 3, 1)
        y = y.contiguous() if self.copies else y  # cause: activations are rearranged in memory twice per block, forth and back
        y = self.down(F.gelu(self.up(self.norm(y)))).permute(0, 3, 1, 2)
        return x + (y.contiguous() if self.copies else y)


@program("ConvNeXt classifier", "held", expect=("layout-transpose",))
def layout_back_and_forth(fixed):
    """Images are NCHW, and each block copies its activations to NHWC and back with permute().contiguous().
    Fix: channels_last for images and model, in which the permutations are free."""
    model = nn.Sequential(nn.Conv2d(3, 64, 2, 2), *(ConvNext(64, not fixed) for _ in range(3)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(64, 10))
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = model.to(memory_format=layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(16, torch.randn(256, 3, 32, 32).contiguous(memory_format=layout), torch.randint(10, (256,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


# Distributed.

@program("data-parallel sequence classifier", "held", expect=("imbalanced-load", "exposed-collective", "uneven-lengths"), period=4, warm=4, ranks=2)
def long_texts_on_one_rank(fixed):
    """Texts are sorted by length and the first rank gets the shorter half, so it waits for the other at every step.
    Fix: deal the sorted batches out in turn, so that both ranks have texts of about the same length."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    batches = [torch.randint(2000, (8, length)) for length in (24, 24, 80, 80, 136, 136, 192, 192)]
    # cause: ranks get unequal amounts of work, and gradients are averaged only when the slowest is done
    mine = batches[rank::2] if fixed else batches[4 * rank:4 * rank + 4]
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(2000, 96), encoder(96, 2), nn.AdaptiveAvgPool2d((1, None)), nn.Flatten(),
                                                  nn.Linear(96, 4)), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    y = torch.randint(4, (8,))
    while True:
        for x in mine:
            update(optimizer, F.cross_entropy(model(x), y))
            yield len(x)


# Nothing is wrong with these.

class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time, self.first = nn.Sequential(nn.Embedding(1000, width), nn.Linear(width, width), nn.SiLU()), nn.Conv2d(3, width, 3, 1, 1)
        self.down, self.mid = nn.Conv2d(width, 2 * width, 4, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, 1, 1)
        self.up, self.last = nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x, t):
        high = F.silu(self.first(x) + self.time(t)[:, :, None, None])
        return self.last(F.silu(self.up(F.silu(self.mid(F.silu(self.down(high))))) + high))


@program("diffusion model", "held")
def good_noise_model(fixed):
    """Nothing is wrong: a table of noise levels, a time per image, channels_last."""
    model = Denoiser(32).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    signal, noisy = kept.sqrt().view(-1, 1, 1, 1), (1 - kept).sqrt().view(-1, 1, 1, 1)
    for x, in endless(16, torch.randn(256, 3, 32, 32).to(memory_format=torch.channels_last)):
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        update(optimizer, F.mse_loss(model(signal[t] * x + noisy[t] * noise, t), noise))
        yield len(x)


@program("recommender with two towers", "held")
def good_bags_of_items(fixed):
    """Nothing is wrong: bags of items, and the other items of the batch as negatives."""
    items, history = nn.Embedding(5000, 64), nn.EmbeddingBag(5000, 64, mode="mean")
    user, item = mlp(64 + 32, 512, 512, 64), mlp(64, 512, 512, 64)
    parts = nn.ModuleList([items, history, user, item])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-3, fused=True)
    labels = torch.arange(256)
    for seen, about, bought in endless(256, torch.randint(5000, (8192, 20)), torch.randn(8192, 32), torch.randint(5000, (8192,))):
        users = F.normalize(user(torch.cat([history(seen), about], 1)), dim=1)
        found = F.normalize(item(items(bought)), dim=1)
        update(optimizer, F.cross_entropy(users @ found.T / 0.07, labels))
        yield len(seen)


@program("forecast of time series", "held", period=10)
def good_patches(fixed):
    """Nothing is wrong: windows are patches of a view, gradients are clipped, and every tenth step logs and validates on a batch."""
    embed, place, body, head = nn.Linear(8, 128), nn.Parameter(0.02 * torch.randn(24, 128)), encoder(128, 2), nn.Linear(128, 8)
    weights = [place, *(p for m in (embed, body, head) for p in m.parameters())]
    optimizer = torch.optim.AdamW(weights, lr=3e-4, fused=True)
    series = torch.randn(4096).cumsum(0)
    windows = ((series - series.mean()) / series.std()).unfold(0, 200, 1)
    held, total = windows[-32:], torch.zeros(())

    def loss_of(window):
        return F.mse_loss(head(body(embed(window[:, :192].unflatten(1, (24, 8))) + place).mean(1)), window[:, 192:])
    for step in itertools.count(1):
        loss = loss_of(windows[torch.randint(len(windows) - 232, (32,))])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        total += loss.detach()
        if step % 10 == 0:
            with torch.inference_mode():
                print(f"step {step}: loss {total.item() / 10:.3f}, held out {loss_of(held).item():.3f}")
            total.zero_()
        yield 32
