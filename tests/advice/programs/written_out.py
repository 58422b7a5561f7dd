"""Functions written out in single ops, slow types, and rows shuffled for one batch."""

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F


class Normalisation(nn.Module):
    """(x - mean) / sqrt(variance) over some dimensions, as papers write it."""
    def __init__(self, over, *shape):
        super().__init__()
        self.over, self.scale, self.shift = over, nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        mean = x.mean(self.over, keepdim=True)
        variance = (x - mean).pow(2).mean(self.over, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.scale + self.shift


@program("CNN", "tune", expect=("function-by-hand",))
def batch_norm_by_hand(fixed):
    """Batch normalisation in ten ops that each pass over the pictures. Fix: nn.BatchNorm2d."""
    def norm(width):
        return nn.BatchNorm2d(width) if fixed else Normalisation((0, 2, 3), 1, width, 1, 1)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), norm(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), norm(64), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    images = torch.randn(320, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    for x, y in endless(16, images, torch.randint(10, (320,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


class Block(nn.Module):
    """A Transformer's layer."""
    def __init__(self, width, norm):
        super().__init__()
        self.first, self.qkv, self.out = norm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.second, self.feed = norm(width), nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(2, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed(self.second(x))


@program("Transformer", "tune", expect=("function-by-hand",))
def layer_norm_by_hand(fixed):
    """Layer normalisation in ten ops. Fix: nn.LayerNorm."""
    norm = nn.LayerNorm if fixed else lambda width: Normalisation(-1, width)
    body = nn.Sequential(*[Block(128, norm) for _ in range(3)])
    embed, head = nn.Embedding(500, 128), nn.Linear(128, 500)
    optimizer = torch.optim.AdamW([*embed.parameters(), *body.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for tokens, in endless(16, torch.randint(500, (640, 65))):
        logits = head(body(embed(tokens[:, :-1])))
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
        yield len(tokens)


@program("MLP", "tune", expect=("function-by-hand",))
def gelu_by_hand(fixed):
    """The formula of GELU in eight ops. Fix: F.gelu."""
    class Gelu(nn.Module):
        def forward(self, x):
            if fixed:
                return F.gelu(x, approximate="tanh")
            return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x.pow(3))))
    model = nn.Sequential(nn.Linear(64, 512), Gelu(), nn.Linear(512, 512), Gelu(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(256, torch.randn(2560, 64), torch.randint(10, (2560,))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("language model", "tune", expect=("function-by-hand",))
def cross_entropy_by_hand(fixed):
    """The loss from exponentials, their sum, a logarithm and one-hot labels. Fix: F.cross_entropy."""
    words, width = 4000, 64
    embed, body, head = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, words)
    optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters(), *body.parameters()], lr=1e-3, fused=True)
    for tokens, in endless(8, torch.randint(words, (320, 33))):
        logits, target = head(body(embed(tokens[:, :-1]))[0]).flatten(0, 1), tokens[:, 1:].flatten()
        if fixed:
            loss = F.cross_entropy(logits, target)
        else:
            chance = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
            loss = -(torch.log(chance + 1e-9) * F.one_hot(target, words).float()).sum(1).mean()
        update(optimizer, loss)
        yield len(tokens)


@program("text classifier", "tune", expect=("function-by-hand",))
def embedding_mean(fixed):
    """All words of a text are looked up, and then only their mean is read. Fix: nn.EmbeddingBag."""
    table = nn.EmbeddingBag(20_000, 128, mode="mean") if fixed else nn.Embedding(20_000, 128)
    head = mlp(128, 128, 5)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1, fused=True)
    for words, y in endless(128, torch.randint(20_000, (2560, 100)), torch.randint(5, (2560,))):
        update(optimizer, F.cross_entropy(head(table(words) if fixed else table(words).mean(1)), y))
        yield len(words)


@program("MLP", "tune", expect=("slow-half-products",))
def half_on_cpu(fixed):
    """float16 on a CPU without instructions for it. Fix: float32."""
    dtype = torch.float32 if fixed else torch.float16
    model = mlp(256, 1024, 1024, 10).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for x, y in endless(64, torch.randn(1280, 256).to(dtype), torch.randint(10, (1280,))):
        update(optimizer, F.cross_entropy(model(x).float(), y))
        yield len(x)


@program("MLP on a table", "tune", expect=("late-selection",))
def shuffled_for_one_batch(fixed):
    """Each step shuffles the numbers of all rows and takes the first ones. Fix: random numbers, as many as are needed."""
    x, y = torch.randn(500_000, 32), torch.randint(10, (500_000,))
    model = mlp(32, 256, 256, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        rows = torch.randint(len(x), (256,)) if fixed else torch.randperm(len(x))[:256]
        update(optimizer, F.cross_entropy(model(x[rows]), y[rows]))
        yield len(rows)
