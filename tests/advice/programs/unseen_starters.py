"""First training loops of people at work."""
import random

import torch
import torch.nn.functional as F
from harness import endless, mlp, program, update
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Customers(Dataset):
    """Rows as csv.reader gives them."""
    def __init__(self, count):
        self.rows = [([random.random() for _ in range(20)], [random.randrange(50) for _ in range(6)], random.randrange(2))
                     for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        numbers, categories, label = self.rows[index]
        return torch.tensor(numbers), torch.tensor(categories), torch.tensor(float(label))


class Churn(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(50, 12) for _ in range(6))
        self.body = nn.Sequential(nn.Linear(92, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.1),
                                  nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, numbers, categories):
        embedded = [embed(column) for embed, column in zip(self.embed, categories.unbind(1))]
        return self.body(torch.cat([numbers, *embedded], 1)).squeeze(1)


@program("tabular MLP with embeddings", "held", expect=("sync-data-loading", "host-copy-on-convert"))
def start_churn(fixed):
    """The dataset makes three tensors out of Python lists for each row whenever it is asked for, and the loader stacks 512
    rows of them one by one in the training process, although the whole table fits in memory: thousands of tiny tensors
    per step, while the model waits. Fix: turn the table into three tensors once, and index a batch out of them."""
    data = Customers(512 * 24)
    loader = DataLoader(data, batch_size=512, shuffle=True)
    table = [torch.stack(column) for column in zip(*(data[i] for i in range(len(data))))]
    model = Churn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    correct = torch.zeros((), dtype=torch.long)
    while True:
        batches = ([column[rows] for column in table] for rows in torch.randperm(len(data)).split(512)) if fixed else loader
        for numbers, categories, label in batches:
            logits = model(numbers, categories)
            update(optimizer, F.binary_cross_entropy_with_logits(logits, label))
            scheduler.step()
            correct += ((logits.detach() > 0) == label.bool()).sum()
            yield len(label)


@program("CNN, transfer learning", "held", expect=("unread-gradients",))
def start_transfer(fixed):
    """Only the new head is given to the optimizer, but the parameters of the pretrained backbone still require gradients:
    each backward pass goes through all convolutions for gradients that no one uses (and that pile up, never zeroed).
    The images are augmented, so features cannot be cached. Fix: requires_grad_(False) on the backbone."""
    def block(a, b, stride):
        return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
    backbone = nn.Sequential(block(3, 24, 2), block(24, 48, 1), block(48, 96, 2), block(96, 128, 1),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(memory_format=torch.channels_last)
    backbone.eval()  # keeps the running statistics
    if fixed:
        backbone.requires_grad_(False)
    head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=True)
    seen, correct = 0, torch.zeros((), dtype=torch.long)
    images, labels = torch.rand(320, 3, 64, 64).to(memory_format=torch.channels_last), torch.randint(10, (320,))
    for step, (image, label) in enumerate(endless(16, images, labels)):
        if random.random() < 0.5:
            image = image.flip(3)
        image = image * random.uniform(0.8, 1.2)
        logits = head(backbone(image))
        update(optimizer, F.cross_entropy(logits, label, label_smoothing=0.1))
        correct += (logits.detach().argmax(1) == label).sum()
        seen += len(label)
        if step % 100 == 99:
            print(f"step {step} accuracy {correct.item() / seen:.3f}")
        yield len(label)


class Writer(nn.Module):
    def __init__(self, fused, vocabulary=96, width=192):
        super().__init__()
        self.fused = fused
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, batch_first=True) if fused else nn.LSTMCell(width, width)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, text, h, c):
        x = self.embed(text)
        if self.fused:
            hidden, (h, c) = self.rnn(x, (h[None], c[None]))
            h, c = h[0], c[0]
        else:
            states = []
            for t in range(x.size(1)):
                h, c = self.rnn(x[:, t], (h, c))
                states.append(h)
            hidden = torch.stack(states, dim=1)
        return self.out(self.drop(hidden)), h, c


@program("LSTM language model", "held", expect=("rnn-in-python",))
def start_writer(fixed):
    """The time steps are walked in a Python loop with nn.LSTMCell: each step multiplies the input of one time step only
    and launches its own small operations forward and backward. Fix: nn.LSTM over the whole sequence."""
    model = Writer(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2000, gamma=0.5)
    text = torch.randint(96, (16, 48 * 30 + 1))
    h = c = torch.zeros(16, 192)
    average = torch.zeros(())
    while True:
        for start in range(0, text.size(1) - 1, 48):
            x, y = text[:, start:start + 48], text[:, start + 1:start + 49]
            logits, h, c = model(x, h.detach(), c.detach())
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            average.lerp_(loss.detach(), 0.01)
            yield x.size(0)


class Tickets(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(3000, width, padding_idx=0)
        self.position = nn.Parameter(torch.randn(128, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 8)

    def forward(self, tokens):
        pad = tokens == 0
        x = self.encoder(self.embed(tokens) + self.position[:tokens.size(1)], src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(2)
        return self.head((x * keep).sum(1) / keep.sum(1))


@program("transformer encoder, text classification", "held", expect=("padded-to-maximum",))
def start_tickets(fixed):
    """Every ticket is padded to max_length=128 tokens, but they have 8 to 64: most of what the encoder computes are
    padding tokens that the mask throws away. Fix: pad to the longest ticket of the batch."""
    tickets = [torch.randint(1, 3000, (random.randint(8, 64),)) for _ in range(8 * 80)]
    labels = torch.randint(8, (len(tickets),))
    model = Tickets()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
    correct = torch.zeros((), dtype=torch.long)
    while True:
        for rows in torch.randperm(len(tickets)).split(8):
            tokens = pad_sequence([tickets[i] for i in rows.tolist()], batch_first=True)
            if not fixed:
                tokens = F.pad(tokens, (0, 128 - tokens.size(1)))
            logits = model(tokens)
            loss = F.cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            correct += (logits.detach().argmax(1) == labels[rows]).sum()
            yield len(rows)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


@program("small GPT", "held", expect=("debug-api-on",))
def start_gpt(fixed):
    """torch.autograd.set_detect_anomaly(True) was left in from the hunt for a NaN: each operation keeps a Python traceback
    in the forward pass and each gradient is searched for NaN in the backward pass. Fix: leave it off (False)."""
    torch.autograd.set_detect_anomaly(not fixed)
    embed, position = nn.Embedding(65, 96), nn.Embedding(64, 96)
    model = nn.Sequential(nn.Dropout(0.1), *(Block(96, 4) for _ in range(3)), nn.LayerNorm(96), nn.Linear(96, 65))
    parameters = [*embed.parameters(), *position.parameters(), *model.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5000)
    text, where = torch.randint(65, (100_000,)), torch.arange(64)
    for step in range(10 ** 9):
        rows = torch.randint(len(text) - 65, (8, 1)) + where
        x, y = text[rows], text[rows + 1]
        logits = model(embed(x) + position(where))
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        scheduler.step()
        if step % 200 == 199:
            print(f"step {step} loss {loss.item():.4f}")
        yield len(x)


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def normalize(self, adjacency):
        adjacency = adjacency + torch.eye(len(adjacency))
        scale = torch.diag(adjacency.sum(1).rsqrt())
        return scale @ adjacency @ scale

    def forward(self, x, adjacency, normalized):
        return self.linear((adjacency if normalized else self.normalize(adjacency)) @ x)


@program("graph network on road sensors", "held", expect=("renormalised-adjacency", "constant-rebuilt", "repeated-forward"),
         also=("diagonal-product", "sparse-kept-dense"))
def start_sensors(fixed):
    """Each graph convolution normalizes the adjacency matrix anew in each forward pass, with two matrix products by a
    diagonal matrix, although the sensors never move. Fix: normalize it once before training."""
    place = torch.rand(400, 2)
    adjacency = torch.exp(-torch.cdist(place, place) ** 2 / 0.02)
    adjacency = adjacency * (adjacency > 0.1)
    layers = nn.ModuleList([GraphConv(12, 64), GraphConv(64, 64), GraphConv(64, 64)])
    head = nn.Sequential(nn.Dropout(0.1), nn.Linear(64, 3))
    parameters = [*layers.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=500, gamma=0.9)
    if fixed:
        adjacency = layers[0].normalize(adjacency)
    error = torch.zeros(())
    for x, y in endless(8, torch.randn(8 * 30, 400, 12), torch.randn(8 * 30, 400, 3)):
        hidden = x
        for layer in layers:
            hidden = F.relu(layer(hidden, adjacency, fixed))
        forecast = head(hidden)
        loss = F.smooth_l1_loss(forecast, y)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(parameters, 5.0)
        optimizer.step()
        scheduler.step()
        error += (forecast.detach() - y).abs().mean()
        yield len(x)


@program("DCGAN", "held", expect=("unread-gradients", "repeated-backward"))
def start_gan(fixed):
    """The discriminator's loss on fake images is not cut off from the generator (retain_graph=True made the error message
    go away): its backward pass runs on through the whole generator for gradients that are zeroed before the generator's
    own step. Fix: discriminator(fake.detach()), without retain_graph."""
    generator = nn.Sequential(
        nn.Linear(64, 128 * 4 * 4), nn.Unflatten(1, (128, 4, 4)), nn.ReLU(),
        nn.ConvTranspose2d(128, 80, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(80, 40, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(40, 3, 4, 2, 1), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Dropout2d(0.1), nn.Conv2d(32, 96, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(96 * 8 * 8, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    one, zero = torch.full((16, 1), 0.9), torch.zeros(16, 1)
    for step, (real,) in enumerate(endless(16, torch.rand(16 * 40, 3, 32, 32) * 2 - 1)):
        fake = generator(torch.randn(16, 64))
        optimizer_d.zero_grad()
        loss_d = F.binary_cross_entropy_with_logits(discriminator(real), one)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(discriminator(fake.detach() if fixed else fake), zero)
        loss_d.backward(retain_graph=not fixed)
        optimizer_d.step()

        optimizer_g.zero_grad()
        discriminator.requires_grad_(False)
        loss_g = F.binary_cross_entropy_with_logits(discriminator(fake), one)
        loss_g.backward()
        discriminator.requires_grad_(True)
        optimizer_g.step()
        if step % 100 == 99:
            print(f"step {step} D {loss_d.item():.3f} G {loss_g.item():.3f}")
        yield len(real)


@program("recommender", "held", expect=("dense-embedding-gradient",))
def start_shop(fixed):
    """The embeddings of 80,000 users and 30,000 articles get dense gradients: each step fills and applies a gradient of the
    size of both tables, for the 512 rows of each that the batch has touched. Fix: nn.Embedding(..., sparse=True); with
    plain SGD the result is the same."""
    users, articles = nn.Embedding(80_000, 32, sparse=fixed), nn.Embedding(30_000, 32, sparse=fixed)
    tower = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 1))
    tables = torch.optim.SGD([users.weight, articles.weight], lr=0.1, fused=not fixed)  # fused takes no sparse gradients
    optimizer = torch.optim.AdamW(tower.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(tables, step_size=1000, gamma=0.8)
    hits, count = torch.zeros(()), 512 * 40
    data = torch.randint(80_000, (count,)), torch.randint(30_000, (count,)), torch.randint(2, (count,)).float()
    for user, article, bought in endless(512, *data):
        score = tower(torch.cat([users(user), articles(article)], dim=1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, bought)
        tables.zero_grad()
        optimizer.zero_grad()
        loss.backward()
        tables.step()
        optimizer.step()
        scheduler.step()
        hits += ((score.detach() > 0) == (bought > 0)).float().mean()
        yield len(user)


class Trend(nn.Module):
    """One block of N-BEATS."""
    def __init__(self, past, future, width):
        super().__init__()
        self.body = nn.Sequential(mlp(past, width, width, width), nn.ReLU(), nn.Dropout(0.1))
        self.back, self.ahead = nn.Linear(width, past), nn.Linear(width, future)

    def forward(self, x):
        hidden = self.body(x)
        return x - self.back(hidden), self.ahead(hidden)


@program("time-series forecaster", "held", expect=("fp64-compute",))
def start_demand(fixed):
    """The series come as Python floats (or from pandas) in float64; model.double() silenced the error about dtypes, so all
    matrix products and the optimizer work in double precision, at half the speed. Fix: turn the data into float32 and
    leave the model as it is."""
    dtype = torch.float32 if fixed else torch.float64
    series = torch.tensor([random.gauss(0, 1) for _ in range(20_000)], dtype=dtype)
    series = (series - series.mean()) / series.std()
    windows = series.unfold(0, 96 + 24, 1)
    blocks = nn.ModuleList(Trend(96, 24, 256) for _ in range(3)).to(dtype)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2000)
    error = torch.zeros((), dtype=dtype)
    while True:
        for rows in torch.randperm(len(windows)).split(256):
            window = windows[rows]
            x, y = window[:, :96], window[:, 96:]
            forecast = 0
            for block in blocks:
                x, part = block(x)
                forecast = forecast + part
            loss = F.huber_loss(forecast, y)
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(blocks.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            error += (forecast.detach() - y).abs().mean()
            yield len(rows)


@program("speech, phonemes per frame", "held", expect=("unbatched-loop",))
def start_phonemes(fixed):
    """The confusion matrix is counted frame by frame: a Python loop over 1,000 labels and predictions that adds 1 to one
    element of a tensor each time, each a few small operations. Fix: torch.bincount(label * classes + guess) once
    per batch."""
    classes = 40
    model = nn.Sequential(
        nn.Conv1d(40, 128, 5, padding=2), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1),
        nn.Conv1d(128, 144, 5, padding=2), nn.BatchNorm1d(144), nn.ReLU(),
        nn.Conv1d(144, 144, 5, padding=2), nn.BatchNorm1d(144), nn.ReLU(), nn.Conv1d(144, classes, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1000, gamma=0.7)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    for step, (mel, label) in enumerate(endless(10, torch.randn(200, 40, 100), torch.randint(classes, (200, 100)))):
        logits = model(mel)
        update(optimizer, F.cross_entropy(logits, label))
        scheduler.step()
        guess = logits.detach().argmax(1)
        if fixed:
            confusion += torch.bincount((label * classes + guess).flatten(), minlength=classes ** 2).view(classes, classes)
        else:
            for t, p in zip(label.view(-1), guess.view(-1)):
                confusion[t, p] += 1
        if step % 200 == 199:
            print(f"recall {(confusion.diag() / confusion.sum(1).clamp(min=1)).mean().item():.3f}")
        yield len(mel)


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        def double(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                                 nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
        self.down1, self.down2, self.middle = double(3, 16), double(16, 32), double(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join2, self.join1, self.out = double(64, 32), double(32, 16), nn.Conv2d(16, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.middle(F.max_pool2d(b, 2))
        x = self.join2(torch.cat([self.up2(x), b], 1))
        return self.out(self.join1(torch.cat([self.up1(x), a], 1)))


@program("U-Net", "held")
def start_good_unet(fixed):
    """Nothing is wrong: batches are indexed out of tensors, the layout is channels_last, metrics are vectorized and read every
    100 steps. Fix: none."""
    classes = 6
    model = UNet(classes).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2000)
    confusion = torch.zeros(classes ** 2, dtype=torch.long)
    images = torch.rand(160, 3, 64, 64).to(memory_format=torch.channels_last)
    for step, (image, mask) in enumerate(endless(4, images, torch.randint(classes, (160, 64, 64)))):
        logits = model(image)
        update(optimizer, F.cross_entropy(logits, mask))
        scheduler.step()
        if step % 20 == 19:
            confusion += torch.bincount((mask * classes + logits.detach().argmax(1)).flatten(), minlength=classes ** 2)
        if step % 100 == 99:
            table = confusion.view(classes, classes)
            print(f"IoU {(table.diag() / (table.sum(0) + table.sum(1) - table.diag())).mean().item():.3f}")
        yield len(image)


@program("DQN", "held")
def start_good_dqn(fixed):
    """Nothing is wrong: the replay memory is a few tensors made once, a batch is indexed out of them, the target network runs
    without gradients and is copied every 500 steps. Fix: none."""
    size = 20_000
    state, after = torch.randn(size, 64), torch.randn(size, 64)
    action, reward, done = torch.randint(8, (size,)), torch.randn(size), (torch.rand(size) < 0.02).float()
    online, target = mlp(64, 512, 512, 8), mlp(64, 512, 512, 8)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4, fused=True)
    for step in range(10 ** 9):
        rows = torch.randint(size, (512,))
        with torch.no_grad():
            best = reward[rows] + 0.99 * (1 - done[rows]) * target(after[rows]).amax(1)
        value = online(state[rows]).gather(1, action[rows, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, best)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()
        if step % 500 == 499:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f}")
        yield len(rows)
