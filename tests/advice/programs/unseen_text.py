"""Text and recommendation, written without knowledge of the rules, and one good one."""

import math
import random
import re

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F

LOOP = ("unbatched-loop", "launch-bound", "python-between-ops")  # fewer and larger ops, or less Python between them


@program("recommendation", "held", expect=("dense-embedding-gradient",), also=("small-batch",))
def dense_embedding(fixed):
    """Of 200,000 rows a batch looks at 2,000, but gradient and update are of all. Fix: sparse=True."""
    items, head = nn.Embedding(200_000, 64, sparse=fixed), mlp(64, 256, 256, 1)
    optimizers = torch.optim.SGD(items.parameters(), lr=1e-2), torch.optim.SGD(head.parameters(), lr=1e-2, fused=True)
    for x, y in endless(1024, torch.randint(200_000, (8192, 2)), torch.rand(8192)):
        left, right = items(x).unbind(1)
        loss = F.binary_cross_entropy_with_logits(head(left * right)[:, 0], y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        yield len(x)


@program("text classification", "held", expect=("padded-to-maximum",))
def padding_to_maximum(fixed):
    """Texts of up to 48 tokens are all padded to the model's maximum of 192. Fix: to the longest of the batch."""
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(1000, 64), nn.Linear(64, 2)
    weights = [p for part in (embed, layer, head) for p in part.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    lengths = torch.randint(16, 49, (1024,))
    texts = torch.randint(1, 1000, (1024, 192)) * (torch.arange(192) < lengths[:, None])
    for tokens, length in endless(32, texts, lengths):
        if fixed:
            tokens = tokens[:, :int(length.max())]
        padding = tokens == 0
        x = layer(embed(tokens), src_key_padding_mask=padding).masked_fill(padding[..., None], 0).sum(1)
        update(optimizer, F.cross_entropy(head(x), length % 2))
        yield len(tokens)


@program("text classification", "held", expect=("sync-data-loading", "python-between-ops"), also=("cores-idle", "host-copy-on-convert"))
def tokenise_inline(fixed):
    """Each batch of texts is split into words and looked up when it is needed. Fix: all texts once, before training."""
    words = ["".join(random.Random(i).choices("abcdefghij", k=6)) for i in range(2000)]
    index = {word: i + 1 for i, word in enumerate(words)}
    choose = random.Random(0)
    texts = [" ".join(choose.choices(words, k=60)).capitalize() + "!" for _ in range(1024)]

    def encode(text):
        tokens = re.findall(r"[a-z]+", text.lower())[:64]
        return [index.get(token, 0) for token in tokens] + [0] * (64 - len(tokens))

    ready = torch.tensor([encode(text) for text in texts])
    embed, head = nn.Embedding(2001, 64), mlp(64, 256, 2)
    conv = nn.Conv1d(64, 64, 3, padding=1)
    weights = [p for part in (embed, conv, head) for p in part.parameters()]
    optimizer = torch.optim.SGD(weights, lr=1e-3, fused=True)
    labels = torch.randint(2, (1024,))
    while True:
        for begin in range(0, 1024, 128):
            rows = slice(begin, begin + 128)
            tokens = ready[rows] if fixed else torch.tensor([encode(text) for text in texts[rows]])
            x = conv(embed(tokens).transpose(1, 2)).relu().amax(2)
            update(optimizer, F.cross_entropy(head(x), labels[rows]))
            yield 128


@program("transformer", "held", expect=LOOP)
def position_table(fixed):
    """The sines of all positions are computed one by one in every forward pass. Fix: once."""
    def sines(length, width):
        table = torch.zeros(length, width)
        for position in range(length):
            for i in range(0, width, 2):
                angle = position / 10_000 ** (i / width)
                table[position, i] = math.sin(angle)
                table[position, i + 1] = math.cos(angle)
        return table

    ready = sines(64, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(1000, 64), nn.Linear(64, 10)
    weights = [p for part in (embed, layer, head) for p in part.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    for tokens, y in endless(64, torch.randint(1000, (1024, 64)), torch.randint(10, (1024,))):
        x = layer(embed(tokens) + (ready if fixed else sines(64, 64)))
        update(optimizer, F.cross_entropy(head(x.mean(1)), y))
        yield len(tokens)


@program("recommendation", "held")
def good_embedding_bag(fixed):
    """Sums of 20 sparse rows for each user, a head that fills the cores."""
    items, head = nn.EmbeddingBag(100_000, 64, mode="sum", sparse=True), mlp(64, 512, 512, 10)
    optimizers = torch.optim.SGD(items.parameters(), lr=1e-2), torch.optim.SGD(head.parameters(), lr=1e-2, fused=True)
    for x, y in endless(1024, torch.randint(100_000, (8192, 20)), torch.randint(10, (8192,))):
        loss = F.cross_entropy(head(items(x)), y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        yield len(x)
