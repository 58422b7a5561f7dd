"""Re-implementations of methods of recent papers, as people write them."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import mlp, program, update


@program("GRPO of a small causal language model", "held", expect=("late-selection", "ignored-labels"))
def paper_grpo(fixed):
    """The vocabulary head and log-softmax run over the prompt tokens, too, whose log-probabilities are sliced off before the
    loss. Fix: slice the hidden states to the completion before the head."""
    batch, prompt, answer, vocab, width = 8, 96, 24, 6000, 96
    embed, head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
    position = nn.Parameter(0.02 * torch.randn(prompt + answer, width))
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
    causal = nn.Transformer.generate_square_subsequent_mask(prompt + answer)
    params = [position, *embed.parameters(), *head.parameters(), *layer.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.01)
    while True:
        tokens = torch.randint(vocab, (2, prompt)).repeat_interleave(batch // 2, 0)
        tokens = torch.cat((tokens, torch.randint(vocab, (batch, answer))), 1)
        rewards = torch.rand(2, batch // 2)
        advantage = ((rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(batch, 1)
        hidden = layer(embed(tokens) + position, src_mask=causal, is_causal=True)
        if fixed:
            logp = head(hidden[:, prompt - 1:-1]).log_softmax(-1).gather(2, tokens[:, prompt:, None]).squeeze(2)
        else:
            logp = head(hidden[:, :-1]).log_softmax(-1).gather(2, tokens[:, 1:, None]).squeeze(2)[:, prompt - 1:]
        ratio = (logp - logp.detach()).exp()
        policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        update(optimizer, policy - 0.1 * logp.mean())  # with a supervised term
        yield batch


class SplineLayer(nn.Module):
    """A KAN layer of cubic B-splines."""
    def __init__(self, inputs, outputs, fixed, grid=8, order=3):
        super().__init__()
        self.fixed, self.order, self.count = fixed, order, grid + order
        step = 2 / grid
        self.knots = [-1 + step * (number - order) for number in range(grid + 2 * order + 1)]
        self.register_buffer("grid", torch.tensor(self.knots))
        self.base = nn.Linear(inputs, outputs)
        self.coef = nn.Parameter(0.1 * torch.randn(outputs, inputs * self.count) / inputs ** 0.5)

    def basis(self, x, i, k):
        t = self.knots
        if k == 0:
            return ((x >= t[i]) & (x < t[i + 1])).to(x.dtype)
        left = (x - t[i]) / (t[i + k] - t[i]) * self.basis(x, i, k - 1)
        return left + (t[i + k + 1] - x) / (t[i + k + 1] - t[i + 1]) * self.basis(x, i + 1, k - 1)

    def bases(self, x):
        x, t = x.unsqueeze(-1), self.grid
        b = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (x - t[:-k - 1]) / (t[k:-1] - t[:-k - 1]) * b[..., :-1]
            b = left + (t[k + 1:] - x) / (t[k + 1:] - t[1:-k]) * b[..., 1:]
        return b

    def forward(self, x):
        if self.fixed:
            spline = self.bases(x)
        else:
            spline = torch.stack([self.basis(x, i, self.order) for i in range(self.count)], -1)
        return self.base(F.silu(x)) + F.linear(spline.flatten(1), self.coef)


@program("Kolmogorov-Arnold network", "held", expect=("recursion-evaluates-the-same-spline-bases-again-and-again",))
def paper_kan(fixed):
    """Each B-spline basis function is computed by the textbook recursion, one by one, so that bases of lower order are
    evaluated many times, in hundreds of small operations. Fix: all bases of an order at once, from the order below."""
    net = nn.Sequential(SplineLayer(8, 32, fixed), nn.Tanh(), SplineLayer(32, 16, fixed), nn.Tanh(),
                        SplineLayer(16, 1, fixed))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    while True:
        x = 2 * torch.rand(128, 8) - 1
        y = (torch.sin(3 * x[:, :1]) * x[:, 1:2] + x[:, 2:].square().sum(1, True)).exp() / 10
        update(optimizer, F.mse_loss(net(x), y))
        yield len(x)


def giou(a, b):
    """Generalized IoU of boxes (cx, cy, w, h) that broadcast."""
    a0, a1 = a[..., :2] - a[..., 2:] / 2, a[..., :2] + a[..., 2:] / 2
    b0, b1 = b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2
    inner = (torch.min(a1, b1) - torch.max(a0, b0)).clamp(min=0).prod(-1)
    hull = (torch.max(a1, b1) - torch.min(a0, b0)).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - inner
    return inner / union - (hull - union) / hull


def match(cost):
    """For each target (column), in turn, the cheapest query that is still free."""
    taken, rows = set(), cost.argsort(0).t().tolist()
    for order in rows:
        taken.add(pick := next(row for row in order if row not in taken))
        yield pick


@program("DETR-like set prediction", "held", expect=("late-selection",))
def paper_set_prediction(fixed):
    """The matcher flattens the batch and computes costs of every query against the targets of all images, of which only each
    image's own block is used. Fix: costs per image, batched (batch, queries, targets)."""
    batch, queries, targets, classes, width = 24, 72, 10, 20, 64
    query = nn.Parameter(torch.randn(queries, width))
    decoder = nn.TransformerDecoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
    backbone, label_head, box_head = nn.Conv2d(3, width, 8, 8), nn.Linear(width, classes + 1), mlp(width, width, 4)
    net = nn.ModuleList((decoder, backbone, label_head, box_head))
    optimizer = torch.optim.AdamW([query, *net.parameters()], lr=1e-4)
    while True:
        images, labels = torch.randn(batch, 3, 64, 64), torch.randint(classes, (batch, targets))
        truth = torch.cat((torch.rand(batch, targets, 2), 0.05 + 0.4 * torch.rand(batch, targets, 2)), -1)
        memory = backbone(images).flatten(2).transpose(1, 2)
        hidden = decoder(query.expand(batch, -1, -1), memory)
        logits, boxes = label_head(hidden), box_head(hidden).sigmoid()
        with torch.no_grad():
            prob = logits.softmax(-1)
            if fixed:
                cost = 5 * torch.cdist(boxes, truth, p=1) - 2 * giou(boxes[:, :, None], truth[:, None])
                blocks = cost - prob.gather(2, labels[:, None].expand(-1, queries, -1))
            else:
                flat, every = boxes.flatten(0, 1), truth.flatten(0, 1)
                cost = 5 * torch.cdist(flat, every, p=1) - 2 * giou(flat[:, None], every[None])
                cost = (cost - prob.flatten(0, 1)[:, labels.flatten()]).view(batch, queries, -1)
                blocks = [c[i] for i, c in enumerate(cost.split(targets, -1))]
            picks = torch.tensor([list(match(block)) for block in blocks])
        wanted = torch.full((batch, queries), classes).scatter_(1, picks, labels)
        chosen = boxes.gather(1, picks[:, :, None].expand(-1, -1, 4))
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten()) + 5 * F.l1_loss(chosen, truth)
        update(optimizer, loss + 2 * (1 - giou(chosen, truth)).mean())
        yield batch


class Lora(nn.Module):
    """A frozen linear layer with a low-rank addition."""
    def __init__(self, inputs, outputs, fixed, rank=4):
        super().__init__()
        self.fixed = fixed
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs ** 0.5)
        self.up = nn.Parameter(0.01 * torch.randn(outputs, rank))

    def forward(self, x):
        if self.fixed:
            return self.base(x) + 2 * F.linear(F.linear(x, self.down), self.up)
        return F.linear(x, self.base.weight + 2 * self.up @ self.down, self.base.bias)


@program("LoRA fine-tuning of an MLP classifier", "held", expect=("merged-adapter",))
def paper_lora(fixed):
    """The adapter forms the dense weight W + BA in each forward, so that autograd computes the gradient of the whole dense
    matrix, as if W were trained. Fix: apply x A B as two thin products next to the frozen layer."""
    width = 768
    blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), Lora(width, 2 * width, fixed), nn.GELU(),
                                         Lora(2 * width, width, fixed)) for _ in range(3))
    head = nn.Linear(width, 5)
    optimizer = torch.optim.AdamW([p for p in (*blocks.parameters(), *head.parameters()) if p.requires_grad], lr=1e-3)
    features, labels = torch.randn(512, 6, width), torch.randint(5, (512,))
    while True:
        for x, y in zip(features.split(16), labels.split(16)):
            for block in blocks:
                x = x + block(x)
            update(optimizer, F.cross_entropy(head(x.mean(1)), y))
            yield len(y)


@program("2D Gaussian splatting", "held", expect=("quadratic-forms-as-a-batch-of-2x2-matmuls-on-expanded-matrices",))
def paper_splatting(fixed):
    """The exponent d' S d of each pixel and Gaussian is a batch of 200,000 tiny 2x2 matrix products on expanded matrices.
    Fix: write the quadratic form out: a dx^2 + 2 b dx dy + c dy^2."""
    side, count = 32, 192
    axis = (torch.arange(side) + 0.5) / side
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 1, 2)
    target = torch.rand(side * side, 3)
    centre, scale = nn.Parameter(torch.rand(count, 2)), nn.Parameter(torch.full((count, 2), -2.5))
    angle, colour, opacity = (nn.Parameter(torch.randn(count, *more)) for more in ((), (3,), ()))
    optimizer = torch.optim.Adam([centre, scale, angle, colour, opacity], lr=1e-2)
    while True:
        turn = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), -1).view(-1, 2, 2)
        conic = turn @ torch.diag_embed((-2 * scale).exp()) @ turn.transpose(1, 2)
        offset = pixels - centre
        if fixed:
            dx, dy = offset.unbind(-1)
            power = conic[:, 0, 0] * dx * dx + 2 * conic[:, 0, 1] * dx * dy + conic[:, 1, 1] * dy * dy
        else:
            power = (offset.unsqueeze(-2) @ conic.expand(side * side, -1, -1, -1) @ offset.unsqueeze(-1))[..., 0, 0]
        alpha = (opacity.sigmoid() * (-0.5 * power).exp()).clamp(max=0.99)
        through = torch.cat((torch.ones(side * side, 1), (1 - alpha[:, :-1]).cumprod(1)), 1)
        update(optimizer, F.l1_loss((alpha * through) @ colour.sigmoid(), target))
        yield side * side


@program("SimCLR on feature maps", "held", expect=("boolean-mask",))
def paper_contrastive(fixed):
    """The self-similarities are removed by boolean indexing of the large similarity matrix, whose backward puts every element
    back by index. Fix: masked_fill the diagonal with -inf and take the cross entropy of the positives' columns."""
    pairs = 384
    encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), mlp(32, 128, 64))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)
    same = torch.eye(2 * pairs, dtype=torch.bool)
    positive = (torch.arange(2 * pairs) + pairs) % (2 * pairs)
    images = torch.rand(1536, 3, 16, 16)
    while True:
        for batch in images.split(pairs):
            views = torch.cat((batch.flip(3), batch + 0.1 * torch.randn_like(batch)))
            z = F.normalize(encoder(views), dim=1)
            similarity = z @ z.t() / 0.2
            if fixed:
                loss = F.cross_entropy(similarity.masked_fill(same, float("-inf")), positive)
            else:
                of_pair = F.one_hot(positive, 2 * pairs).bool()
                logits = torch.cat((similarity[of_pair].view(-1, 1), similarity[~(of_pair | same)].view(2 * pairs, -1)), 1)
                loss = F.cross_entropy(logits, torch.zeros(2 * pairs, dtype=torch.long))
            update(optimizer, loss)
            yield pairs


class WorldModel(nn.Module):
    """A recurrent state-space model of image sequences."""
    def __init__(self, state=96, latent=24):
        super().__init__()
        self.state, self.latent = state, latent
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ELU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ELU(), nn.Flatten(),
                                     nn.Linear(512, 64))
        self.cell, self.prior = nn.GRUCell(latent + 2, state), nn.Linear(state, 2 * latent)
        self.posterior = nn.Linear(state + 64, 2 * latent)
        self.decoder = nn.Sequential(nn.Linear(state + latent, 512), nn.ELU(), nn.Unflatten(1, (32, 4, 4)),
                                     nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def loss(self, frames, actions, noise, fixed):
        h, z, divergence, pictures, states = frames.new_zeros(frames.shape[1], self.state), noise[0] * 0, 0, [], []
        if fixed:
            codes = self.encoder(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        for t in range(len(frames)):
            code = codes[t] if fixed else self.encoder(frames[t])
            h = self.cell(torch.cat((z, actions[t]), 1), h)
            mean, std = self.posterior(torch.cat((h, code), 1)).chunk(2, 1)
            mean0, std0 = self.prior(h).chunk(2, 1)
            std, std0 = F.softplus(std) + 0.1, F.softplus(std0) + 0.1
            z = mean + std * noise[t]
            quadratic = (std ** 2 + (mean - mean0) ** 2) / (2 * std0 ** 2)
            divergence = divergence + (std0.log() - std.log() + quadratic - 0.5).mean()
            states.append(torch.cat((h, z), 1))
            if not fixed:
                pictures.append(self.decoder(states[-1]))
        made = self.decoder(torch.cat(states)).view_as(frames) if fixed else torch.stack(pictures)
        return F.mse_loss(made, frames) + 0.1 * divergence / len(frames)


@program("world model (RSSM)", "held", expect=("output-layer-in-loop", "input-layer-in-loop"))
def paper_world_model(fixed):
    """The convolutional encoder and decoder run in the loop over time, on a small batch each, though only the GRU cell is
    sequential. Fix: encode all frames before the loop and decode all states after it, in one call each."""
    model = WorldModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    frames, actions = torch.rand(32, 64, 1, 16, 16), torch.randn(32, 64, 2)
    while True:
        for x, a in zip(frames.split(4, 1), actions.split(4, 1)):
            update(optimizer, model.loss(x, a, torch.randn(32, 4, model.latent), fixed))
            yield x.shape[1]


class Windows(Dataset):
    """Windows of a standardized multivariate series: past and future."""
    def __init__(self, series, past, future, fixed):
        self.series, self.past, self.future, self.fixed = series, past, future, fixed
        self.scaled = (series - series.mean(0)) / series.std(0)

    def __len__(self):
        return len(self.series) - self.past - self.future + 1

    def __getitem__(self, start):
        scaled = self.scaled if self.fixed else (self.series - self.series.mean(0)) / self.series.std(0)
        middle = start + self.past
        return scaled[start:middle], scaled[middle:middle + self.future]


@program("PatchTST forecaster", "held", expect=("late-selection",))
def paper_forecaster(fixed):
    """__getitem__ standardizes the whole series, with its mean and deviation, before it cuts out one window. Fix: standardize
    once in __init__ and only slice."""
    channels, past, future, patch, width = 7, 192, 24, 16, 64
    series = torch.randn(14400, channels).cumsum(0)
    loader = DataLoader(Windows(series, past, future, fixed), 32, shuffle=True, drop_last=True)
    embed, head = nn.Linear(patch, width), nn.Linear(width * (past // patch), future)
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True), 2)
    optimizer = torch.optim.Adam([p for part in (embed, head, layers) for p in part.parameters()], lr=1e-3)
    while True:
        for x, y in loader:
            mean, std = x.mean(1, True), x.std(1, keepdim=True) + 1e-5
            patches = ((x - mean) / std).transpose(1, 2).reshape(-1, past // patch, patch)
            out = head(layers(embed(patches)).flatten(1)).view(len(x), channels, future).transpose(1, 2)
            update(optimizer, F.mse_loss(out * std + mean, y))
            yield len(x)


class Coupling(nn.Module):
    """An affine coupling layer that returns the log-determinant of its Jacobian."""
    def __init__(self, dims, flip, fixed):
        super().__init__()
        self.flip, self.fixed, self.net = flip, fixed, mlp(dims // 2, 192, 192, dims)

    def forward(self, x):
        keep, move = x.chunk(2, 1)[::-1] if self.flip else x.chunk(2, 1)
        shift, log_scale = self.net(keep).chunk(2, 1)
        scale = log_scale.tanh().exp()
        parts = [keep, move * scale + shift]
        if self.fixed:
            logdet = scale.log().sum(1)
        else:
            jacobian = torch.diag_embed(torch.cat((torch.ones_like(scale), scale), 1))
            logdet = torch.linalg.slogdet(jacobian).logabsdet
        return torch.cat(parts[::-1] if self.flip else parts, 1), logdet


@program("RealNVP normalizing flow", "held", expect=("diagonal-covariance", "diagonal-product"))
def paper_flow(fixed):
    """Each coupling layer builds its Jacobian as a dense diagonal matrix per sample and takes slogdet of it (an LU
    factorization, and an inverse in backward). Fix: sum the logarithms of the scales."""
    layers = nn.ModuleList(Coupling(32, number % 2 == 1, fixed) for number in range(6))
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-4)
    data = torch.randn(8192, 32) @ torch.randn(32, 32) / 6
    while True:
        for x in data.split(256):
            total = 0
            for layer in layers:
                x, logdet = layer(x)
                total = total + logdet
            update(optimizer, (0.5 * x.square().sum(1) - total).mean())
            yield len(x)


class EdgeAttention(nn.Module):
    """Attention along the edges of a sparse graph."""
    def __init__(self, width, fixed, heads=4):
        super().__init__()
        self.heads, self.fixed = heads, fixed
        self.norm, self.mlp = nn.LayerNorm(width), mlp(width, 2 * width, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, source, target):
        q, k, v = self.qkv(self.norm(x)).view(len(x), 3, self.heads, -1).unbind(1)
        weight = ((q[target] * k[source]).sum(-1) / q.shape[-1] ** 0.5).clamp(-10, 10).exp()
        messages = torch.cat(((weight.unsqueeze(-1) * v[source]).flatten(1), weight), 1)
        if self.fixed:
            total = torch.zeros(len(x), messages.shape[1]).index_add(0, target, messages)
        else:
            total = F.one_hot(target, len(x)).to(x.dtype).t() @ messages
        values, norm = total.split((x.shape[1], self.heads), 1)
        values = values.view(len(x), self.heads, -1) / (norm.unsqueeze(-1) + 1e-6)
        x = x + self.out(values.flatten(1))
        return x + self.mlp(x)


@program("sparse graph transformer on molecules", "held", expect=("one-hot-product",))
def paper_graph_transformer(fixed):
    """Messages are summed into their nodes by a product with a dense one-hot matrix of nodes x edges, almost all of it zeros.
    Fix: index_add (scatter-add) over the edges' target nodes."""
    graphs, nodes, degree, width = 32, 18, 3, 64
    embed, head = nn.Embedding(28, width), nn.Linear(width, 1)
    layers = nn.ModuleList(EdgeAttention(width, fixed) for _ in range(3))
    optimizer = torch.optim.AdamW([p for part in (embed, layers, head) for p in part.parameters()], lr=1e-3)
    first = torch.arange(graphs).repeat_interleave(nodes * degree) * nodes
    owner = torch.arange(graphs).repeat_interleave(nodes)
    while True:
        atoms, y = torch.randint(28, (graphs * nodes,)), torch.randn(graphs, 1)
        source, target = (first + torch.randint(nodes, first.shape) for _ in range(2))
        x = embed(atoms)
        for layer in layers:
            x = layer(x, source, target)
        pooled = torch.zeros(graphs, width).index_add(0, owner, x) / nodes
        update(optimizer, F.l1_loss(head(pooled), y))
        yield graphs


class SparseExperts(nn.Module):
    """Top-2 mixture of experts: tokens sorted by expert, one slice for each."""
    def __init__(self, width, experts=6):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(mlp(width, 4 * width, width) for _ in range(experts))

    def forward(self, x):
        prob = self.gate(x).softmax(-1)
        weight, expert = prob.topk(2, -1)
        order = expert.flatten().argsort(stable=True)
        counts = torch.bincount(expert.flatten(), minlength=len(self.experts))
        token = order // 2
        parts = x[token].split(counts.tolist())
        made = torch.cat([net(part) for net, part in zip(self.experts, parts)])
        made = made * weight.flatten()[order].unsqueeze(1)
        balance = len(self.experts) * (counts / counts.sum() * prob.mean(0)).sum()
        return x.index_add(0, token, made), balance


@program("mixture-of-experts classifier", "held")
def good_paper_experts(fixed):
    """Nothing is wrong: tokens are sorted by expert and each expert runs on its own slice only."""
    width = 128
    embed, layers, head = nn.Linear(48, width), nn.ModuleList(SparseExperts(width) for _ in range(2)), nn.Linear(width, 10)
    optimizer = torch.optim.Adam([p for part in (embed, layers, head) for p in part.parameters()], lr=1e-3, fused=True)
    data, labels = torch.randn(4096, 16, 48), torch.randint(10, (4096,))
    while True:
        for x, y in zip(data.split(64), labels.split(64)):
            hidden, balance = embed(x).flatten(0, 1), 0
            for layer in layers:
                hidden, extra = layer(F.layer_norm(hidden, (width,)))
                balance = balance + extra
            update(optimizer, F.cross_entropy(head(hidden.unflatten(0, (64, 16)).mean(1)), y) + 0.01 * balance)
            yield len(y)


class DiagonalStates(nn.Module):
    """An S4D layer: a long convolution through the FFT with a kernel of complex exponentials."""
    def __init__(self, width, states=16):
        super().__init__()
        self.log_step = nn.Parameter(torch.rand(width, 1) * 4 - 7)
        self.decay = nn.Parameter(torch.zeros(width, states))
        self.turn = nn.Parameter(3.14 * torch.arange(states).repeat(width, 1))
        self.weight, self.skip = nn.Parameter(torch.randn(width, states, 2)), nn.Parameter(torch.ones(width, 1))
        self.out = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x):
        length = x.shape[-1]
        power = torch.complex(-self.decay.exp(), self.turn) * self.log_step.exp()
        scaled = torch.view_as_complex(self.weight) * (power.exp() - 1) / power * self.log_step.exp()
        kernel = 2 * (scaled.unsqueeze(1) @ (power.unsqueeze(-1) * torch.arange(length)).exp()).squeeze(1).real
        y = torch.fft.irfft(torch.fft.rfft(x, 2 * length) * torch.fft.rfft(kernel, 2 * length), 2 * length)[..., :length]
        return x + F.glu(self.out(F.gelu(y + self.skip * x)), 1)


@program("S4D on sequences", "held")
def good_paper_s4d(fixed):
    """Nothing is wrong: the recurrence is a convolution by FFT; its kernel is made once per step, for the whole batch."""
    width, length = 48, 512
    net = nn.Sequential(nn.Conv1d(1, width, 1), DiagonalStates(width), DiagonalStates(width), nn.AdaptiveAvgPool1d(1),
                        nn.Flatten(), nn.Linear(width, 10))
    slow = [p for name, p in net.named_parameters() if any(key in name for key in ("log_step", "decay", "turn"))]
    fast = [p for p in net.parameters() if all(p is not other for other in slow)]
    optimizer = torch.optim.AdamW([{"params": slow, "lr": 1e-4, "weight_decay": 0.0}, {"params": fast}], lr=2e-3, fused=True)
    waves, labels = torch.randn(1024, 1, length), torch.randint(10, (1024,))
    while True:
        for x, y in zip(waves.split(16), labels.split(16)):
            update(optimizer, F.cross_entropy(net(x), y))
            yield len(y)
