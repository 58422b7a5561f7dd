"""Twelve programs with the faults that every tuning guide warns of, each in an otherwise tidy training step."""

import contextlib
import itertools
import math
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from harness import program, scaled


def cycle(items):
    return itertools.cycle(items)


# ---------------------------------------------------------------------------------------------------------------------
# 1. contrastive learning, augmentation on the CPU

class TwoViews(Dataset):
    """Two random views (crop, flip, colour jitter, grey, blur) of a stored uint8 picture."""

    def __init__(self, images, out):
        self.images, self.out = images, out
        self.grey = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return len(self.images)

    def view(self, image):
        _, height, width = image.shape
        scale = math.sqrt(random.uniform(0.3, 1.0))
        h, w = max(4, int(height * scale)), max(4, int(width * scale))
        top, left = random.randint(0, height - h), random.randint(0, width - w)
        x = image[:, top:top + h, left:left + w].float().div_(255)
        x = F.interpolate(x[None], size=(self.out, self.out), mode="bilinear", align_corners=False, antialias=True)[0]
        if random.random() < 0.5:
            x = x.flip(-1)
        if random.random() < 0.8:
            x = (x * random.uniform(0.6, 1.4)).clamp_(0, 1)
            mean = (x * self.grey).sum(0).mean()
            x = torch.lerp(mean.expand_as(x), x, random.uniform(0.6, 1.4)).clamp_(0, 1)
            luma = (x * self.grey).sum(0, keepdim=True).expand_as(x)
            x = torch.lerp(luma, x, random.uniform(0.6, 1.4)).clamp_(0, 1)
        if random.random() < 0.2:
            x = (x * self.grey).sum(0, keepdim=True).expand(3, -1, -1)
        if random.random() < 0.5:
            sigma = random.uniform(0.1, 2.0)
            at = torch.arange(-4, 5, dtype=torch.float32)
            kernel = torch.exp(-at * at / (2 * sigma * sigma))
            kernel = (kernel / kernel.sum()).view(1, 1, 9, 1).expand(3, 1, 9, 1)
            x = F.conv2d(x[None], kernel, padding=(4, 0), groups=3)
            x = F.conv2d(x, kernel.transpose(2, 3), padding=(0, 4), groups=3)[0]
        return (x - self.mean) / self.std

    def __getitem__(self, index):
        image = self.images[index]
        return self.view(image), self.view(image)


class EndlessSampler(Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count).tolist()


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.down = None
        if stride != 1 or inside != outside:
            self.down = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.down is None else self.down(x)), inplace=True)


class SimCLR(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        inside = width
        for stage in range(4):
            for block in range(2):
                outside = width * 2 ** stage
                layers.append(BasicBlock(inside, outside, 2 if block == 0 and stage else 1))
                inside = outside
        self.trunk = nn.Sequential(*layers)
        self.project = nn.Sequential(nn.Linear(inside, inside), nn.ReLU(inplace=True), nn.Linear(inside, 128))

    def forward(self, x):
        return F.normalize(self.project(self.trunk(x).mean((2, 3))).float(), dim=1)


def nt_xent(z1, z2, temperature=0.2):
    z = torch.cat([z1, z2])
    n = z1.shape[0]
    logits = z @ z.t() / temperature
    logits.fill_diagonal_(float("-inf"))
    target = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(logits, target)


@program("the DataLoader augments in the main process (num_workers=0), the GPU waits for it; use 8 persistent workers", expect="sync-data-loading")
def simclr_main_process_loading(device, better, size):
    """SimCLR whose two views per picture are cropped, jittered and blurred on the CPU by the training process itself
    (num_workers=0), so each step waits for 96 augmentations. Fix: num_workers=8, persistent_workers, prefetch."""
    width, batch = scaled(64, size, 8, 8), scaled(48, size, 4)
    images = torch.randint(0, 256, (scaled(1024, size, 32), 3, 128, 128), dtype=torch.uint8)
    dataset = TwoViews(images, 96)
    workers = 0
    if better:
        workers = 8 if device.type == "cuda" else 2
    loader = DataLoader(dataset, batch_size=batch, sampler=EndlessSampler(len(dataset)), drop_last=True,
                        num_workers=workers, persistent_workers=workers > 0, prefetch_factor=4 if workers else None,
                        pin_memory=device.type == "cuda")
    batches = iter(loader)
    model = SimCLR(width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=device.type == "cuda")

    def step():
        torch.backends.cudnn.benchmark = True
        one, two = next(batches)
        x = torch.cat([one.to(device, non_blocking=True), two.to(device, non_blocking=True)])
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            z = model(x)
        z1, z2 = z.chunk(2)
        loss = nt_xent(z1, z2)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 2. U-Net on satellite tiles, host to device copies

class DoubleConv(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, bands, classes, base, depth=4):
        super().__init__()
        widths = [base * 2 ** i for i in range(depth + 1)]
        self.enter = DoubleConv(bands, widths[0])
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(list(zip(widths, widths[1:]))))
        self.merge = nn.ModuleList(DoubleConv(2 * a, a) for a in reversed(widths[:-1]))
        self.leave = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        x = self.enter(x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        return self.leave(x)


class DevicePrefetcher:
    """Copies the next batch on a stream of its own while the current one is trained on."""

    def __init__(self, source, device):
        self.source, self.device = source, device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.load()

    def load(self):
        tiles, labels = next(self.source)
        with torch.cuda.stream(self.stream) if self.stream is not None else contextlib.nullcontext():
            self.ready = tiles.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)

    def __next__(self):
        tiles, labels = self.ready
        if self.stream is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.stream)
            tiles.record_stream(current)
            labels.record_stream(current)
        self.load()
        return tiles, labels


class PlainFetcher:
    def __init__(self, source, device):
        self.source, self.device = source, device

    def __next__(self):
        tiles, labels = next(self.source)
        return tiles.to(self.device), labels.to(self.device)


@program("large batches are copied to the GPU from pageable memory, blocking; pin them and prefetch with non_blocking", expect="h2d-pageable h2d-blocking")
def unet_pageable_copies(device, better, size):
    """Land cover segmentation: 150 MB of 12-band tiles a step come by a blocking .to(device) from pageable memory, the
    GPU idles meanwhile. Fix: pinned batches, copied non_blocking on a second stream one batch ahead."""
    batch, side, base = scaled(12, size, 1), scaled(512, size, 32, 32), scaled(32, size, 8, 8)
    bands, classes = 12, 10
    stored = []
    for _ in range(4):
        tiles = torch.randn(batch, bands, side, side, device=device).cpu()
        labels = torch.randint(0, classes, (batch, side, side), dtype=torch.uint8, device=device).cpu()
        if better and device.type == "cuda":
            tiles, labels = tiles.pin_memory(), labels.pin_memory()
        stored.append((tiles, labels))
    batches = (DevicePrefetcher if better else PlainFetcher)(cycle(stored), device)
    model = UNet(bands, classes, base).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")

    def step():
        torch.backends.cudnn.benchmark = True
        tiles, labels = next(batches)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(tiles.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits.float(), labels.long())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 3. ViT with its own LayerNorm and GELU

class PlainLayerNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt(variance + self.eps) + self.bias


class NewGELU(nn.Module):
    """The tanh form of GELU."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class ViTBlock(nn.Module):
    def __init__(self, width, heads, norm, activation):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norm(width), norm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.act, self.fc2 = nn.Linear(width, 4 * width), activation(), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, side, patch, width, depth, heads, classes, norm, activation):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*[ViTBlock(width, heads, norm, activation) for _ in range(depth)])
        self.norm, self.head = norm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1).to(x.dtype), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def tanh_gelu():
    return nn.GELU(approximate="tanh")


@program("LayerNorm and GELU are written out as elementwise operations, many kernels each; use nn.LayerNorm and nn.GELU", expect="function-by-hand unfused-pointwise")
def vit_handwritten_norm_gelu(device, better, size):
    """ViT-S in bf16 autocast with LayerNorm and tanh-GELU written by hand: some ten memory-bound kernels each instead
    of one. Fix: nn.LayerNorm and nn.GELU(approximate="tanh")."""
    batch, side = scaled(112, size, 2), 224 if size >= 1 else 64
    width, depth, heads = (384, 12, 6) if size >= 1 else (64, 2, 2)
    norm = (lambda n: nn.LayerNorm(n, eps=1e-6)) if better else PlainLayerNorm
    model = ViT(side, 16, width, depth, heads, 1000, norm, tanh_gelu if better else NewGELU).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05, fused=device.type == "cuda")
    data = cycle([(torch.randn(batch, 3, side, side, device=device), torch.randint(0, 1000, (batch,), device=device))
                  for _ in range(4)])

    def step():
        images, labels = next(data)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 4. diffusion transformer

def modulate(x, shift, scale):
    return torch.addcmul(shift.unsqueeze(1), x, 1 + scale.unsqueeze(1))


class DiTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.ada = nn.Linear(width, 6 * width)

    def forward(self, x, c):
        b, n, w = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(F.silu(c)).chunk(6, 1)
        q, k, v = self.qkv(modulate(self.norm1(x), shift1, scale1)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, w)
        x = x + gate1.unsqueeze(1) * self.proj(y)
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self, channels, side, patch, width, depth, heads, classes):
        super().__init__()
        self.width = width
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.position = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.ConvTranspose2d(width, channels, patch, patch)
        half = width // 2
        self.register_buffer("frequencies", torch.exp(-math.log(10000.0) * torch.arange(half) / half))

    def forward(self, x, t, y):
        angle = t[:, None].float() * self.frequencies
        c = self.time(torch.cat([angle.cos(), angle.sin()], 1)) + self.label(y)
        x = self.embed(x)
        b, w, h, _ = x.shape
        x = x.flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x, c)
        return self.leave(self.norm(x).transpose(1, 2).reshape(b, w, h, h))


@program("the diffusion transformer trains in full float32; run its forward under bf16 autocast", expect="tensor-cores-idle tf32-off")
def dit_float32_training(device, better, size):
    """DiT-S/2 on 32x32 latents, noise prediction, all matrix products in float32 without TF32 (the default). Fix: bf16
    autocast around the forward, loss still in float32."""
    batch = scaled(64, size, 2)
    width, depth, heads, side = (384, 12, 6, 32) if size >= 1 else (64, 2, 2, 16)
    model = DiT(4, side, 2, width, depth, heads, 1000).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=device.type == "cuda")
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), 0)
    latents = cycle([(torch.randn(batch, 4, side, side, device=device), torch.randint(0, 1000, (batch,), device=device))
                     for _ in range(8)])

    def step():
        x0, label = next(latents)
        t = torch.randint(0, 1000, (batch,), device=device)
        noise = torch.randn_like(x0)
        a = alphas[t].view(-1, 1, 1, 1)
        noised = a.sqrt() * x0 + (1 - a).sqrt() * noise
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=better):
            predicted = model(noised, t, label)
        loss = F.mse_loss(predicted.float(), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 5. ResNet-50 with amp

class Bottleneck(nn.Module):
    def __init__(self, inside, middle, stride):
        super().__init__()
        outside = 4 * middle
        self.conv1, self.bn1 = nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv2, self.bn2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle)
        self.conv3, self.bn3 = nn.Conv2d(middle, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inside != outside:
            self.down = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.down is None else self.down(x)))


def resnet(width, blocks, classes):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            layers.append(Bottleneck(inside, width * 2 ** stage, 2 if stage and i == 0 else 1))
            inside = 4 * width * 2 ** stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


@program("the convnet runs in NCHW under amp, cuDNN transposes around its kernels; use memory_format=channels_last", expect="layout-transpose")
def resnet50_amp_nchw(device, better, size):
    """ResNet-50 in bf16 autocast with model and images in the default NCHW layout: tensor core convolutions need NHWC,
    so layouts are converted in each layer. Fix: model and input in torch.channels_last."""
    batch, side = scaled(128, size, 2), 192 if size >= 1 else 64
    layout = torch.channels_last if better else torch.contiguous_format
    model = resnet(scaled(64, size, 8, 8), (3, 4, 6, 3) if size >= 1 else (1, 1, 1, 1), 1000).to(device)
    model = model.to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    data = cycle([(torch.randn(batch, 3, side, side, device=device).contiguous(memory_format=layout),
                   torch.randint(0, 1000, (batch,), device=device)) for _ in range(4)])

    def step():
        torch.backends.cudnn.benchmark = True
        images, labels = next(data)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 6. hierarchical VAE

class VAEBlock(nn.Module):
    def __init__(self, inside, middle, outside, residual):
        super().__init__()
        self.residual = residual
        self.c1, self.c2 = nn.Conv2d(inside, middle, 1), nn.Conv2d(middle, middle, 3, padding=1)
        self.c3, self.c4 = nn.Conv2d(middle, middle, 3, padding=1), nn.Conv2d(middle, outside, 1)

    def forward(self, x):
        y = self.c1(F.gelu(x))
        y = self.c2(F.gelu(y))
        y = self.c3(F.gelu(y))
        y = self.c4(F.gelu(y))
        return x + y if self.residual else y


class TopDownBlock(nn.Module):
    def __init__(self, width, middle, latent):
        super().__init__()
        self.posterior = VAEBlock(2 * width, middle, 2 * latent, False)
        self.prior = VAEBlock(width, middle, 2 * latent + width, False)
        self.project = nn.Conv2d(latent, width, 1)
        self.out = VAEBlock(width, middle, width, True)
        self.latent = latent

    def forward(self, x, features):
        qm, qv = self.posterior(torch.cat([x, features], 1)).chunk(2, 1)
        pm, pv, extra = self.prior(x).split([self.latent, self.latent, x.shape[1]], 1)
        z = torch.addcmul(qm, qv.exp(), torch.randn_like(qm))
        kl = -0.5 + pv - qv + 0.5 * (torch.exp(2 * qv) + (qm - pm) ** 2) * torch.exp(-2 * pv)
        return self.out(x + extra + self.project(z)), kl.sum((1, 2, 3))


class HierarchicalVAE(nn.Module):
    """Bottom-up encoder and top-down decoder over 32, 16, 8 and 4 pixels."""

    def __init__(self, width, middle, latent, per_scale):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.encoder = nn.ModuleList(nn.ModuleList(VAEBlock(width, middle, width, True) for _ in range(per_scale + 1)) for _ in range(4))
        self.decoder = nn.ModuleList(nn.ModuleList(TopDownBlock(width, middle, latent) for _ in range(per_scale)) for _ in range(4))
        self.start = nn.Parameter(torch.zeros(1, width, 4, 4))
        self.leave = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        h, features = self.enter(x), []
        for scale, blocks in enumerate(self.encoder):
            if scale:
                h = F.avg_pool2d(h, 2)
            for block in blocks:
                h = block(h)
            features.append(h)
        h, kl = self.start.expand(x.shape[0], -1, -1, -1), 0.0
        for scale, blocks in enumerate(self.decoder):
            if scale:
                h = F.interpolate(h, scale_factor=2, mode="nearest")
            for block in blocks:
                h, more = block(h, features[3 - scale])
                kl = kl + more
        return self.leave(h), kl


@program("AdamW with foreach=False updates 450 small parameters one by one; use fused=True", expect="unfused-optimizer")
def hvae_forloop_optimizer(device, better, size):
    """Very deep VAE on 32x32 pictures with hundreds of small convolutions; AdamW(foreach=False) launches a dozen tiny
    kernels for each parameter. Fix: AdamW(fused=True)."""
    batch = scaled(48, size, 2)
    width, middle, per_scale = (96, 32, 3) if size >= 1 else (16, 8, 1)
    model = HierarchicalVAE(width, middle, 16 if size >= 1 else 4, per_scale).to(device)
    how = {"fused": device.type == "cuda"} if better else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.9), weight_decay=0.01, **how)
    data = cycle([torch.randn(batch, 3, 32, 32, device=device) for _ in range(8)])

    def step():
        x = next(data)
        mean, kl = model(x)
        distortion = F.mse_loss(mean, x, reduction="none").sum((1, 2, 3))
        loss = (distortion + kl).mean() / x[0].numel()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 7. GPT

class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(context, context, dtype=torch.bool)), persistent=False)

    def attend(self, q, k, v):
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~self.mask[:q.shape[2], :q.shape[2]], float("-inf"))
        weights = F.dropout(F.softmax(scores, dim=-1), self.dropout, self.training)
        return weights @ v

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, 2))
        return self.c_proj(self.attend(q, k, v).transpose(1, 2).reshape(b, t, c))


class FlashCausalSelfAttention(CausalSelfAttention):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)


class GPTBlock(nn.Module):
    def __init__(self, attention, width, heads, context, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = attention(width, heads, context, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, attention, vocabulary, context, width, depth, heads, dropout=0.1):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GPTBlock(attention, width, heads, context, dropout) for _ in range(depth))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


@program("causal attention is written by hand and stores the T x T matrices; use scaled_dot_product_attention(is_causal)", expect="attention-by-hand")
def gpt_manual_attention(device, better, size):
    """A small GPT with 2048 tokens of context whose attention makes scores, mask, softmax and dropout as full
    (B, H, T, T) tensors. Fix: F.scaled_dot_product_attention(is_causal=True), the flash kernel."""
    batch, context = scaled(4, size, 1), scaled(2048, size, 64, 8)
    width, depth, heads, vocabulary = (768, 6, 12, 16384) if size >= 1 else (64, 2, 2, 512)
    attention = FlashCausalSelfAttention if better else CausalSelfAttention
    model = GPT(attention, vocabulary, context, width, depth, heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    data = cycle([torch.randint(0, vocabulary, (batch, context + 1), device=device) for _ in range(8)])

    def step():
        tokens = next(data)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 8. masked language model

class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = self.ln1(x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)))
        return self.ln2(x + self.fc2(F.gelu(self.fc1(x))))


class MaskedLanguageModel(nn.Module):
    def __init__(self, vocabulary, context, width, depth, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.ln = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.dense, self.head_ln = nn.Linear(width, width), nn.LayerNorm(width)
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.ln(self.tokens(tokens) + self.positions.weight[:tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return self.decoder(self.head_ln(F.gelu(self.dense(x))))


@program("the vocabulary of 50265 is no multiple of 8, so the bf16 output products miss the fast kernels; pad to 50304", expect="tc-misaligned-dims")
def mlm_unpadded_vocabulary(device, better, size):
    """DistilRoBERTa-sized masked language model in bf16 autocast; its tied output layer has 50265 columns, so every row
    of the logits is unaligned and cuBLAS falls back to slow kernels. Fix: pad the vocabulary to 50304 (times 64)."""
    vocabulary = 50265 if size >= 1 else 1001
    padded = -(-vocabulary // 64) * 64 if better else vocabulary
    batch, context = scaled(32, size, 2), scaled(256, size, 16, 8)
    width, depth, heads = (768, 6, 12) if size >= 1 else (64, 2, 2)
    model = MaskedLanguageModel(padded, context, width, depth, heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=device.type == "cuda")
    mask_token, data = vocabulary - 1, []
    for _ in range(8):
        tokens = torch.randint(0, vocabulary - 1, (batch, context), device=device)
        chosen = torch.rand(batch, context, device=device) < 0.15
        data.append((tokens.masked_fill(chosen, mask_token), tokens.masked_fill(~chosen, -100)))
    data = cycle(data)

    def step():
        tokens, labels = next(data)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.view(-1, padded), labels.view(-1), ignore_index=-100)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 9. recurrent forecaster

class CellForecaster(nn.Module):
    def __init__(self, features, hidden, horizon):
        super().__init__()
        self.cell1, self.cell2 = nn.GRUCell(features, hidden), nn.GRUCell(hidden, hidden)
        self.hidden = hidden
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, horizon))

    def encode(self, x):
        h1 = x.new_zeros(x.shape[0], self.hidden)
        h2 = x.new_zeros(x.shape[0], self.hidden)
        outputs = []
        for t in range(x.shape[1]):
            h1 = self.cell1(x[:, t], h1)
            h2 = self.cell2(h1, h2)
            outputs.append(h2)
        return torch.stack(outputs, 1)

    def forward(self, x):
        return self.head(self.encode(x))


class GRUForecaster(nn.Module):
    def __init__(self, features, hidden, horizon):
        super().__init__()
        self.gru = nn.GRU(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, horizon))

    def forward(self, x):
        return self.head(self.gru(x)[0])


@program("a Python loop over the time steps calls two GRUCells, thousands of small kernels; use nn.GRU (cuDNN)", expect="rnn-in-python")
def forecaster_gru_cell_loop(device, better, size):
    """Load forecasting with a two-layer GRU over 96 quarter hours, written as a loop over GRUCell. Fix: nn.GRU with
    num_layers=2, the same mathematics in cuDNN's fused sequence kernels."""
    batch, hidden, length = scaled(256, size, 4), scaled(512, size, 16, 8), scaled(96, size, 8)
    features, horizon = 32, 24
    model = (GRUForecaster if better else CellForecaster)(features, hidden, horizon).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    data = cycle([(torch.randn(batch, length, features, device=device), torch.randn(batch, length, horizon, device=device))
                  for _ in range(8)])

    def step():
        torch.backends.cuda.matmul.allow_tf32 = True
        series, future = next(data)
        loss = F.smooth_l1_loss(model(series), future)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 10. relational graph network

class RelationalGraph:
    """A static knowledge graph on the device: edges with a relation each, normalised by in-degree."""

    def __init__(self, nodes, edges, relations, device):
        self.nodes, self.relations = nodes, relations
        self.source = torch.randint(0, nodes, (edges,), device=device)
        self.target = torch.randint(0, nodes, (edges,), device=device)
        self.kind = torch.randint(0, relations, (edges,), device=device)
        degree = torch.bincount(self.target, minlength=nodes).clamp(min=1)
        self.norm = (1.0 / degree[self.target]).unsqueeze(1)

    def edges_of(self, relation):
        mask = self.kind == relation
        return self.source[mask], self.target[mask], self.norm[mask]


class SplitRelationalGraph(RelationalGraph):
    """Keeps the edges of each relation apart, split once."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.split = [RelationalGraph.edges_of(self, relation) for relation in range(self.relations)]

    def edges_of(self, relation):
        return self.split[relation]


class RGCNLayer(nn.Module):
    def __init__(self, inside, outside, relations):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(relations, inside, outside) / math.sqrt(inside))
        self.loop = nn.Linear(inside, outside)

    def forward(self, h, graph):
        out = self.loop(h)
        for relation, weight in enumerate(self.weight.unbind(0)):
            source, target, norm = graph.edges_of(relation)
            message = (h.index_select(0, source) @ weight) * norm
            out = out.index_add(0, target, message) if relation == 0 else out.index_add_(0, target, message)
        return out


class RGCN(nn.Module):
    def __init__(self, nodes, width, classes, relations, depth):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(nodes, width) * 0.1)
        self.layers = nn.ModuleList(RGCNLayer(width, width, relations) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, graph):
        h = self.embed
        for layer in self.layers:
            h = F.relu(layer(h, graph))
        return self.head(h)


@program("edges are picked by boolean mask per relation in every layer, each pick synchronises; split the edges once", expect="boolean-mask host-sync")
def rgcn_boolean_masks(device, better, size):
    """Entity classification by an R-GCN over a static graph with 24 relations; source[mask], target[mask], norm[mask] in
    each layer need nonzero() and so wait for the GPU. Fix: split the edges by relation once, before training."""
    nodes, edges = scaled(8000, size, 100), scaled(80000, size, 1000)
    relations, depth, width = (24, 3, 64) if size >= 1 else (4, 2, 16)
    graph = (SplitRelationalGraph if better else RelationalGraph)(nodes, edges, relations, device)
    model = RGCN(nodes, width, 11, relations, depth).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4, fused=device.type == "cuda")
    labels = torch.randint(0, 11, (nodes,), device=device)

    def step():
        loss = F.cross_entropy(model(graph), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 11. DQN with a replay memory

class QNetwork(nn.Module):
    def __init__(self, actions, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, width, 8, 4), nn.ReLU(inplace=True), nn.Conv2d(width, 2 * width, 4, 2), nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, 1), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Linear(2 * width * 49, 16 * width), nn.ReLU(inplace=True), nn.Linear(16 * width, actions))

    def forward(self, frames):
        return self.body(frames.float() / 255)


class ReplayMemory:
    """Transitions (state, action, reward, next state, done) as one tuple each in a deque."""

    def __init__(self, capacity, device):
        self.memory, self.device = deque(maxlen=capacity), device

    def fill(self, states, actions, rewards, dones):
        frames = [state.clone() for state in states.cpu()]
        rows = zip(frames, actions.tolist(), rewards.tolist(), frames[1:] + frames[:1], dones.tolist())
        self.memory.extend(rows)

    def sample(self, batch):
        state, action, reward, next_state, done = zip(*random.sample(self.memory, batch))
        return (torch.stack(state).to(self.device), torch.tensor(action).to(self.device),
                torch.tensor(reward).to(self.device), torch.stack(next_state).to(self.device),
                torch.tensor(done, dtype=torch.float32).to(self.device))


class DeviceReplayMemory:
    """The same transitions in preallocated tensors on the device."""

    def __init__(self, capacity, device):
        self.capacity, self.device = capacity, device
        self.state = torch.empty(capacity, 4, 84, 84, dtype=torch.uint8, device=device)
        self.action = torch.empty(capacity, dtype=torch.long, device=device)
        self.reward, self.done = torch.empty(capacity, device=device), torch.empty(capacity, device=device)

    def fill(self, states, actions, rewards, dones):
        self.state.copy_(states)
        self.action.copy_(actions)
        self.reward.copy_(rewards)
        self.done.copy_(dones)

    def sample(self, batch):
        rows = torch.randint(0, self.capacity, (batch,), device=self.device)
        return self.state[rows], self.action[rows], self.reward[rows], self.state[(rows + 1) % self.capacity], self.done[rows]


@program("each DQN batch is stacked from Python tuples on the CPU and then copied; keep the replay memory on the GPU", expect="sync-data-loading host-created-tensor host-copy-on-convert")
def dqn_replay_from_python(device, better, size):
    """Double DQN on 4x84x84 frames: 512 transitions a step are sampled from a deque, stacked on the CPU and sent with
    .to(device). Fix: replay memory as preallocated tensors on the GPU, indexed there."""
    capacity, batch, actions = scaled(6000, size, 64), scaled(512, size, 8), 18
    memory = (DeviceReplayMemory if better else ReplayMemory)(capacity, device)
    memory.fill(torch.randint(0, 256, (capacity, 4, 84, 84), dtype=torch.uint8, device=device),
                torch.randint(0, actions, (capacity,), device=device), torch.randn(capacity, device=device),
                (torch.rand(capacity, device=device) < 0.01).float())
    width = scaled(32, size, 4, 4)
    online, target = QNetwork(actions, width).to(device), QNetwork(actions, width).to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=6.25e-5, eps=1.5e-4, fused=device.type == "cuda")

    def step():
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        state, action, reward, next_state, done = memory.sample(batch)
        with torch.no_grad():
            best = online(next_state).argmax(1, keepdim=True)
            goal = reward + 0.99 * (1 - done) * target(next_state).gather(1, best).squeeze(1)
        value = online(state).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), 0.005)
        return loss.detach()
    return step


# ---------------------------------------------------------------------------------------------------------------------
# 12. GAN

class Generator(nn.Module):
    def __init__(self, noise, width):
        super().__init__()
        layers, inside = [nn.ConvTranspose2d(noise, 16 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(16 * width), nn.ReLU(True)], 16 * width
        for factor in (8, 4, 2, 1):
            layers += [nn.ConvTranspose2d(inside, factor * width, 4, 2, 1, bias=False), nn.BatchNorm2d(factor * width), nn.ReLU(True)]
            inside = factor * width
        self.net = nn.Sequential(*layers, nn.ConvTranspose2d(inside, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers, inside = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2, True)], width
        for factor in (2, 4, 8, 16):
            layers += [nn.Conv2d(inside, factor * width, 4, 2, 1, bias=False), nn.BatchNorm2d(factor * width), nn.LeakyReLU(0.2, True)]
            inside = factor * width
        self.net = nn.Sequential(*layers, nn.Conv2d(inside, 1, 4, 1, 0))

    def forward(self, x):
        return self.net(x).flatten()


def free_memory(device):
    if device.type == "cuda":
        torch.cuda.empty_cache()


@program("torch.cuda.empty_cache() after both updates of every step: each step frees and allocates anew; leave it out", expect="allocator-churn")
def gan_empty_cache_each_step(device, better, size):
    """DCGAN at 128x128 with hinge loss; "to save memory" the cache is emptied after the discriminator's and after the
    generator's update, so every step waits, cudaFrees and cudaMallocs all its activations. Fix: no empty_cache."""
    batch, width, noise = scaled(128, size, 2), scaled(48, size, 4, 4), 128
    generator, discriminator = Generator(noise, width).to(device), Discriminator(width).to(device)
    fused = device.type == "cuda"
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=fused)
    opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=fused)
    data = cycle([torch.rand(batch, 3, 128, 128, device=device) * 2 - 1 for _ in range(4)])

    def step():
        torch.backends.cudnn.benchmark = True
        real = next(data)
        with torch.no_grad():
            fake = generator(torch.randn(batch, noise, device=device))
        loss_d = F.relu(1 - discriminator(real)).mean() + F.relu(1 + discriminator(fake)).mean()
        opt_d.zero_grad(set_to_none=True)
        loss_d.backward()
        opt_d.step()
        if not better:
            free_memory(device)
        discriminator.requires_grad_(False)
        loss_g = -discriminator(generator(torch.randn(batch, noise, device=device))).mean()
        opt_g.zero_grad(set_to_none=True)
        loss_g.backward()
        opt_g.step()
        discriminator.requires_grad_(True)
        if not better:
            free_memory(device)
        return loss_d.detach(), loss_g.detach()
    return step
