"""Twelve programs with faults that real code bases have and no guide lists in one line."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from harness import program, scaled


def adamw(parameters, device, lr=1e-4):
    return torch.optim.AdamW(parameters, lr=lr, fused=device.type == "cuda")


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, feed_forward=None):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.feed_forward = feed_forward or nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


# ---------------------------------------------------------------- detection

class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class SmallRetina(nn.Module):
    def __init__(self, classes, per_cell, width):
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.c3 = ConvBlock(width, 2 * width, 2)
        self.c4 = ConvBlock(2 * width, 4 * width, 2)
        self.c5 = ConvBlock(4 * width, 8 * width, 2)
        self.lateral = nn.ModuleList([nn.Conv2d(w * width, 2 * width, 1) for w in (2, 4, 8)])
        tower = lambda out: nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU(), nn.Conv2d(2 * width, out, 3, 1, 1))
        self.cls_head, self.box_head = tower(per_cell * classes), tower(per_cell * 4)

    def forward(self, images):
        c3 = self.c3(self.stem(images))
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        p5 = self.lateral[2](c5)
        p4 = self.lateral[1](c4) + F.interpolate(p5, scale_factor=2.0)
        p3 = self.lateral[0](c3) + F.interpolate(p4, scale_factor=2.0)
        logits, deltas = [], []
        for p in (p3, p4, p5):
            b = p.shape[0]
            logits.append(self.cls_head(p).permute(0, 2, 3, 1).reshape(b, -1, self.classes))
            deltas.append(self.box_head(p).permute(0, 2, 3, 1).reshape(b, -1, 4))
        return torch.cat(logits, 1), torch.cat(deltas, 1)


def make_anchors(image, device):
    anchors = []
    for stride in (8, 16, 32):
        at = (torch.arange(image // stride, device=device) + 0.5) * stride
        y, x = torch.meshgrid(at, at, indexing="ij")
        shapes = [(stride * 3 * s * r ** 0.5, stride * 3 * s / r ** 0.5) for s in (1.0, 1.26, 1.59) for r in (0.5, 1.0, 2.0)]
        wh = torch.tensor(shapes, device=device)
        centre = torch.stack((x, y), -1).reshape(-1, 1, 2)
        anchors.append(torch.cat((centre - wh / 2, centre + wh / 2), -1).reshape(-1, 4))
    return torch.cat(anchors)


def box_iou(a, b):
    """a (A, 4), b (..., M, 4) -> (..., A, M)"""
    b = b.unsqueeze(-3)
    a = a.unsqueeze(1)
    low = torch.maximum(a[..., :2], b[..., :2])
    high = torch.minimum(a[..., 2:], b[..., 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area_a = (a[..., 2:] - a[..., :2]).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)
    return inter / (area_a + area_b - inter).clamp(min=1e-6)


def encode_boxes(anchors, boxes):
    size_a = anchors[..., 2:] - anchors[..., :2]
    size_b = (boxes[..., 2:] - boxes[..., :2]).clamp(min=1.0)
    shift = ((boxes[..., :2] + boxes[..., 2:]) - (anchors[..., :2] + anchors[..., 2:])) / 2 / size_a
    return torch.cat((shift, torch.log(size_b / size_a)), -1)


def assign_targets(anchors, boxes, labels):
    """boxes (..., M, 4), labels (..., M): class of every anchor (0 background, -1 ignored) and its box deltas."""
    best, which = box_iou(anchors, boxes).max(-1)
    positive = best >= 0.5
    classes = torch.where(positive, torch.gather(labels, -1, which) + 1, torch.zeros_like(which))
    classes = torch.where((best >= 0.4) & ~positive, torch.full_like(which, -1), classes)
    matched = torch.gather(boxes, -2, which.unsqueeze(-1).expand(*which.shape, 4))
    return classes, encode_boxes(anchors, matched)


@program("anchor targets are assigned image by image in a Python loop of small kernels; pad the boxes and assign the whole batch in one call", expect="unbatched-loop")
def retina_match_per_image(device, better, size):
    """RetinaNet-like detector. The ground truth arrives as a list with one tensor of boxes per image, and IoU, arg-max
    and box encoding run once per image: some forty tiny kernels times 32 images, bound by launches. Padding the boxes
    to the same count (zero-area boxes match nothing) lets one batched call do the whole batch."""
    image, classes, batch = scaled(256, size, 64, 32), 20, scaled(32, size, 2)
    model = SmallRetina(classes, 9, scaled(64, size, 8, 8)).to(device)
    optimizer = adamw(model.parameters(), device)
    anchors = make_anchors(image, device)
    counts = torch.randint(1, 21, (4, batch)).tolist()
    batches = []
    for row in counts:
        corner = torch.rand(batch, 20, 2, device=device) * image * 0.6
        extent = (0.08 + 0.3 * torch.rand(batch, 20, 2, device=device)) * image
        boxes = torch.cat((corner, corner + extent), -1)
        labels = torch.randint(0, classes, (batch, 20), device=device)
        for i, n in enumerate(row):
            boxes[i, n:] = 0
            labels[i, n:] = 0
        per_image = [{"boxes": boxes[i, :n].clone(), "labels": labels[i, :n].clone()} for i, n in enumerate(row)]
        batches.append((torch.randn(batch, 3, image, image, device=device), boxes, labels, per_image))
    at = [0]

    def step():
        images, boxes, labels, per_image = batches[at[0] % len(batches)]
        at[0] += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits, deltas = model(images)
        with torch.no_grad():
            if better:
                target_class, target_box = assign_targets(anchors, boxes, labels)
            else:
                found = [assign_targets(anchors, t["boxes"], t["labels"]) for t in per_image]
                target_class = torch.stack([c for c, _ in found])
                target_box = torch.stack([b for _, b in found])
            positive = target_class > 0
            count = positive.sum().clamp(min=1)
            one_hot = F.one_hot(target_class.clamp(min=0), classes + 1)[..., 1:].float()
        logits, deltas = logits.float(), deltas.float()
        ce = F.binary_cross_entropy_with_logits(logits, one_hot, reduction="none")
        p = torch.sigmoid(logits)
        hard = (p * (1 - one_hot) + (1 - p) * one_hot) ** 2
        cls_loss = (ce * hard * (target_class >= 0).unsqueeze(-1)).sum() / count
        box_loss = (F.smooth_l1_loss(deltas, target_box, reduction="none") * positive.unsqueeze(-1)).sum() / count
        (cls_loss + box_loss).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- vision transformer probe

class VisionTransformer(nn.Module):
    def __init__(self, image, patch, dim, depth, heads):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.ModuleList([EncoderBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1).to(x.dtype), x), 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]


@program("the frozen ViT backbone is run with gradients (only the optimizer leaves it out), so backward goes through all of it; run it under no_grad", expect="unread-gradients frozen-forward")
def vit_probe_backbone_grads(device, better, size):
    """Linear probe on a ViT-B/16: the optimizer only gets the head, but the backbone's parameters still require grad
    and its forward records a graph, so each backward computes gradients of 86 M weights which nobody uses. The fix
    freezes the parameters and runs the backbone under torch.no_grad()."""
    image, dim, batch = scaled(224, size, 64, 16), scaled(768, size, 48, 48), scaled(64, size, 2)
    backbone = VisionTransformer(image, 16, dim, 12 if size > 0.5 else 2, dim // 48 if dim < 768 else 12).to(device).eval()
    head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 1000)).to(device)
    optimizer = adamw(head.parameters(), device, 1e-3)
    if better:
        backbone.requires_grad_(False)
    images = torch.randn(4, batch, 3, image, image, device=device)
    labels = torch.randint(0, 1000, (4, batch), device=device)
    at = [0]

    def step():
        k = at[0] % 4
        at[0] += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            if better:
                with torch.no_grad():
                    features = backbone(images[k])
            else:
                features = backbone(images[k])
            loss = F.cross_entropy(head(features), labels[k], label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for parameter in backbone.parameters():
            parameter.grad = None
    return step


# ---------------------------------------------------------------- mixture of experts

class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class StackedExperts(nn.Module):
    """All experts' weights in one tensor: (E, C, dim) -> (E, C, dim)."""

    def __init__(self, experts, dim, hidden):
        super().__init__()
        uniform = lambda fan, *shape: nn.Parameter(torch.empty(*shape).uniform_(-fan ** -0.5, fan ** -0.5))
        self.w_up, self.b_up = uniform(dim, experts, dim, hidden), uniform(dim, experts, 1, hidden)
        self.w_down, self.b_down = uniform(hidden, experts, hidden, dim), uniform(hidden, experts, 1, dim)

    def forward(self, x):
        x = F.gelu(torch.baddbmm(self.b_up, x, self.w_up))
        return torch.baddbmm(self.b_down, x, self.w_down)


class ExpertChoiceLayer(nn.Module):
    """Every expert picks its `capacity` tokens with the highest gate."""

    def __init__(self, dim, hidden, experts, stacked):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.number = experts
        self.stacked = stacked
        self.experts = StackedExperts(experts, dim, hidden) if stacked else nn.ModuleList([Expert(dim, hidden) for _ in range(experts)])

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        capacity = max(1, 2 * x.shape[0] // self.number)
        weight, chosen = self.gate(x).float().softmax(-1).t().topk(capacity, dim=-1)
        out = torch.zeros(x.shape, device=x.device, dtype=torch.float32)
        if self.stacked:
            y = self.experts(x.index_select(0, chosen.reshape(-1)).view(self.number, capacity, -1))
            y = y.float() * weight.unsqueeze(-1)
            out = out.index_add(0, chosen.reshape(-1), y.reshape(-1, shape[-1]))
        else:
            for expert, w, tokens in zip(self.experts, weight.unbind(0), chosen.unbind(0)):
                y = expert(x.index_select(0, tokens))
                out.index_add_(0, tokens, y.float() * w.unsqueeze(-1))
        return out.view(shape)


class MoeEncoder(nn.Module):
    def __init__(self, vocabulary, length, dim, depth, heads, experts, stacked):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Parameter(torch.randn(1, length, dim) * 0.02)
        self.blocks = nn.ModuleList([EncoderBlock(dim, heads, ExpertChoiceLayer(dim, 2 * dim, experts, stacked)) for _ in range(depth)])
        self.head = nn.Linear(dim, 2048)

    def forward(self, tokens):
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


@program("the experts of the mixture layer run one by one in a Python loop; stack their weights and run all in one batched matmul", expect="networks-one-by-one unbatched-loop")
def moe_expert_loop(device, better, size):
    """Text classifier with 6 expert-choice layers of 16 experts: a ModuleList loop launches gather, two linears, GELU and
    scatter per expert, each far too small for the GPU, and its backward does so again. As every expert takes the same
    number of tokens, one gather and two baddbmm do the same."""
    dim, batch, length = scaled(512, size, 32, 32), scaled(16, size, 2), scaled(512, size, 32)
    model = MoeEncoder(8000, length, dim, 6 if size > 0.5 else 2, 8 if dim > 64 else 2, 16 if size > 0.5 else 4, better).to(device)
    optimizer = adamw(model.parameters(), device)
    tokens = torch.randint(0, 8000, (8, batch, length), device=device)
    labels = torch.randint(0, 2048, (8, batch), device=device)
    at = [0]

    def step():
        k = at[0] % 8
        at[0] += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens[k]), labels[k])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- masked language model

class MaskedLanguageModel(nn.Module):
    def __init__(self, vocabulary, length, dim, depth, heads):
        super().__init__()
        self.token = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.token.weight, std=0.02)
        self.position = nn.Parameter(torch.randn(1, length, dim) * 0.02)
        self.blocks = nn.ModuleList([EncoderBlock(dim, heads) for _ in range(depth)])
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def encode(self, tokens):
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return x

    def logits(self, hidden):
        return F.linear(self.transform(hidden), self.token.weight, self.bias)


@program("vocabulary logits are computed for all positions though only the masked 15 % enter the loss; gather the masked positions before the output layer", expect="ignored-labels late-selection large-vocabulary-loss")
def mlm_full_vocab_logits(device, better, size):
    """BERT-like pre-training, 192 x 128 tokens, vocabulary 30 522. The output layer and the cross entropy run over every
    position (labels -100 where not masked): gigabytes of logits. The fix picks the 19 masked positions per sequence
    first and projects those only; the loss is the same."""
    vocabulary, dim = scaled(30522, size, 1000), scaled(512, size, 32, 32)
    batch, length = scaled(192, size, 4), scaled(128, size, 32)
    masked = max(1, int(length * 0.15))
    model = MaskedLanguageModel(vocabulary, length, dim, 6 if size > 0.5 else 2, 8 if dim > 64 else 2).to(device)
    optimizer = adamw(model.parameters(), device)
    corpus = torch.randint(5, vocabulary, (16, batch, length), device=device)
    at = [0]

    def step():
        tokens = corpus[at[0] % 16]
        at[0] += 1
        places = torch.rand(batch, length, device=device).topk(masked, dim=1).indices
        answers = tokens.gather(1, places)
        inputs = tokens.scatter(1, places, 4)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            hidden = model.encode(inputs)
            if better:
                hidden = hidden.gather(1, places.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
                labels = answers
            else:
                labels = torch.full_like(tokens, -100).scatter(1, places, answers)
            logits = model.logits(hidden)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- recommender

class ClickModel(nn.Module):
    def __init__(self, rows, features, dim, dense, sparse, device):
        super().__init__()
        self.table = nn.Embedding(rows, dim, sparse=sparse, device=device)
        self.bottom = nn.Sequential(nn.Linear(dense, 256), nn.ReLU(), nn.Linear(256, dim), nn.ReLU()).to(device)
        self.top = nn.Sequential(nn.Linear((features + 1) * dim, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)

    def forward(self, numbers, indices):
        return self.top(torch.cat((self.bottom(numbers), self.table(indices).flatten(1)), 1)).squeeze(1)


@program("the embedding table of 8 M rows gets a dense gradient and a dense Adagrad update though a batch touches under 3 % of the rows; use sparse gradients", expect="dense-embedding-gradient")
def recsys_dense_table_grads(device, better, size):
    """Click model with one hashed table 8 M x 64 for 26 features. Each backward fills a 2 GB gradient and Adagrad walks
    through table, gradient and state several times. With nn.Embedding(sparse=True) only the touched rows are updated;
    for Adagrad without weight decay the result is identical."""
    rows, features, batch = scaled(8_000_000, size, 10_000), 26, scaled(8192, size, 64)
    model = ClickModel(rows, features, 64, 13, better, device)
    dense = list(model.bottom.parameters()) + list(model.top.parameters())
    optimizer = torch.optim.Adagrad([{"params": [model.table.weight]}, {"params": dense}], lr=0.01)
    field = rows // features
    offsets = torch.arange(features, device=device) * field
    indices = (torch.rand(8, batch, features, device=device) ** 3 * (field - 1)).long() + offsets
    numbers = torch.randn(8, batch, 13, device=device)
    clicks = (torch.rand(8, batch, device=device) < 0.2).float()
    at = [0]

    def step():
        k = at[0] % 8
        at[0] += 1
        loss = F.binary_cross_entropy_with_logits(model(numbers[k], indices[k]), clicks[k])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- GAN

def dcgan_generator(latent, width):
    layers = [nn.ConvTranspose2d(latent, 8 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU()]
    for a, b in ((8, 4), (4, 2), (2, 1)):
        layers += [nn.ConvTranspose2d(a * width, b * width, 4, 2, 1, bias=False), nn.BatchNorm2d(b * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


def dcgan_discriminator(width):
    layers = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for a, b in ((1, 2), (2, 4), (4, 8)):
        layers += [nn.Conv2d(a * width, b * width, 4, 2, 1, bias=False), nn.BatchNorm2d(b * width), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4), nn.Flatten(0))


@program("the fake batch is not detached in the discriminator step (backward(retain_graph=True) goes on through the generator, for nothing); detach it", expect="unread-gradients")
def dcgan_fake_not_detached(device, better, size):
    """DCGAN 64 x 64. d_loss.backward(retain_graph=True) also computes all gradients of the generator, which are thrown
    away by the zero_grad before the generator's own step. D(fake.detach()) stops the backward at the image."""
    latent, batch = 128, scaled(256, size, 8)
    generator = dcgan_generator(latent, scaled(128, size, 8, 8)).to(device)
    discriminator = dcgan_discriminator(scaled(64, size, 8, 8)).to(device)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=device.type == "cuda")
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=device.type == "cuda")
    photos = torch.rand(8, batch, 3, 64, 64, device=device) * 2 - 1
    ones, zeros = torch.ones(batch, device=device), torch.zeros(batch, device=device)
    criterion = nn.BCEWithLogitsLoss()
    at = [0]

    def step():
        real = photos[at[0] % 8]
        at[0] += 1
        fake = generator(torch.randn(batch, latent, 1, 1, device=device))
        d_optimizer.zero_grad(set_to_none=True)
        if better:
            d_loss = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
            d_loss.backward()
        else:
            d_loss = criterion(discriminator(real), ones) + criterion(discriminator(fake), zeros)
            d_loss.backward(retain_graph=True)
        d_optimizer.step()
        g_optimizer.zero_grad(set_to_none=True)
        g_loss = criterion(discriminator(fake), ones)
        g_loss.backward()
        g_optimizer.step()
    return step


# ---------------------------------------------------------------- diffusion

class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(t)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.skip(x)


class DenoisingUNet(nn.Module):
    def __init__(self, width, multipliers=(1, 2, 3), blocks=2):
        super().__init__()
        self.width = width
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        channels, skips = width, [width]
        for level, m in enumerate(multipliers):
            for _ in range(blocks):
                self.down.append(ResidualBlock(channels, m * width, time))
                channels = m * width
                skips.append(channels)
            if level + 1 < len(multipliers):
                self.shrink.append(nn.Conv2d(channels, channels, 3, 2, 1))
                skips.append(channels)
        self.middle = nn.ModuleList([ResidualBlock(channels, channels, time) for _ in range(2)])
        for level, m in reversed(list(enumerate(multipliers))):
            for _ in range(blocks + 1):
                self.up.append(ResidualBlock(channels + skips.pop(), m * width, time))
                channels = m * width
            if level:
                self.grow.append(nn.Conv2d(channels, channels, 3, padding=1))
        self.leave = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, 3, 3, padding=1))
        self.levels, self.blocks = len(multipliers), blocks

    def forward(self, x, t):
        frequency = torch.exp(torch.arange(self.width // 2, device=x.device) * (-math.log(10000.0) / (self.width // 2)))
        angle = t[:, None] * frequency
        t = self.time(torch.cat((angle.sin(), angle.cos()), 1))
        x = self.enter(x)
        skips = [x]
        for level in range(self.levels):
            for block in self.down[level * self.blocks:(level + 1) * self.blocks]:
                x = block(x, t)
                skips.append(x)
            if level + 1 < self.levels:
                x = self.shrink[level](x)
                skips.append(x)
        for block in self.middle:
            x = block(x, t)
        per = self.blocks + 1
        for level in range(self.levels):
            for block in self.up[level * per:(level + 1) * per]:
                x = block(torch.cat((x, skips.pop()), 1), t)
            if level + 1 < self.levels:
                x = self.grow[level](F.interpolate(x, scale_factor=2.0))
        return self.leave(x)


class DictionaryEma:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name] = self.decay * self.shadow[name] + (1.0 - self.decay) * value


class ForeachEma:
    def __init__(self, model, decay):
        self.decay = decay
        self.source = [p.detach() for p in model.parameters()]
        self.shadow = [p.clone() for p in self.source]

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.shadow, self.source, 1.0 - self.decay)


@program("the EMA of the weights is updated parameter by parameter (three small kernels and a new tensor each); use one _foreach_lerp_ over all", expect="unfused-optimizer foreach-not-fused")
def ddpm_ema_per_parameter(device, better, size):
    """DDPM on 32 x 32 images with a U-Net of some 200 weight tensors: the step is bound by launches, and the shadow copy
    costs 600 launches more each step. torch._foreach_lerp_ does the same in a few."""
    batch = scaled(48, size, 2)
    model = DenoisingUNet(scaled(64, size, 8, 8)).to(device)
    optimizer = adamw(model.parameters(), device)
    ema = (ForeachEma if better else DictionaryEma)(model, 0.999)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), 0)
    pictures = torch.rand(16, batch, 3, 32, 32, device=device) * 2 - 1
    at = [0]

    def step():
        clean = pictures[at[0] % 16]
        at[0] += 1
        t = torch.randint(0, 1000, (batch,), device=device)
        noise = torch.randn_like(clean)
        a = kept[t][:, None, None, None]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            guess = model(a.sqrt() * clean + (1 - a).sqrt() * noise, t)
        loss = F.mse_loss(guess.float(), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ema.update(model)
    return step


# ---------------------------------------------------------------- reinforcement learning

class ImpalaStage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.residual = nn.ModuleList([nn.ModuleList([nn.Conv2d(outputs, outputs, 3, padding=1) for _ in range(2)]) for _ in range(2)])

    def forward(self, x):
        x = F.max_pool2d(self.conv(x), 3, 2, 1)
        for first, second in self.residual:
            x = x + second(F.relu(first(F.relu(x))))
        return x


class ActorCritic(nn.Module):
    def __init__(self, frames, actions, width, screen):
        super().__init__()
        self.stages = nn.Sequential(ImpalaStage(frames, width), ImpalaStage(width, 2 * width), ImpalaStage(2 * width, 2 * width))
        left = screen
        for _ in range(3):
            left = (left + 1) // 2
        self.body = nn.Linear(2 * width * left * left, 256)
        self.policy, self.value = nn.Linear(256, actions), nn.Linear(256, 1)

    def forward(self, frames):
        x = F.relu(self.stages(frames.float() / 255.0)).flatten(1)
        x = F.relu(self.body(x))
        return self.policy(x), self.value(x).squeeze(1)


@program("PPO keeps a copy of the old policy and recomputes the old log-probabilities in every minibatch of every epoch; compute them once per rollout", expect="repeated-forward")
def ppo_old_logprobs_recomputed(device, better, size):
    """PPO with an IMPALA CNN: one step is an update of 4 epochs x 2 minibatches over a rollout. old_policy(obs) is a full
    extra forward for each minibatch, though its result is fixed for the rollout: store it once and index it."""
    screen, rollout, actions = 84 if size > 0.5 else 32, scaled(1024, size, 16, 2), 15
    half = rollout // 2
    policy = ActorCritic(4, actions, scaled(16, size, 4), screen).to(device)
    old_policy = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=2.5e-4, eps=1e-5, fused=device.type == "cuda")
    frames = torch.randint(0, 256, (4, rollout, 4, screen, screen), dtype=torch.uint8, device=device)
    taken = torch.randint(0, actions, (4, rollout), device=device)
    advantages = torch.randn(4, rollout, device=device)
    returns = torch.randn(4, rollout, device=device)
    at = [0]

    @torch.no_grad()
    def old_logprob(observed, action):
        return F.log_softmax(old_policy(observed)[0], -1).gather(1, action[:, None]).squeeze(1)

    def step():
        k = at[0] % 4
        at[0] += 1
        old_policy.load_state_dict(policy.state_dict())
        if better:
            stored = torch.cat([old_logprob(frames[k, i:i + half], taken[k, i:i + half]) for i in (0, half)])
        for _ in range(4):
            order = torch.randperm(rollout, device=device)
            for rows in order.split(half):
                observed, action, advantage = frames[k][rows], taken[k][rows], advantages[k][rows]
                before = stored[rows] if better else old_logprob(observed, action)
                logits, value = policy(observed)
                logs = F.log_softmax(logits, -1)
                ratio = (logs.gather(1, action[:, None]).squeeze(1) - before).exp()
                surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                entropy = -(logs.exp() * logs).sum(-1).mean()
                loss = -surrogate + 0.5 * F.mse_loss(value, returns[k][rows]) - 0.01 * entropy
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- speech

def keyword_network(width, words):
    layers, inputs = [], 1
    for outputs, kernel, stride in ((width, 80, 8), (width, 3, 1), (2 * width, 3, 1), (4 * width, 3, 1)):
        layers += [nn.Conv1d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(), nn.MaxPool1d(4)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(inputs, words))


@program("recordings are indexed, converted to float32 and normalised on the host each step, then uploaded pageable; keep the int16 set on the GPU and do it there", expect="host-compute sync-data-loading h2d-fp32-input h2d-pageable")
def keyword_host_normalise(device, better, size):
    """Keyword spotting on raw audio: 1024 clips of 16 000 samples a step. The host gathers int16 rows, converts, takes mean
    and deviation and uploads 65 MB of float32 from pageable memory while the GPU waits. The whole int16 set (260 MB) fits
    on the GPU: upload it once, gather and normalise there."""
    batch, clips, samples = scaled(1024, size, 8), scaled(8192, size, 64), scaled(16000, size, 4000)
    network = keyword_network(scaled(32, size, 4), 35).to(device)
    optimizer = adamw(network.parameters(), device, 1e-3)
    recordings = torch.randint(-3000, 3000, (clips, samples), dtype=torch.int16)
    words = torch.randint(0, 35, (clips,))
    home = device if better else torch.device("cpu")
    recordings, words = recordings.to(home), words.to(home)
    generator = torch.Generator(device=home).manual_seed(7)

    def load_batch():
        rows = torch.randint(0, clips, (batch,), generator=generator, device=home)
        wave = recordings[rows].float() / 32768.0
        wave = (wave - wave.mean(1, keepdim=True)) / (wave.std(1, keepdim=True) + 1e-5)
        return wave.unsqueeze(1).to(device), words[rows].to(device)

    def step():
        wave, word = load_batch()
        loss = F.cross_entropy(network(wave), word)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- recurrent translation

class AdditiveAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query, self.key, self.score = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 1, bias=False)

    def forward(self, state, memory, keys=None):
        if keys is None:
            keys = self.key(memory)
        energy = self.score(torch.tanh(self.query(state).unsqueeze(1) + keys)).squeeze(-1)
        weight = energy.softmax(-1)
        return torch.bmm(weight.unsqueeze(1), memory).squeeze(1)


class RecurrentTranslator(nn.Module):
    def __init__(self, source, target, dim, project_once):
        super().__init__()
        self.source, self.target = nn.Embedding(source, dim), nn.Embedding(target, dim)
        self.encoder = nn.GRU(dim, dim // 2, num_layers=2, bidirectional=True, batch_first=True)
        self.attention = AdditiveAttention(dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.output = nn.Linear(2 * dim, target)
        self.project_once = project_once

    def forward(self, source, target):
        memory, _ = self.encoder(self.source(source))
        state = memory.mean(1)
        keys = self.attention.key(memory) if self.project_once else None
        outputs = []
        for word in self.target(target).unbind(1):
            context = self.attention(state, memory, keys)
            state = self.cell(torch.cat((word, context), 1), state)
            outputs.append(torch.cat((state, context), 1))
        return self.output(torch.stack(outputs, 1))


@program("additive attention projects the encoder's outputs anew at every decoder step though they do not change; project them once per batch", expect="invariant-in-loop")
def seq2seq_keys_every_step(device, better, size):
    """GRU translation with Bahdanau attention: self.key(memory) is a (128 x 128, 512) x (512, 512) product repeated, with
    its backward, for each of 32 target words. Projected once before the loop the training is the same."""
    dim, batch = scaled(512, size, 32, 32), scaled(128, size, 4)
    long, short = scaled(128, size, 12), scaled(32, size, 6)
    model = RecurrentTranslator(8000, 8000, dim, better).to(device)
    optimizer = adamw(model.parameters(), device)
    source = torch.randint(0, 8000, (8, batch, long), device=device)
    target = torch.randint(0, 8000, (8, batch, short + 1), device=device)
    at = [0]

    def step():
        k = at[0] % 8
        at[0] += 1
        logits = model(source[k], target[k, :, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[k, :, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- point clouds

class EdgeConv(nn.Module):
    def __init__(self, inputs, outputs, neighbours, fast):
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv2d(2 * inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2))
        self.neighbours, self.fast = neighbours, fast

    @torch.no_grad()
    def nearest(self, x):
        if self.fast:
            distance = torch.cdist(x, x)
        else:
            distance = (x.unsqueeze(2) - x.unsqueeze(1)).pow(2).sum(-1)
        return distance.topk(self.neighbours, dim=-1, largest=False).indices

    def forward(self, x):
        b, n, c = x.shape
        index = self.nearest(x) + torch.arange(b, device=x.device).view(-1, 1, 1) * n
        near = x.reshape(b * n, c).index_select(0, index.reshape(-1)).view(b, n, self.neighbours, c)
        centre = x.unsqueeze(2).expand_as(near)
        edge = torch.cat((near - centre, centre), -1).permute(0, 3, 1, 2)
        return self.mlp(edge).amax(-1).transpose(1, 2)


class PointGraphNetwork(nn.Module):
    def __init__(self, width, neighbours, classes, fast):
        super().__init__()
        sizes = (3, width, width, 2 * width, 4 * width)
        self.layers = nn.ModuleList([EdgeConv(a, b, neighbours, fast) for a, b in zip(sizes, sizes[1:])])
        self.join = nn.Linear(sum(sizes[1:]), 16 * width)
        self.head = nn.Sequential(nn.Linear(16 * width, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, classes))

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return self.head(F.leaky_relu(self.join(torch.cat(found, -1)), 0.2).amax(1))


@program("nearest neighbours from a broadcast (B, N, N, C) difference tensor of gigabytes; torch.cdist (one batched matmul) gives the same distances", expect="broadcast-contraction")
def dgcnn_broadcast_distances(device, better, size):
    """DGCNN on clouds of 1024 points: the k-NN graph is rebuilt in feature space in each layer from
    (x[:, :, None] - x[:, None]).pow(2).sum(-1), two temporaries of up to 4 GB. torch.cdist never forms them."""
    batch, points = scaled(8, size, 2), scaled(1024, size, 64)
    model = PointGraphNetwork(scaled(64, size, 8, 8), 20, 40, better).to(device)
    optimizer = adamw(model.parameters(), device, 1e-3)
    clouds = torch.randn(8, batch, points, 3, device=device)
    labels = torch.randint(0, 40, (8, batch), device=device)
    at = [0]

    def step():
        k = at[0] % 8
        at[0] += 1
        loss = F.cross_entropy(model(clouds[k]), labels[k], label_smoothing=0.2)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


# ---------------------------------------------------------------- segmentation

class StreetSegmenter(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        def block(a, b, stride):
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        self.stem = nn.Sequential(block(3, width // 2, 2), block(width // 2, width, 2))
        self.deep = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width, 1), block(2 * width, 4 * width, 2),
                                  block(4 * width, 4 * width, 1), block(4 * width, 4 * width, 1))
        self.merge = block(5 * width, 2 * width, 1)
        self.classify = nn.Sequential(nn.Conv2d(2 * width, 16 * classes, 1), nn.PixelShuffle(4))

    def forward(self, images):
        early = self.stem(images)
        late = F.interpolate(self.deep(early), scale_factor=4.0)
        return self.classify(self.merge(torch.cat((early, late), 1)))


class CrossEntropyDice(nn.Module):
    """Class-weighted cross entropy plus soft dice, in the dtype of the class weights."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, logits, target):
        logits = logits.to(self.weight.dtype)
        entropy = F.cross_entropy(logits, target, weight=self.weight)
        probability = logits.softmax(1)
        truth = torch.zeros_like(probability).scatter_(1, target.unsqueeze(1), 1.0)
        overlap = (probability * truth).sum((0, 2, 3))
        total = probability.sum((0, 2, 3)) + truth.sum((0, 2, 3))
        return entropy + 1 - ((2 * overlap + 1) / (total + 1)).mean()


@program("class weights counted in float64 pull the full-resolution loss (cross entropy and dice over 80 M logits) to float64; make them float32", expect="fp64-compute")
def segmentation_float64_loss(device, better, size):
    """Street-scene segmentation, 16 x 512 x 512, 19 classes. The class weights come from float64 statistics and the loss
    casts its logits to their dtype: all passes over the logits move twice the bytes, with double exp and log. Weights
    stored as float32 keep the loss in float32."""
    image, batch, classes = scaled(512, size, 128, 32), scaled(16, size, 2), 19
    model = StreetSegmenter(scaled(64, size, 8, 8), classes).to(device)
    frequency = torch.rand(classes, dtype=torch.float64)
    weight = 1.0 / torch.log(1.02 + frequency / frequency.sum())
    criterion = CrossEntropyDice(weight.float() if better else weight).to(device)
    optimizer = adamw(model.parameters(), device, 1e-3)
    images = torch.randn(4, batch, 3, image, image, device=device)
    target = torch.randint(0, classes, (4, batch, image, image), device=device)
    at = [0]

    def step():
        k = at[0] % 4
        at[0] += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images[k])
        loss = criterion(logits, target[k])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step
