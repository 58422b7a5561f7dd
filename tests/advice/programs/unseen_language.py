"""The third blind set, second part: text, RNNs, generation, time series; two in which nothing is wrong."""

import math
import random

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pad_sequence


class Block(nn.Module):
    """A layer of a decoder, which can go on from the keys and values of earlier positions."""
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.ffn(x), (k, v)


class Decoder(nn.Module):
    def __init__(self, words, width, depth, longest):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def hidden(self, tokens, pasts=None):
        begin = pasts[0][0].shape[2] if pasts else 0
        x, kept = self.words(tokens) + self.places.weight[begin:begin + tokens.shape[1]], []
        for i, block in enumerate(self.blocks):
            x, past = block(x, pasts[i] if pasts else None)
            kept.append(past)
        return self.norm(x), kept


@torch.no_grad()
def sample(model, tokens, count, cached):
    """`count` further tokens."""
    pasts = None
    for _ in range(count):
        x, pasts = model.hidden(tokens[:, -1:], pasts) if pasts else model.hidden(tokens)
        if not cached:
            pasts = None
        word = torch.multinomial(model.head(x[:, -1]).softmax(-1), 1)
        tokens = torch.cat((tokens, word), 1)
    return tokens


@program("RL on text", "held", expect=("growing-prefix",))
def reward_tuned_lm(fixed):
    """Samples the answers that it is rewarded for, and for every token runs the model on the whole text so far.
    Fix: keep keys and values."""
    model = Decoder(500, 128, 2, 48)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    for (prompts,) in endless(16, torch.randint(500, (256, 32))):
        tokens = sample(model, prompts, 12, cached=fixed)
        answers = tokens[:, 32:]
        rewards = (answers < 250).float().mean(1)
        log_p = -F.cross_entropy(model.head(model.hidden(tokens[:, :-1])[0][:, 31:]).transpose(1, 2), answers, reduction="none")
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        update(optimizer, -(advantage * log_p.mean(1)).mean())
        yield len(prompts)


@program("LLM fine-tuning", "held", expect=("ignored-labels",), also=("large-vocabulary-loss",))
def instruction_lm(fixed):
    """Computes logits over the whole vocabulary at every position, though the loss ignores the prompt, three quarters of each text.
    Fix: give only the positions with a label to the head."""
    model = Decoder(6000, 128, 2, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for (tokens,) in endless(4, torch.randint(6000, (256, 64))):
        labels = tokens.clone()
        labels[:, :48] = -100  # the prompt
        x, labels = model.hidden(tokens[:, :-1])[0].flatten(0, 1), labels[:, 1:].flatten()
        if fixed:
            x, labels = x[labels != -100], labels[labels != -100]
        update(optimizer, F.cross_entropy(model.head(x), labels, ignore_index=-100))
        yield len(tokens)


@program("text", "held", expect=("padded-to-maximum",))
def review_classifier(fixed):
    """Pads every batch to the longest text that the model allows, 128 tokens, though none is longer than 56.
    Fix: pad to the longest text of the batch."""
    words, layer = nn.Embedding(2000, 96, padding_idx=0), nn.TransformerEncoderLayer(96, 4, 384, 0.0, batch_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(96, 2)
    optimizer = torch.optim.AdamW([*words.parameters(), *encoder.parameters(), *head.parameters()], lr=1e-4, fused=True)
    texts = [torch.randint(1, 2000, (random.Random(i).randint(44, 56),)) for i in range(512)]
    labels = torch.randint(2, (512,))
    while True:
        for begin in range(0, 512, 16):
            tokens = pad_sequence(texts[begin:begin + 16], batch_first=True)
            if not fixed:
                tokens = F.pad(tokens, (0, 128 - tokens.shape[1]))
            padding = tokens == 0
            x = encoder(words(tokens), src_key_padding_mask=padding).masked_fill(padding[..., None], 0)
            pooled = x.sum(1) / (~padding).sum(1, keepdim=True)
            update(optimizer, F.cross_entropy(head(pooled), labels[begin:begin + 16]))
            yield 16


class Reader(nn.Module):
    """A recurrent network with normalized weights."""
    def __init__(self, inputs, width, classes):
        super().__init__()
        self.inward, self.onward = nn.Linear(inputs, width), weight_norm(nn.Linear(width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = x.new_zeros(len(x), self.onward.out_features)
        for now in self.inward(x).unbind(1):
            h = torch.tanh(now + self.onward(h))
        return self.head(h)


@program("RNN", "held", expect=("recomputed-weights",), also=("rnn-in-python",))
def weight_norm_rnn(fixed):
    """weight_norm computes the weight anew whenever it is read, here at each of 30 time steps. Fix: parametrize.cached() around the
    forward pass."""
    model = Reader(32, 256, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(64, torch.randn(1024, 30, 32), torch.randint(10, (1024,))):
        if fixed:
            with parametrize.cached():
                loss = F.cross_entropy(model(x), y)
        else:
            loss = F.cross_entropy(model(x), y)
        update(optimizer, loss)
        yield len(x)


@program("time series", "held", expect=("fp64-compute",))
def load_forecaster(fixed):
    """The series is read as float64, and the model was made double to fit. Fix: make the series float32, and leave the model so."""
    random.seed(0)
    series = torch.tensor([math.sin(i / 24) + random.gauss(0, 0.1) for i in range(6000)], dtype=torch.float64)
    windows = series.unfold(0, 192, 1)
    model = nn.Sequential(nn.Linear(168, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 24))
    if fixed:
        windows = windows.float()
    else:
        model = model.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    for (window,) in endless(256, windows[:5632]):
        past, future = window[:, :168], window[:, 168:]
        update(optimizer, F.l1_loss(model(past), future))
        yield len(window)


@program("language model", "held", period=4)
def good_language_model(fixed):
    """Fused attention and optimizer, clipped gradients, a schedule; every fourth step validates a batch without gradients."""
    model = Decoder(1000, 192, 2, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 100))
    kept = torch.randint(1000, (16, 64))

    def loss_of(tokens):
        return F.cross_entropy(model.head(model.hidden(tokens[:, :-1])[0]).flatten(0, 1), tokens[:, 1:].flatten())

    for number, (tokens,) in enumerate(endless(16, torch.randint(1000, (256, 64)))):
        loss = loss_of(tokens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if number % 4 == 3:
            with torch.inference_mode():
                print(number, loss.item(), loss_of(kept).item())
        yield len(tokens)


@program("time series", "held")
def good_forecaster(fixed):
    """Windows are views of the series, cast once; wide layers and a quantile loss."""
    series = torch.randn(20_000).cumsum(0)
    windows = ((series - series.mean()) / series.std()).unfold(0, 288, 1)
    model = mlp(240, 1024, 1024, 3 * 48)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    quantiles = torch.tensor([0.1, 0.5, 0.9]).view(3, 1)
    while True:
        chosen = windows[torch.randint(len(windows), (256,))]
        past, future = chosen.split((240, 48), 1)
        error = future[:, None] - model(past).view(-1, 3, 48)
        update(optimizer, torch.maximum(quantiles * error, (quantiles - 1) * error).mean())
        yield 256
