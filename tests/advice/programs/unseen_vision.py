"""Images, written without knowledge of the rules: segmentation, distillation, moving averages of weights, and two good ones."""

import math

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F

LOOP = ("unbatched-loop", "launch-bound", "python-between-ops")  # fewer and larger ops, or less Python between them


def convs(inputs, outputs):
    """Two convolutions, as in each level of a U-Net."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    """Two levels with a skip connection."""
    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.down, self.middle, self.up = convs(inputs, width), convs(width, 2 * width), convs(3 * width, width)
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, x):
        skip = self.down(x)
        low = F.interpolate(self.middle(F.max_pool2d(skip, 2)), scale_factor=2)
        return self.head(self.up(torch.cat([skip, low], 1)))


@program("segmentation", "held", expect=LOOP)
def unet_dice_loop(fixed):
    """The Dice loss goes over samples and classes in two loops. Fix: sums over the last two dimensions."""
    model = UNet(3, 8, 8).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    for x, y in endless(16, images, torch.randint(8, (128, 32, 32))):
        share, truth = model(x).softmax(1), F.one_hot(y, 8).movedim(-1, 1).float()
        if fixed:
            both, each = (share * truth).sum((2, 3)), share.sum((2, 3)) + truth.sum((2, 3))
            loss = (1 - (2 * both + 1) / (each + 1)).mean()
        else:
            loss = 0
            for i in range(len(x)):
                for c in range(8):
                    both = (share[i, c] * truth[i, c]).sum()
                    loss += 1 - (2 * both + 1) / (share[i, c].sum() + truth[i, c].sum() + 1)
            loss = loss / (len(x) * 8)
        update(optimizer, loss)
        yield len(x)


@program("distillation", "held", expect=("unread-gradients", "grad-in-validation"))
def distill_teacher_grad(fixed):
    """The student's loss also runs backward through the teacher, whose gradients nobody uses. Fix: torch.no_grad()."""
    teacher, student = mlp(256, 1024, 1024, 100).eval(), mlp(256, 512, 100)
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3, fused=True)
    for x, y in endless(256, torch.randn(4096, 256), torch.randint(100, (4096,))):
        with torch.set_grad_enabled(not fixed):
            soft = F.softmax(teacher(x) / 4, -1)
        logits = student(x)
        soft_loss = F.kl_div(F.log_softmax(logits / 4, -1), soft, reduction="batchmean")
        update(optimizer, F.cross_entropy(logits, y) + 16 * soft_loss)
        yield len(x)


@program("exponential moving average", "held", expect=("work-between-steps", "unfused-pointwise", "unbatched-loop"), also=("small-batch",))
def ema_new_tensors(fixed):
    """The moving average of 9 million weights makes three new tensors of each. Fix: one lerp in place."""
    model, average = mlp(512, 2048, 2048, 2048), mlp(512, 2048, 2048, 2048)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(32, torch.randn(2048, 512), torch.randint(2048, (2048,))):
        update(optimizer, F.cross_entropy(model(x), y))
        with torch.no_grad():
            if fixed:
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
            else:
                new, old = model.state_dict(), average.state_dict()
                for key in old:
                    old[key] = 0.999 * old[key] + 0.001 * new[key]
                average.load_state_dict(old)
        yield len(x)


@program("diffusion", "held")
def good_diffusion(fixed):
    """A small denoiser in channels_last; the noise schedule is made once."""
    model = UNet(4, 3, 32).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    kept = torch.cos(torch.linspace(0, math.pi / 2, 1000)) ** 2
    images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    for x, in endless(16, images):
        time = torch.randint(1000, (len(x),))
        noise, share = torch.randn_like(x), kept[time].view(-1, 1, 1, 1)
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        when = (time / 1000).view(-1, 1, 1, 1).expand(-1, 1, 32, 32)
        guess = model(torch.cat([noisy, when], 1).contiguous(memory_format=torch.channels_last))
        update(optimizer, F.mse_loss(guess, noise))
        yield len(x)


@program("VAE", "held")
def good_vae(fixed):
    """Large matrices, one sample of the latent per image, a fused optimizer."""
    encoder, decoder = mlp(784, 512, 64), mlp(32, 512, 784)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, fused=True)
    for x, in endless(1024, torch.rand(8192, 784)):
        mean, log_variance = encoder(x).chunk(2, 1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean ** 2 - log_variance.exp()).sum()
        fit = F.binary_cross_entropy_with_logits(decoder(latent), x, reduction="sum")
        update(optimizer, (fit + divergence) / len(x))
        yield len(x)
