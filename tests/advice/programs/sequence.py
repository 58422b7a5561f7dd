"""Sequences: recurrent networks, transformers, generation of text."""

import torch
from harness import endless, program, update
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@program("transformer", "tune", expect=("attention-by-hand",))
def attention_by_hand(fixed):
    """Causal attention over 256 tokens: scores, mask, softmax, values. Fix: scaled_dot_product_attention."""
    embed, head = nn.Embedding(500, 128), nn.Linear(128, 500)
    qkv, out = nn.Linear(128, 384), nn.Linear(128, 128)
    weights = [p for layer in (embed, head, qkv, out) for p in layer.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    future = torch.ones(256, 256, dtype=torch.bool).triu(1)
    for (tokens,) in endless(8, torch.randint(500, (128, 257))):
        x = embed(tokens[:, :-1])
        q, k, v = qkv(x).unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4)
        if fixed:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / 32 ** 0.5
            mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + out(mixed.transpose(1, 2).flatten(2))
        update(optimizer, F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten()))
        yield len(tokens)


@program("RNN", "held", expect=("rnn-in-python",), also=("launch-bound",))
def lstm_cells(fixed):
    """A loop of LSTM cells over 48 time steps. Fix: one nn.LSTM."""
    cell = nn.LSTM(64, 128, batch_first=True) if fixed else nn.LSTMCell(64, 128)
    head = nn.Linear(128, 10)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for x, y in endless(16, torch.randn(256, 48, 64), torch.randint(10, (256,))):
        if fixed:
            h = cell(x)[0][:, -1]
        else:
            h, c = torch.zeros(16, 128), torch.zeros(16, 128)
            for moment in x.unbind(1):
                h, c = cell(moment, (h, c))
        update(optimizer, F.cross_entropy(head(h), y))
        yield len(x)


@program("RNN", "tune", expect=("rnn-in-python",), also=("launch-bound",))
def gru_by_hand(fixed):
    """The gates of a GRU written out, for each of 24 characters. Fix: nn.GRU."""
    embed, head, gru = nn.Embedding(80, 64), nn.Linear(128, 80), nn.GRU(64, 128, batch_first=True)
    gates, new_x, new_h = nn.Linear(64 + 128, 256), nn.Linear(64, 128), nn.Linear(128, 128)
    layers = (embed, head, gru) if fixed else (embed, head, gates, new_x, new_h)
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=1e-3, fused=True)
    for (text,) in endless(32, torch.randint(80, (512, 25))):
        x, h, states = embed(text[:, :-1]), torch.zeros(32, 128), []
        if not fixed:
            for at in range(24):
                reset, keep = gates(torch.cat([x[:, at], h], 1)).sigmoid().chunk(2, 1)
                new = torch.tanh(new_x(x[:, at]) + reset * new_h(h))
                h = keep * h + (1 - keep) * new
                states.append(h)
        states = gru(x)[0] if fixed else torch.stack(states, 1)
        update(optimizer, F.cross_entropy(head(states).flatten(0, 1), text[:, 1:].flatten()))
        yield len(text)


@program("masked language model", "tune", expect=("ignored-labels", "large-vocabulary-loss"))
def huge_vocabulary(fixed):
    """The loss looks at one token in eight, but logits over 40,000 words are made of all. Fix: select tokens first."""
    embed, mix, head = nn.Embedding(40000, 64), nn.Linear(64, 64), nn.Linear(64, 40000, bias=False)
    head.weight = embed.weight
    optimizer = torch.optim.SGD([embed.weight, *mix.parameters()], lr=1e-3, fused=True)
    masked = torch.arange(64) % 8 == 0
    for (tokens,) in endless(1, torch.randint(40000, (64, 64))):
        x = mix(embed(tokens[0])).relu()
        if fixed:
            loss = F.cross_entropy(head(x[masked]), tokens[0][masked])
        else:
            loss = F.cross_entropy(head(x), tokens[0].masked_fill(~masked, -100))
        update(optimizer, loss)
        yield len(tokens)


@program("text classification", "tune", expect=("uneven-lengths",), period=8)
def uneven_lengths(fixed):
    """Each batch is padded to its longest text, and every batch has a long one. Fix: batches of similar lengths."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(1000, 64), nn.Linear(64, 2)
    weights = [p for part in (embed, layer, head) for p in part.parameters()]
    optimizer = torch.optim.SGD(weights, lr=1e-3, fused=True)
    lengths = torch.randint(8, 33, (8, 16))
    lengths[:, 0] = torch.tensor([64, 256, 96, 192, 128, 224, 80, 160])
    if fixed:
        lengths = lengths.flatten().sort().values.view(8, 16)
    while True:
        for batch in lengths:
            tokens = torch.randint(1000, (16, int(batch.max())))
            padding = torch.arange(tokens.shape[1]) >= batch[:, None]
            x = layer(embed(tokens), src_key_padding_mask=padding).masked_fill(padding[..., None], 0).sum(1)
            update(optimizer, F.cross_entropy(head(x), batch % 2))
            yield 16


class Decoder(nn.Module):
    """One layer with a cache of keys and values."""
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(1000, 256), nn.Linear(256, 768), nn.Linear(256, 256)
        self.up, self.down, self.head = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.Linear(256, 1000)

    def forward(self, token, cache):
        x = self.embed(token)
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
        cache[:] = [torch.cat([old, new], 2) for old, new in zip(cache, (k, v))] if cache else [k, v]
        x = x + self.out(F.scaled_dot_product_attention(q, *cache).transpose(1, 2).flatten(2))
        return self.head(x + self.down(F.gelu(self.up(x))))


@program("generation", "held", expect=("grad-in-validation",), also=("launch-bound", "small-batch"))
def generation_with_grad(fixed):
    """Text is generated while autograd records every token. Fix: torch.inference_mode()."""
    model = Decoder().eval()
    while True:
        with torch.inference_mode(fixed):
            token, cache = torch.randint(1000, (8, 1)), []
            for _ in range(24):
                token = model(token, cache).argmax(-1)
        yield 8


@program("transformer", "held", expect=("recompute-cost",))
def recompute_all(fixed):
    """Every layer is run again in backward although memory is free. Fix: no activation checkpointing."""
    layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(3))
    head = nn.Linear(128, 10)
    optimizer = torch.optim.AdamW([*layers.parameters(), *head.parameters()], lr=1e-4, fused=True)
    for x, y in endless(8, torch.randn(64, 64, 128), torch.randint(10, (64,))):
        for layer in layers:
            x = layer(x) if fixed else checkpoint(layer, x, use_reentrant=False)
        update(optimizer, F.cross_entropy(head(x.mean(1)), y))
        yield len(y)
