"""The third blind set, first part: GAN, audio, vision, diffusion, metric learning; two in which nothing is wrong."""

import copy

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F


@program("GAN", "held", expect=("unread-gradients",))
def claims_gan(fixed):
    """The critic's loss is backpropagated through the generator as well, whose gradients are then zeroed before its own update.
    Fix: generate the fakes of the critic's update under no_grad."""
    generator, critic = mlp(64, 768, 768, 96), mlp(96, 128, 1)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    d_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    for (real,) in endless(256, torch.randn(4096, 96)):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        with torch.set_grad_enabled(not fixed):
            fake = generator(torch.randn(len(real), 64))
        d_loss = (F.binary_cross_entropy_with_logits(critic(real), ones) +
                  F.binary_cross_entropy_with_logits(critic(fake), zeros))
        update(d_optimizer, d_loss)

        fake = generator(torch.randn(len(real), 64))
        update(g_optimizer, F.binary_cross_entropy_with_logits(critic(fake), ones))
        yield len(real)


def reverberate(waves, responses):
    """Every wave convolved with a room of its own."""
    padded = F.pad(waves, (responses.shape[1] - 1, 0))
    return F.conv1d(padded[None], responses.flip(1)[:, None], groups=len(waves))[0]


def reverberate_fft(waves, responses):
    size = 9000  # at least the sum of both lengths; 8,999, which would do, is a prime
    return torch.fft.irfft(torch.fft.rfft(waves, size) * torch.fft.rfft(responses, size), size)[:, :waves.shape[1]]


@program("audio", "held", expect=("direct-convolution",))
def keyword_spotter(fixed):
    """Augments with room impulse responses of 1,000 taps by a direct convolution in the time domain.
    Fix: multiply the spectra (FFT), of a length without large prime factors."""
    model = nn.Sequential(nn.Conv1d(1, 32, 64, 16), nn.ReLU(), nn.Conv1d(32, 64, 9, 2, 4), nn.ReLU(),
                          nn.Conv1d(64, 64, 9, 2, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    rooms = torch.randn(50, 1000) * torch.exp(-torch.arange(1000) / 150)
    rooms /= rooms.norm(dim=1, keepdim=True)
    for waves, y in endless(32, torch.randn(512, 8000), torch.randint(12, (512,))):
        chosen = rooms[torch.randint(len(rooms), (len(waves),))]
        waves = reverberate_fft(waves, chosen) if fixed else reverberate(waves, chosen)
        update(optimizer, F.cross_entropy(model(waves[:, None]), y))
        yield len(waves)


@program("checkpoint", "held", expect=("logging-checkpoint-stall",), period=5)
def preview_cnn(fixed):
    """Saves four images of the batch for a viewer every fifth step; they are a view of the data set's tensor, and torch.save writes
    the whole storage behind a view. Fix: clone what is saved."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    images = torch.rand(4096, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    for number, (x, y) in enumerate(endless(128, images, torch.randint(10, (4096,)))):
        logits = model(x)
        update(optimizer, F.cross_entropy(logits, y))
        if number % 5 == 4:
            shown = x[:4].clone() if fixed else x[:4]
            torch.save({"step": number, "images": shown, "logits": logits[:4].detach().clone()}, "preview.pt")
        yield len(x)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.body = nn.Embedding(1000, 512), mlp(256 + 512, 1024, 1024, 256)

    def forward(self, x, t):
        return self.body(torch.cat((x, self.time(t)), 1))


@program("diffusion", "held", expect=("work-between-steps",))
def latent_diffusion(fixed):
    """Keeps the moving average of the weights by computing a new state dict and loading it at every step: temporaries and copies of
    all the weights. Fix: update the averages in place."""
    model = Denoiser()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    for (x,) in endless(128, torch.randn(2048, 256)):
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        a = kept[t][:, None]
        update(optimizer, F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise))
        with torch.no_grad():
            if fixed:
                torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - 0.999)
            else:
                old, new = ema.state_dict(), model.state_dict()
                ema.load_state_dict({k: 0.999 * old[k] + (1 - 0.999) * new[k] for k in old})
        yield len(x)


@program("metric learning", "held", expect=("broadcast-contraction",))
def product_embeddings(fixed):
    """All pairs' similarities by F.cosine_similarity of two broadcast tensors, which makes batch x batch x width temporaries.
    Fix: normalize the embeddings, and multiply the matrices."""
    model = mlp(256, 512, 128)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    for x, y in endless(160, torch.randn(3200, 256), torch.randint(40, (3200,))):
        z = model(x)
        if fixed:
            z = F.normalize(z, dim=1)
            logits = z @ z.T / 0.1
        else:
            logits = F.cosine_similarity(z[:, None], z[None], dim=-1) / 0.1
        self_pair = torch.eye(len(x), dtype=torch.bool)
        positive = (y[:, None] == y) & ~self_pair
        log_p = logits.masked_fill(self_pair, -1e9).log_softmax(1)
        loss = -(log_p * positive).sum(1) / positive.sum(1).clamp(min=1)
        update(optimizer, loss.mean())
        yield len(x)


@program("crops", "held", expect=("late-selection",), also=("sync-data-loading",))
def aerial_cnn(fixed):
    """Scales, gamma-corrects and normalizes whole images, and only then crops what the network sees. Fix: crop first."""
    model = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 8)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    mean, std = torch.tensor([0.48, 0.46, 0.41]).view(3, 1, 1), torch.tensor([0.23, 0.22, 0.22]).view(3, 1, 1)
    images = torch.randint(256, (128, 3, 160, 160), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    for x, y in endless(16, images, torch.randint(8, (128,))):
        top, left = torch.randint(160 - 64, (2,)).tolist()
        gamma = torch.empty(len(x), 1, 1, 1).uniform_(0.8, 1.2)
        if fixed:
            x = x[:, :, top:top + 64, left:left + 64]
        x = ((x.float() / 255).pow(gamma) - mean) / std
        if not fixed:
            x = x[:, :, top:top + 64, left:left + 64]
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("diffusion", "held")
def good_denoiser(fixed):
    """A denoiser of large matrices; the moving average of the weights is updated in place."""
    model = mlp(256 + 128, 1024, 1024, 256)
    ema = copy.deepcopy(model).requires_grad_(False)
    time = nn.Embedding(1000, 128)
    optimizer = torch.optim.Adam([*model.parameters(), *time.parameters()], lr=1e-4, fused=True)
    averaged, current = list(ema.parameters()), list(model.parameters())
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    for (x,) in endless(512, torch.randn(4096, 256)):
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        a = kept[t][:, None]
        noised = a.sqrt() * x + (1 - a).sqrt() * noise
        update(optimizer, F.mse_loss(model(torch.cat((noised, time(t)), 1)), noise))
        with torch.no_grad():
            torch._foreach_lerp_(averaged, current, 0.001)
        yield len(x)


@program("contrastive", "held")
def good_two_views(fixed):
    """Two noisy views in one batch, all similarities by one product of matrices."""
    encoder = mlp(256, 1024, 1024, 128)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-4, fused=True)
    for (x,) in endless(256, torch.randn(4096, 256)):
        views = torch.cat((x, x)) + 0.1 * torch.randn(2 * len(x), 256)
        first, second = F.normalize(encoder(views), dim=1).chunk(2)
        logits, own = first @ second.T / 0.1, torch.arange(len(x))
        update(optimizer, (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2)
        yield len(x)
