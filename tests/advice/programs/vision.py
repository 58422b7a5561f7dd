"""Images: convolutions, a GAN, a vision transformer."""

import torch
from harness import endless, program, update
from torch import nn
from torch.nn import functional as F


def block(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


@program("CNN", "tune", expect=("layout-transpose",), knob=("memory_format", "channels_last"))
def channels_first(fixed, _):
    """A network of 1x1 and 3x3 convolutions in the default layout. Fix: channels_last."""
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = nn.Sequential(block(3, 32), block(32, 64, 2), nn.Conv2d(64, 32, 1), block(32, 64), nn.Conv2d(64, 32, 1),
                          block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(16, torch.randn(128, 3, 32, 32), torch.randint(10, (128,))):
        update(optimizer, F.cross_entropy(model(x.contiguous(memory_format=layout)), y))
        yield len(x)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(block(channels, channels), block(channels, channels))

    def forward(self, x):
        return x + self.body(x)


@program("GAN", "held", expect=("unfused-optimizer",), also=("launch-bound", "small-batch"))
def gan_adam_loop(fixed):
    """Both optimizers update parameters one by one, the default on a CPU. Fix: fused=True."""
    maker = nn.Sequential(nn.Linear(32, 1024), nn.Unflatten(1, (16, 8, 8)), *(Residual(16) for _ in range(9)),
                          nn.Conv2d(16, 3, 3, padding=1), nn.Tanh())
    critic = nn.Sequential(block(3, 16), *(Residual(16) for _ in range(9)), nn.Flatten(), nn.Linear(1024, 1))
    maker_opt, critic_opt = (torch.optim.Adam(net.parameters(), lr=1e-4, fused=fixed) for net in (maker, critic))
    ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
    for (real,) in endless(16, torch.rand(128, 3, 8, 8)):
        fake = maker(torch.randn(16, 32))
        update(critic_opt, F.binary_cross_entropy_with_logits(critic(real), ones)
               + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros))
        update(maker_opt, F.binary_cross_entropy_with_logits(critic(fake), ones))
        yield 16


class Attention(nn.Module):
    def __init__(self, width, heads, by_hand):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.by_hand = heads, by_hand

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.by_hand:
            weights = torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1)
            mixed = weights @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


@program("vision transformer", "held", expect=("attention-by-hand",))
def vit_by_hand(fixed):
    """Attention over 256 patches as matmul, softmax, matmul. Fix: scaled_dot_product_attention."""
    model = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.Flatten(2), nn.Unflatten(2, (1, 256)))
    layers = nn.Sequential(*(nn.Sequential(nn.LayerNorm(64), Attention(64, 4, not fixed)) for _ in range(2)))
    head = nn.Linear(64, 10)
    optimizer = torch.optim.AdamW([*model.parameters(), *layers.parameters(), *head.parameters()], lr=1e-4, fused=True)
    for x, y in endless(8, torch.randn(64, 3, 64, 64), torch.randint(10, (64,))):
        tokens = model(x)[:, :, 0].transpose(1, 2)
        update(optimizer, F.cross_entropy(head(layers(tokens).mean(1)), y))
        yield len(x)
