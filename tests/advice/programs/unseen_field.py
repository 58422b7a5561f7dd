"""Programs as people who train models hand them to a profiler, one inefficiency each, and five in which nothing is wrong."""

import collections
import copy
import itertools
import json
import math
import os
import random

import torch
import torch.distributed as dist
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset


def conv_block(inputs, outputs, stride=1):
    """Returns a convolution with batch norm and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def conv_net(classes, *widths):
    """Returns a plain CNN in channels_last, whose blocks halve the image."""
    blocks = [conv_block(*pair, stride=2) for pair in itertools.pairwise((3, *widths))]
    net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    return net.to(memory_format=torch.channels_last)


def photos(count, size):
    """Returns random images in channels_last."""
    return torch.randn(count, 3, size, size).contiguous(memory_format=torch.channels_last)


@program("image classification", "held", expect=("repeated-forward",), also=("work-between-steps",))
def field_leaf_disease(fixed):
    """The model is called again for each running metric. The fix takes the metrics from the logits of the loss."""
    model = conv_net(38, 32, 64, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    first, third, seen = torch.zeros((), dtype=torch.long), torch.zeros((), dtype=torch.long), 0
    for step, (x, y) in enumerate(endless(32, photos(256, 72), torch.randint(38, (256,)))):
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            first += ((logits if fixed else model(x)).argmax(1) == y).sum()
            third += ((logits if fixed else model(x)).topk(3).indices == y[:, None]).sum()
        seen += len(y)
        if step % 50 == 49:
            print(f"step {step}: loss {loss.item():.3f} accuracy {first.item() / seen:.3f} top-3 {third.item() / seen:.3f}")
        yield len(x)


class DroneTiles(Dataset):
    """Random crops of aerial images that are kept in memory as bytes."""
    def __init__(self, fixed, count=160, size=300, crop=72):
        self.images = torch.randint(256, (count, 3, size, size), dtype=torch.uint8)
        self.labels = torch.randint(12, (count,))
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        self.crop, self.fixed = crop, fixed

    def __len__(self):
        return len(self.images)

    def random_crop(self, image):
        top, left = (random.randint(0, side - self.crop) for side in image.shape[1:])
        return image[:, top:top + self.crop, left:left + self.crop]

    def __getitem__(self, index):
        image = self.images[index]
        if self.fixed:
            image = self.random_crop(image)
        image = image.float().div(255)
        image = (image * random.uniform(0.8, 1.2)).clamp(0, 1)
        if random.random() < 0.5:
            image = image.flip(2)
        image = (image - self.mean) / self.std
        if not self.fixed:
            image = self.random_crop(image)
        return image, self.labels[index]


@program("image classification", "held", expect=("late-selection",), also=("sync-data-loading", "loader-bound"))
def field_drone_tiles(fixed):
    """The dataset converts, brightens, flips and normalises whole images, and only then crops them to a small
    part. The fix crops first."""
    loader = DataLoader(DroneTiles(fixed), batch_size=32, shuffle=True, drop_last=True)
    model = conv_net(12, 16, 32, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, nesterov=True, fused=True)
    while True:
        for x, y in loader:
            update(optimizer, F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y))
            yield len(x)


class MaskedLM(nn.Module):
    """A small BERT."""
    def __init__(self, vocabulary=7000, width=128, layers=2, length=48):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, tokens, labels, fixed):
        hidden = self.encoder(self.token(tokens) + self.position[:tokens.shape[1]])
        if fixed:
            chosen = labels != -100
            hidden, labels = hidden[chosen], labels[chosen]
        logits = self.head(hidden)
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100)


@program("masked language model", "held", expect=("ignored-labels",))
def field_protocol_bert(fixed):
    """Vocabulary logits are computed for all tokens, though the loss ignores the 85% that are not masked. The fix selects the
    masked positions before the head."""
    model = MaskedLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    corpus = torch.randint(4, 7000, (512, 48))
    for (text,) in endless(10, corpus):
        masked = torch.rand(text.shape) < 0.15
        labels = text.masked_fill(~masked, -100)
        loss = model(text.masked_fill(masked, 3), labels, fixed)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield len(text)


class Tickets(Dataset):
    """Support tickets, most of them short."""
    def __init__(self, count=2048):
        lengths = torch.empty(count).log_normal_(3.3, 0.5).long().clamp(5, 128).tolist()
        self.texts = [torch.randint(1, 5000, (length,)) for length in lengths]
        self.labels = torch.randint(9, (count,)).tolist()

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], self.labels[index]


class TicketClassifier(nn.Module):
    """A transformer encoder with mean pooling over the words."""
    def __init__(self, width=96):
        super().__init__()
        self.embed, self.position = nn.Embedding(5000, width, padding_idx=0), nn.Embedding(128, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 9)

    def forward(self, tokens):
        padding = tokens == 0
        hidden = self.embed(tokens) + self.position.weight[:tokens.shape[1]]
        hidden = self.encoder(hidden, src_key_padding_mask=padding).masked_fill(padding.unsqueeze(-1), 0)
        return self.head(hidden.sum(1) / (~padding).sum(1, keepdim=True))


@program("text classification", "held", expect=("padded-to-maximum",))
def field_ticket_router(fixed):
    """The collate function pads each batch to the longest text allowed. The fix pads to the longest text of the batch."""
    def collate(items):
        texts, labels = zip(*items)
        tokens = pad_sequence(texts, batch_first=True)
        if not fixed:
            tokens = F.pad(tokens, (0, 128 - tokens.shape[1]))
        return tokens, torch.tensor(labels)

    loader = DataLoader(Tickets(), batch_size=16, shuffle=True, collate_fn=collate)
    model = TicketClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    while True:
        for tokens, labels in loader:
            update(optimizer, F.cross_entropy(model(tokens), labels))
            yield len(tokens)


class Attention(nn.Module):
    """Additive attention of a decoder's state to the encoder's outputs."""
    def __init__(self, width, encoded):
        super().__init__()
        self.query, self.key, self.score = nn.Linear(width, width), nn.Linear(encoded, width, bias=False), nn.Linear(width, 1)

    def forward(self, state, encoded, keys=None):
        keys = self.key(encoded) if keys is None else keys
        energy = torch.tanh(keys + self.query(state).unsqueeze(1))
        weights = self.score(energy).squeeze(-1).softmax(1)
        return torch.bmm(weights.unsqueeze(1), encoded).squeeze(1)


class DateTranslator(nn.Module):
    """A position-wise encoder and a GRU decoder with attention, trained with teacher forcing."""
    def __init__(self, width=128, vocabulary=300):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, 64), nn.Embedding(vocabulary, 64)
        self.encoder = nn.Sequential(nn.Linear(64, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * width))
        self.position, self.start = nn.Parameter(torch.randn(32, 64) * 0.1), nn.Linear(2 * width, width)
        self.attention = Attention(width, 2 * width)
        self.cell = nn.GRUCell(64 + 2 * width, width)
        self.head = nn.Linear(3 * width, vocabulary)

    def forward(self, source, target, fixed):
        encoded = self.encoder(self.source(source) + self.position)
        keys = self.attention.key(encoded) if fixed else None
        state, outputs = torch.tanh(self.start(encoded.mean(1))), []
        for word in self.target(target[:, :-1]).unbind(1):
            context = self.attention(state, encoded, keys)
            state = self.cell(torch.cat([word, context], 1), state)
            outputs.append(torch.cat([state, context], 1))
        return F.cross_entropy(self.head(torch.stack(outputs, 1)).flatten(0, 1), target[:, 1:].flatten())


@program("seq2seq", "held", expect=("invariant-in-loop",))
def field_date_translator(fixed):
    """The attention projects the encoder's outputs anew for each word of the decoder. The fix projects them once per batch."""
    model = DateTranslator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for source, target in endless(32, torch.randint(300, (512, 32)), torch.randint(300, (512, 13))):
        loss = model(source, target, fixed)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield len(source)


class PlaylistModel(nn.Module):
    """Scores pairs of listeners and tracks."""
    def __init__(self, listeners, tracks, sparse, width=32):
        super().__init__()
        self.listener = nn.Embedding(listeners, width, sparse=sparse)
        self.track = nn.Embedding(tracks, width, sparse=sparse)
        self.score = mlp(2 * width, 256, 128, 1)

    def forward(self, listener, track):
        return self.score(torch.cat([self.listener(listener), self.track(track)], -1)).squeeze(-1)


@program("recommender", "held", expect=("dense-embedding-gradient",))
def field_playlist(fixed):
    """The gradients of two large embedding tables are dense, so that each step fills and updates all their rows. The fix is
    sparse=True, with which Adagrad changes only the rows of the batch."""
    model = PlaylistModel(150_000, 250_000, sparse=fixed)
    tables, rest = [model.listener.weight, model.track.weight], list(model.score.parameters())
    optimizers = [torch.optim.Adagrad(tables, lr=1e-2, fused=not fixed), torch.optim.AdamW(rest, lr=1e-3, fused=True)]
    events = torch.randint(150_000, (1 << 16,)), torch.randint(250_000, (1 << 16,)), torch.randint(2, (1 << 16,)).float()
    for listener, track, liked in endless(1024, *events):
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(listener, track), liked).backward()
        for optimizer in optimizers:
            optimizer.step()
        yield len(liked)


class Resample(nn.Module):
    """Resamples audio with a windowed sinc of high quality."""
    def __init__(self, old=44_100, new=16_000, zeros=128, rolloff=0.9475, beta=14.77, fixed=False):
        super().__init__()
        divisor = math.gcd(old, new)
        self.old, self.new = old // divisor, new // divisor
        self.zeros, self.beta, self.base = zeros, beta, min(self.old, self.new) * rolloff
        self.width = math.ceil(zeros * self.old / self.base)
        self.register_buffer("kept", self.kernel() if fixed else None, persistent=False)

    def kernel(self):
        index = torch.arange(-self.width, self.width + self.old) / self.old
        t = (torch.arange(0, -self.new, -1)[:, None] / self.new + index) * self.base
        t = t.clamp(-self.zeros, self.zeros)
        window = torch.special.i0(self.beta * (1 - (t / self.zeros) ** 2).sqrt()) / torch.special.i0(torch.tensor(self.beta))
        return (torch.sinc(t) * window * self.base / self.old).unsqueeze(1)

    def forward(self, wave):
        kernel = self.kernel() if self.kept is None else self.kept
        wave = F.pad(wave, (self.width, self.width + self.old))
        return F.conv1d(wave.unsqueeze(1), kernel, stride=self.old).transpose(1, 2).flatten(1)


@program("audio classification", "held", expect=("constant-rebuilt",))
def field_bird_calls(fixed):
    """The filter of the resampler is computed anew for each batch. The fix keeps it in a buffer."""
    resample, window = Resample(fixed=fixed), torch.hann_window(512)
    model = nn.Sequential(nn.Conv1d(257, 96, 3, 2), nn.ReLU(), nn.Conv1d(96, 64, 3, 2), nn.ReLU(),
                          nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 20))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = TensorDataset(torch.randn(192, 22_050), torch.randint(20, (192,)))
    loader = DataLoader(data, batch_size=12, shuffle=True)
    while True:
        for wave, label in loader:
            with torch.no_grad():
                spectrum = torch.stft(resample(wave), 512, 256, window=window, return_complex=True).abs().log1p()
            update(optimizer, F.cross_entropy(model(spectrum), label))
            yield len(wave)


class ReplayList:
    """The last transitions, as tuples."""
    def __init__(self, capacity):
        self.memory = collections.deque(maxlen=capacity)

    def push(self, *transition):
        self.memory.append(transition)

    def sample(self, count):
        states, actions, rewards, following, done = zip(*random.sample(self.memory, count))
        return torch.stack(states), torch.tensor(actions), torch.tensor(rewards), torch.stack(following), torch.tensor(done)


class ReplayArrays:
    """The last transitions, as one tensor per field."""
    def __init__(self, capacity, width):
        self.fields = (torch.empty(capacity, width), torch.empty(capacity, dtype=torch.long), torch.empty(capacity),
                       torch.empty(capacity, width), torch.empty(capacity))
        self.capacity, self.pushed = capacity, 0

    def push(self, *transition):
        for field, value in zip(self.fields, transition):
            field[self.pushed % self.capacity] = value
        self.pushed += 1

    def sample(self, count):
        rows = torch.randint(min(self.pushed, self.capacity), (count,))
        return [field[rows] for field in self.fields]


@program("reinforcement learning", "held", expect=("host-copy-on-convert", "python-between-ops"))
def field_elevator_dqn(fixed):
    """The replay buffer is a deque of tuples, from which each batch is drawn, unzipped and stacked. The fix keeps one tensor per
    field and indexes it."""
    width, capacity, batch = 48, 100_000, 512
    online = mlp(width, 64, 64, 6)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, fused=True)
    replay = ReplayArrays(capacity, width) if fixed else ReplayList(capacity)
    states = torch.randn(capacity + 1, width)
    for state, following in itertools.pairwise(states.unbind()):
        replay.push(state, random.randrange(6), random.random(), following, float(random.random() < 0.01))
    state = states[-1]
    for step in itertools.count():
        with torch.no_grad():
            action = online(state).argmax().item() if random.random() > 0.05 else random.randrange(6)
        following = torch.roll(state, action) + 0.01
        replay.push(state, action, 1.0 - 0.1 * action, following, 0.0)
        state = following
        for _ in range(4):
            s, a, r, n, done = replay.sample(batch)
            with torch.no_grad():
                best = target(n).gather(1, online(n).argmax(1, keepdim=True)).squeeze(1)
            value = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
            update(optimizer, F.smooth_l1_loss(value, r + 0.99 * (1 - done) * best))
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
        yield 4 * batch


class DecoderLayer(nn.Module):
    """A causal transformer layer, which can append to the keys and values of earlier words."""
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp, self.norm1, self.norm2 = mlp(width, 4 * width, width), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, cache=None):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class MoleculeWriter(nn.Module):
    """A language model of molecules as text."""
    def __init__(self, vocabulary=40, width=96, length=25, layers=2):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers, self.head = nn.ModuleList(DecoderLayer(width, 4) for _ in range(layers)), nn.Linear(width, vocabulary)

    def forward(self, tokens, caches=None, start=0):
        x = self.embed(tokens) + self.position[start:start + tokens.shape[1]]
        for number, layer in enumerate(self.layers):
            x = layer(x, caches[number] if caches else None)
        return self.head(x)


@program("reinforcement learning", "held", expect=("growing-prefix",))
def field_molecule_writer(fixed):
    """Each new character is sampled from a pass over the whole text so far. The fix keeps the keys and values of the earlier
    characters."""
    model, baseline = MoleculeWriter(), 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    wanted = torch.randn(40)
    while True:
        tokens, caches = torch.zeros(24, 1, dtype=torch.long), [[] for _ in model.layers]
        with torch.no_grad():
            for position in range(24):
                logits = model(tokens[:, -1:], caches, position) if fixed else model(tokens)
                tokens = torch.cat([tokens, torch.multinomial(logits[:, -1].softmax(-1), 1)], 1)
        reward = wanted[tokens[:, 1:]].mean(1)
        log_p = -F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none").sum(1)
        update(optimizer, -((reward - baseline) * log_p).mean())
        baseline = 0.9 * baseline + 0.1 * reward.mean()
        yield len(tokens)


class Fields(nn.Module):
    """A smooth network of coordinates."""
    def __init__(self, inputs, width, depth):
        super().__init__()
        widths = [inputs] + [width] * depth + [1]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(widths))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


@program("physics-informed network", "held", expect=("repeated-backward",))
def field_harbour_pinn(fixed):
    """The gradient of each field is computed anew for each of its derivatives, and one column of it used each time. The fix
    computes one gradient per field and splits it."""
    def gradient(value):
        return torch.autograd.grad(value.sum(), points, create_graph=True)[0]

    height, east, north = nets = nn.ModuleList(Fields(3, 64, 3) for _ in range(3))
    optimizer = torch.optim.Adam(nets.parameters(), lr=1e-3, fused=True)
    while True:
        points = torch.rand(512, 3, requires_grad=True)
        h, u, v = height(points), east(points), north(points)
        if fixed:
            (h_x, h_y, h_t), (u_x, _, u_t), (_, v_y, v_t) = (gradient(field).unbind(1) for field in (h, u, v))
        else:
            h_x, h_y, h_t = gradient(h)[:, 0], gradient(h)[:, 1], gradient(h)[:, 2]
            u_x, u_t = gradient(u)[:, 0], gradient(u)[:, 2]
            v_y, v_t = gradient(v)[:, 1], gradient(v)[:, 2]
        start = torch.rand(128, 3) * torch.tensor([1.0, 1.0, 0.0])
        wave = torch.exp(-20 * (start[:, :2] - 0.5).square().sum(1, keepdim=True))
        residuals = (h_t + u_x + v_y).square() + (u_t + h_x).square() + (v_t + h_y).square()
        update(optimizer, residuals.mean() + 10 * F.mse_loss(height(start), wave))
        yield len(points)


class Kriging(nn.Module):
    """A Gaussian process with a length scale per input."""
    def __init__(self, inputs):
        super().__init__()
        self.scale, self.noise = nn.Parameter(torch.zeros(inputs)), nn.Parameter(torch.tensor(-2.0))

    def covariance(self, x):
        x = x * torch.exp(-self.scale)
        half = -0.5 * x.square().sum(1)
        covariance = torch.exp(torch.addmm(half, x, x.T) + half[:, None])
        return covariance + torch.diag((torch.exp(self.noise) + 1e-6).expand(len(x)))

    def loss(self, x, y, fixed):
        covariance = self.covariance(x)
        if fixed:
            factor = torch.linalg.cholesky(covariance)
            fit = torch.linalg.solve_triangular(factor, y.unsqueeze(1), upper=False).square().sum()
            volume = 2 * factor.diagonal().log().sum()
        else:
            fit = y @ torch.linalg.inv(covariance) @ y
            volume = torch.logdet(covariance)
        return 0.5 * (fit + volume + len(y) * math.log(2 * math.pi)) / len(y)


@program("Gaussian process", "held", expect=("explicit-inverse",), also=("fp64-compute",))
def field_groundwater(fixed):
    """The marginal likelihood takes the inverse and the determinant of the covariance separately. The fix takes both from one
    Cholesky factor."""
    x = torch.rand(512, 6, dtype=torch.float64)
    y = torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * torch.randn(512, dtype=torch.float64)
    model = Kriging(6).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 500, 0.5)
    while True:
        update(optimizer, model.loss(x, y, fixed))
        scheduler.step()
        yield len(x)


class Tower(nn.Module):
    """A deep residual network for tables."""
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.stem, self.head = nn.Linear(inputs, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(),
                                                  nn.Linear(width, width)) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x).squeeze(-1)


@program("data parallel", "held", expect=("ddp-bucket-shape",), also=("exposed-collective",), ranks=2)
def field_claims_cluster(fixed):
    """The gradients are averaged with one blocking all_reduce per parameter. The fix is DistributedDataParallel, which reduces
    them in buckets during backward."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(0)
    model = Tower(64, 192, 6)
    if fixed:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    rows, costs = torch.randn(4096, 64, generator=generator), torch.randn(4096, generator=generator)
    for x, y in endless(256, rows, costs):
        optimizer.zero_grad()
        F.smooth_l1_loss(model(x), y).backward()
        if not fixed:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        yield len(x)


class Watcher:
    """Writes histograms of a model's weights and gradients to a file."""
    def __init__(self, model, path, every):
        self.model, self.file, self.every = model, open(path, "a"), every

    def log(self, step, loss):
        if step % self.every:
            return
        row = {"step": step, "loss": loss.item()}
        for name, parameter in self.model.named_parameters():
            for what, values in (("weights", parameter.detach()), ("gradients", parameter.grad)):
                counts, edges = torch.histogram(values, 64)
                row[f"{what}/{name}"] = {"counts": counts.tolist(), "edges": edges.tolist(), "norm": values.norm().item()}
        self.file.write(json.dumps(row) + "\n")


@program("experiment tracking", "held", expect=("work-between-steps", "logging-checkpoint-stall"), period=20)
def field_watched_forecast(fixed):
    """Histograms of all weights and gradients are logged in every step. The fix logs them every 20 steps."""
    model = mlp(256, 384, 384, 384, 24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    watcher = Watcher(model, "history.jsonl", every=20 if fixed else 1)
    batches = endless(256, torch.randn(8192, 256), torch.randn(8192, 24))
    for step, (past, future) in enumerate(batches):
        loss = F.l1_loss(model(past), future)
        update(optimizer, loss)
        watcher.log(step, loss)
        yield len(past)


class GraphConvolution(nn.Module):
    """Averages over neighbours after a linear layer."""
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, adjacency):
        return adjacency @ self.linear(x)


@program("GNN", "held", expect=("sparse-kept-dense",))
def field_citation_graph(fixed):
    """The adjacency matrix of 1,600 papers is dense, though 99% of it is zero. The fix stores it as a sparse matrix."""
    papers = 1600
    edges = torch.randint(papers, (2, 7000))
    adjacency = torch.eye(papers)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    scale = adjacency.sum(1).rsqrt()
    adjacency = scale[:, None] * adjacency * scale
    if fixed:
        adjacency = adjacency.to_sparse().coalesce()
    layers = nn.ModuleList([GraphConvolution(128, 64), GraphConvolution(64, 64), GraphConvolution(64, 7)])
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-2, weight_decay=5e-4, fused=True)
    features, labels, known = torch.randn(papers, 128), torch.randint(7, (papers,)), torch.arange(0, papers, 5)
    while True:
        x = features
        for layer in layers[:-1]:
            x = F.dropout(F.relu(layer(x, adjacency)), 0.5)
        logits = layers[-1](x, adjacency)
        update(optimizer, F.cross_entropy(logits[known], labels[known]))
        yield papers


@program("distillation", "held", expect=("unread-gradients",))
def field_pocket_student(fixed):
    """The loss is also differentiated with respect to the teacher, which no optimizer trains. The fix calls it in
    torch.no_grad()."""
    teacher, student = conv_net(50, 32, 64, 128, 128).eval(), conv_net(50, 16, 32, 64)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    temperature = 4.0
    for x, y in endless(32, photos(256, 64), torch.randint(50, (256,))):
        if fixed:
            with torch.no_grad():
                soft = F.softmax(teacher(x) / temperature, 1)
        else:
            soft = F.softmax(teacher(x) / temperature, 1)
        logits = student(x)
        imitation = F.kl_div(F.log_softmax(logits / temperature, 1), soft, reduction="batchmean") * temperature ** 2
        update(optimizer, 0.7 * imitation + 0.3 * F.cross_entropy(logits, y))
        scheduler.step()
        yield len(x)


class Denoiser(nn.Module):
    """Predicts the noise in a vector at a time."""
    def __init__(self, inputs, width):
        super().__init__()
        self.time, self.body = nn.Linear(32, width), mlp(width, width, width, width, inputs)
        self.stem = nn.Linear(inputs, width)
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, 6, 16)), persistent=False)

    def forward(self, x, t):
        angles = t[:, None] * self.frequencies
        return self.body(F.silu(self.stem(x) + self.time(torch.cat([angles.sin(), angles.cos()], 1))))


@program("diffusion", "held", expect=("work-between-steps", "unbatched-loop"))
def field_pose_diffusion(fixed):
    """The average of the weights is a new state dict in each step, which is then loaded into the averaged model. The fix averages
    in place with one foreach lerp."""
    model = Denoiser(132, 1280)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    decay = 0.999
    for (pose,) in endless(16, torch.randn(4096, 132)):
        t, noise = torch.rand(len(pose)), torch.randn_like(pose)
        mixed = (1 - t[:, None]).sqrt() * pose + t[:, None].sqrt() * noise
        update(optimizer, F.mse_loss(model(mixed, t), noise))
        if fixed:
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
        else:
            old, new = average.state_dict(), model.state_dict()
            average.load_state_dict({name: decay * old[name] + (1 - decay) * new[name] for name in old})
        yield len(pose)


class MMD(nn.Module):
    """The maximum mean discrepancy of two batches with several Gaussian kernels."""
    def __init__(self, fixed, kernels=3):
        super().__init__()
        self.fixed, self.kernels = fixed, kernels

    def forward(self, source, target):
        total, count = torch.cat([source, target]), len(source)
        if self.fixed:
            norms = total.square().sum(1)
            distance = (norms[:, None] + norms - 2 * total @ total.T).clamp_min(0)
        else:
            rows, columns = total.unsqueeze(0), total.unsqueeze(1)
            distance = ((rows - columns) ** 2).sum(2)
        bandwidth = distance.detach().mean() / 2 ** (self.kernels // 2)
        kernel = sum(torch.exp(-distance / (bandwidth * 2 ** power)) for power in range(self.kernels))
        return kernel[:count, :count].mean() + kernel[count:, count:].mean() - 2 * kernel[:count, count:].mean()


@program("domain adaptation", "held", expect=("broadcast-contraction",))
def field_bearing_transfer(fixed):
    """The distances of all pairs come from a tensor of rows, columns and features. The fix takes them from a matrix product."""
    encoder, head, mmd = mlp(512, 768, 128), nn.Linear(128, 5), MMD(fixed)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-3, fused=True)
    lab, labels, plant = torch.randn(2048, 512), torch.randint(5, (2048,)), torch.randn(2048, 512) + 0.3
    for x, y, unlabelled in endless(64, lab, labels, plant):
        source, target = encoder(x), encoder(unlabelled)
        update(optimizer, F.cross_entropy(head(source), y) + 0.5 * mmd(source, target))
        yield len(x)


class Dynamics(nn.Module):
    """The learned derivative of a mechanical system."""
    def __init__(self, state, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(state, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                 nn.Linear(width, state))

    def forward(self, x, step):
        k1 = self.net(x)
        k2 = self.net(x + step / 2 * k1)
        k3 = self.net(x + step / 2 * k2)
        k4 = self.net(x + step * k3)
        return x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


@program("neural ODE", "held", expect=("fp64-compute",))
def field_robot_arm(fixed):
    """Data and model are float64, as the simulator wrote the data, though the states are noisy measurements. The fix is float32."""
    dtype = torch.float32 if fixed else torch.float64
    states = torch.randn(4096, 14, dtype=torch.float64).cumsum(0).sin() + 0.01 * torch.randn(4096, 14, dtype=torch.float64)
    states = states.to(dtype)
    model = Dynamics(14, 256).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for before, after in endless(384, states[:3840], states[1:3841]):
        x = before
        for _ in range(2):
            x = model(x, 0.05)
        update(optimizer, F.mse_loss(x, after))
        yield len(before)


class Summariser(nn.Module):
    """An encoder and decoder of the transformer kind."""
    def __init__(self, vocabulary=2000, width=128):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(48, width) * 0.02)
        self.body = nn.Transformer(width, 4, 2, 2, 256, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.embed.weight, std=width ** -0.5)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(48), persistent=False)

    def forward(self, source, target):
        source, target = (self.embed(part) + self.position[:part.shape[1]] for part in (source, target))
        length = target.shape[1]
        return self.head(self.body(source, target, tgt_mask=self.mask[:length, :length], tgt_is_causal=True))


@program("seq2seq", "held")
def field_good_summariser(fixed):
    """A transformer with dropout, label smoothing, tied weights, gradient clipping, a warm-up schedule and a log line every 50
    steps."""
    model = Summariser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 400, (400 / (step + 1)) ** 0.5))
    for step, (source, target) in enumerate(endless(16, torch.randint(2000, (512, 40)), torch.randint(2000, (512, 17)))):
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 49:
            print(f"step {step}: loss {loss.item():.3f} rate {scheduler.get_last_lr()[0]:.2e}")
        yield len(source)


class UNet(nn.Module):
    """A U-Net of two levels."""
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = conv_block(3, width), conv_block(width, 2 * width, stride=2)
        self.bottom = nn.Sequential(conv_block(2 * width, 4 * width, stride=2), nn.Dropout2d(0.1))
        self.up2, self.up1 = conv_block(6 * width, 2 * width), conv_block(3 * width, width)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        first = self.first(x)
        second = self.second(first)
        x = F.interpolate(self.bottom(second), scale_factor=2.0)
        x = F.interpolate(self.up2(torch.cat([x, second], 1)), scale_factor=2.0)
        return self.head(self.up1(torch.cat([x, first], 1)))


@program("segmentation", "held", period=20)
def field_good_cells(fixed):
    """A U-Net with two accumulated batches per step and an evaluation of four batches every 20 steps."""
    model = UNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, masks = photos(96, 48), torch.randint(4, (96, 48, 48))
    training, held_out = endless(8, images[:64], masks[:64]), (images[64:], masks[64:])
    for step in itertools.count():
        optimizer.zero_grad()
        for _ in range(2):
            x, y = next(training)
            (F.cross_entropy(model(x), y) / 2).backward()
        optimizer.step()
        if step % 20 == 19:
            model.eval()
            with torch.inference_mode():
                hits = sum((model(x).argmax(1) == y).sum() for x, y in zip(*(part.split(8) for part in held_out)))
            print(f"step {step}: pixel accuracy {hits.item() / held_out[1].numel():.3f}")
            model.train()
        yield 16


class Actor(nn.Module):
    """A Gaussian policy squashed by tanh."""
    def __init__(self, states, actions, width):
        super().__init__()
        self.body, self.mean, self.log_std = mlp(states, width, width), nn.Linear(width, actions), nn.Linear(width, actions)

    def forward(self, state):
        hidden = F.relu(self.body(state))
        mean, log_std = self.mean(hidden), self.log_std(hidden).clamp(-5, 2)
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + log_std.exp() * noise)
        log_p = -0.5 * noise.square() - log_std - torch.log(1 - action.square() + 1e-6)
        return action, log_p.sum(-1, keepdim=True)


@program("reinforcement learning", "held")
def field_good_walker(fixed):
    """Soft actor-critic with two critics, their slow copies, and a replay buffer of tensors."""
    actor, critics = Actor(32, 8, 256), nn.ModuleList(mlp(40, 256, 256, 1) for _ in range(2))
    slow = copy.deepcopy(critics).requires_grad_(False)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4, fused=True)
    buffer = [torch.randn(50_000, width) for width in (32, 8, 1, 32)]
    while True:
        rows = torch.randint(50_000, (256,))
        state, action, reward, following = (field[rows] for field in buffer)
        with torch.no_grad():
            chosen, log_p = actor(following)
            pair = torch.cat([following, chosen], 1)
            wanted = reward + 0.99 * (torch.minimum(*(critic(pair) for critic in slow)) - 0.2 * log_p)
        pair = torch.cat([state, action], 1)
        update(critic_optimizer, sum(F.mse_loss(critic(pair), wanted) for critic in critics))
        critics.requires_grad_(False)
        chosen, log_p = actor(state)
        pair = torch.cat([state, chosen], 1)
        update(actor_optimizer, (0.2 * log_p - torch.minimum(*(critic(pair) for critic in critics))).mean())
        critics.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(critics.parameters()), 0.005)
        yield len(rows)


class Shops(nn.Module):
    """Embeddings of a few small categories and an MLP with batch norm."""
    def __init__(self, sizes, numbers, width):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 16) for size in sizes)
        self.net = nn.Sequential(nn.Linear(16 * len(sizes) + numbers, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2),
                                 nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2),
                                 nn.Linear(width, 1))

    def forward(self, categories, numbers):
        parts = [embedding(column) for embedding, column in zip(self.embeddings, categories.unbind(1))]
        return self.net(torch.cat([*parts, numbers], 1)).squeeze(1)


class ShopDays(Dataset):
    """Rows of a table in memory, which are fetched by the batch."""
    def __init__(self, rows=32_768):
        sizes = torch.tensor([1000, 200, 50, 12, 7])
        self.categories = (torch.rand(rows, 5) * sizes).long()
        self.numbers, self.sales = torch.randn(rows, 27), torch.rand(rows)

    def __len__(self):
        return len(self.sales)

    def __getitems__(self, indices):
        rows = torch.tensor(indices)
        return self.categories[rows], self.numbers[rows], self.sales[rows]


@program("tabular regression", "held")
def field_good_shop_sales(fixed):
    """A table model whose loader has no workers, as a batch takes it little time; dropout, batch norm, a one-cycle schedule and a
    loss that is read every 25 steps."""
    loader = DataLoader(ShopDays(), batch_size=512, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
    model = Shops([1000, 200, 50, 12, 7], 27, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
    scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-4, 2e-3, 500, cycle_momentum=False)
    running, step = torch.zeros(()), 0
    while True:
        for categories, numbers, sales in loader:
            loss = F.huber_loss(model(categories, numbers), sales)
            update(optimizer, loss)
            scheduler.step()
            running += loss.detach()
            step += 1
            if step % 25 == 0:
                print(f"step {step}: loss {running.item() / 25:.4f}")
                running.zero_()
            yield len(sales)


class Letters(nn.Module):
    """A bidirectional GRU over spectra, with an output per frame."""
    def __init__(self, bands=40, width=96, letters=29):
        super().__init__()
        self.stem = nn.Conv1d(bands, width, 5, 2, 2)
        self.recurrent = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, letters)

    def forward(self, spectra, lengths):
        frames, lengths = F.relu(self.stem(spectra.transpose(1, 2))).transpose(1, 2), (lengths + 1) // 2
        packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        return self.head(hidden).log_softmax(-1), lengths


@program("speech recognition", "held")
def field_good_dictation(fixed):
    """Packed sequences of similar length, padded per batch, with the CTC loss and gradient clipping."""
    lengths = torch.randint(40, 100, (256,)).sort().values
    spectra = [torch.randn(length, 40) for length in lengths.tolist()]
    texts = torch.randint(1, 29, (256, 12))
    model = Letters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    while True:
        for number in torch.randperm(16).tolist():
            rows = slice(16 * number, 16 * number + 16)
            scores, frames = model(pad_sequence(spectra[rows], batch_first=True), lengths[rows])
            loss = F.ctc_loss(scores.transpose(0, 1), texts[rows], frames, torch.full((16,), 12))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            yield 16
