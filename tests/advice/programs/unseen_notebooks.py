"""What colleagues' notebooks hold: eight training programs with one mistake each, and two in which nothing is wrong."""

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@program("image classifier", "held", expect=("unbatched-loop",))
def confusion_by_hand(fixed):
    """The running confusion matrix of the training batches is filled in Python, an image at a time, with
    tensors as indices. Fix: one bincount for the batch."""
    images, labels = torch.randn(4096, 1, 28, 28), torch.randint(0, 10, (4096,))
    model = nn.Sequential(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
                          nn.Flatten(), nn.Linear(16 * 49, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    confusion = torch.zeros(10, 10, dtype=torch.long)
    for image, label in endless(512, images, labels):
        logits = model(image)
        update(optimizer, F.cross_entropy(logits, label))
        guess = logits.argmax(1)
        if fixed:
            confusion += torch.bincount(label * 10 + guess, minlength=100).view(10, 10)
        else:
            for t, p in zip(label, guess):
                confusion[t, p] += 1  # cause: two reads, an add and a write of one number per image
        yield len(image)


@program("multi-task network", "held", expect=("repeated-backward",))
def tasks_go_back_apart(fixed):
    """Each task's loss is sent backward on its own with retain_graph=True, so the shared trunk is differentiated once per
    task. Fix: add the losses up and call backward once."""
    inputs, classes = torch.randn(4096, 256), torch.randint(0, 20, (4096,))
    amounts, flags = torch.randn(4096, 1), torch.randint(0, 2, (4096, 8)).float()
    trunk = nn.Sequential(mlp(256, 512, 512, 512), nn.ReLU())
    heads = nn.ModuleList([nn.Linear(512, 20), nn.Linear(512, 1), nn.Linear(512, 8)])
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.01, momentum=0.9)
    for x, which, amount, flag in endless(256, inputs, classes, amounts, flags):
        shared = trunk(x)
        kind, size, tags = (head(shared) for head in heads)
        losses = [F.cross_entropy(kind, which), F.mse_loss(size, amount), F.binary_cross_entropy_with_logits(tags, flag)]
        optimizer.zero_grad()
        if fixed:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)  # cause: through the trunk three times
        optimizer.step()
        yield len(x)


@program("tabular model with embeddings", "held", expect=("sync-data-loading",))
def rows_one_by_one(fixed):
    """A table that is in memory as tensors goes through TensorDataset and DataLoader, which index it row by row and stack
    the rows again. Fix: shuffle the row numbers and index the tensors once per batch."""
    codes, numbers = torch.randint(0, 50, (40_000, 6)), torch.randn(40_000, 10)
    targets = torch.randint(0, 2, (40_000,)).float()
    table = nn.Embedding(6 * 50, 16)
    offsets = torch.arange(6) * 50
    model = mlp(6 * 16 + 10, 256, 128, 1)
    optimizer = torch.optim.Adam([*table.parameters(), *model.parameters()], lr=1e-3)
    loader = DataLoader(TensorDataset(codes, numbers, targets), batch_size=1024, shuffle=True, drop_last=True)
    while True:
        batches = loader  # cause: 1024 rows are fetched and collated singly, in the training process
        if fixed:
            batches = ((codes[rows], numbers[rows], targets[rows]) for rows in torch.randperm(40_000)[:39_936].split(1024))
        for code, number, target in batches:
            features = torch.cat([table(code + offsets).flatten(1), number], 1)
            update(optimizer, F.binary_cross_entropy_with_logits(model(features).squeeze(1), target))
            yield len(target)


@program("segmentation", "held", expect=("product-order",))
def classify_after_upsampling(fixed):
    """The head first enlarges all 64 feature maps to full resolution and then classifies each pixel with a 1x1 convolution.
    Fix: classify at low resolution and enlarge the 5 maps of scores, which gives the same scores."""
    images, masks = torch.randn(60, 3, 96, 96), torch.randint(0, 5, (60, 96, 96))
    encoder = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                            nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                            nn.Conv2d(64, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    classify = nn.Conv2d(64, 5, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *classify.parameters()], lr=0.01, momentum=0.9)

    def enlarge(maps):
        return F.interpolate(maps, size=(96, 96), mode="bilinear", align_corners=False)

    for image, mask in endless(6, images, masks):
        features = encoder(image)
        if fixed:
            scores = enlarge(classify(features))
        else:
            scores = classify(enlarge(features))  # cause: 64 maps of full size, forward and backward
        update(optimizer, F.cross_entropy(scores, mask))
        yield len(image)


@program("metric learning", "held", expect=("broadcast-contraction",))
def distances_by_broadcasting(fixed):
    """The triplet loss gets its pairwise distances from a broadcast difference of batch x batch x width numbers. Fix: expand
    the square, so that one matrix product does it."""
    inputs, people = torch.randn(4096, 256), torch.randint(0, 32, (4096,))
    model = mlp(256, 512, 512, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for x, person in endless(128, inputs, people):
        z = F.normalize(model(x))
        if fixed:
            length = z.pow(2).sum(1)
            distance = length[:, None] - 2 * z @ z.T + length
        else:
            distance = (z[:, None] - z[None]).pow(2).sum(2)  # cause: three passes over 2 million numbers, and their backward
        same = person[:, None] == person
        farthest = distance.masked_fill(~same, 0).amax(1)
        nearest = distance.masked_fill(same, 9).amin(1)
        update(optimizer, F.relu(farthest - nearest + 0.3).mean())
        yield len(x)


@program("time-series forecasting", "held", expect=("fp64-compute",))
def double_series(fixed):
    """The series was read as float64, and the model was made double so that the types match. Fix: turn the series into
    float32 and leave the model as it is."""
    series = torch.randn(3000, 12, dtype=torch.float64).cumsum(0)
    series = (series - series.mean(0)) / series.std(0)
    model = nn.Sequential(nn.Conv1d(12, 64, 5, 2, 2), nn.ReLU(), nn.Conv1d(64, 64, 5, 2, 2), nn.ReLU(), nn.Flatten(),
                          mlp(64 * 24, 512, 24 * 12))
    if fixed:
        series = series.float()
    else:
        model.double()  # cause: all of the training in double precision
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    windows = series.unfold(0, 96 + 24, 1)  # (starts, 12, 120)
    while True:
        window = windows[torch.randint(0, len(windows), (128,))]
        update(optimizer, F.l1_loss(model(window[..., :96]), window[..., 96:].flatten(1)))
        yield len(window)


@program("graph network", "held", expect=("diagonal-product", "constant-rebuilt"))
def normalise_every_forward(fixed):
    """Every layer normalises the same fixed adjacency of the sensors again, with products of diagonal matrices, in every
    forward. Fix: normalise it once before training."""
    places = torch.rand(400, 2)
    adjacency = torch.exp(-torch.cdist(places, places) / 0.3)  # dense: every sensor hears every other
    signals, targets = torch.randn(256, 400, 12), torch.randn(256, 400, 3)

    def normalised():
        root = torch.diag(adjacency.sum(1).pow(-0.5))
        return root @ adjacency @ root

    layers = nn.ModuleList([nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 3)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01, momentum=0.9)
    once = normalised()
    for hidden, target in endless(8, signals, targets):
        for number, layer in enumerate(layers):
            graph = once if fixed else normalised()  # cause: two 400^3 products per layer for a constant
            hidden = graph @ layer(hidden)
            hidden = hidden.relu() if number < 2 else hidden
        update(optimizer, F.mse_loss(hidden, target))
        yield len(target)


@program("reinforcement learning", "held", expect=("unbatched-loop",))
def policy_per_environment(fixed):
    """While it collects experience the agent asks the policy about one environment at a time. Fix: one forward for the
    observations of all 32 environments."""
    world, push = torch.randn(24, 24) / 5, torch.randn(4, 24)
    policy = mlp(24, 128, 128, 4)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    state = torch.randn(32, 24)
    while True:
        seen, done, rewards = [], [], []
        with torch.no_grad():
            for _ in range(8):
                if fixed:
                    logits = policy(state)
                else:
                    logits = torch.stack([policy(one) for one in state])  # cause: 32 forwards of batch 1 per move
                action = torch.multinomial(logits.softmax(1), 1).squeeze(1)
                seen.append(state)
                done.append(action)
                state = torch.tanh(state @ world + push[action] + 0.1 * torch.randn(32, 24))
                rewards.append(-state.abs().mean(1))
            gains = torch.stack(rewards).flip(0).cumsum(0).flip(0).flatten()
            gains = (gains - gains.mean()) / gains.std()
        logp = F.log_softmax(policy(torch.cat(seen)), 1)
        update(optimizer, -(logp.gather(1, torch.cat(done)[:, None]).squeeze(1) * gains).mean())
        yield len(gains)


class Block(nn.Module):
    """A transformer's layer."""
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.second(x))


@program("transformer language model", "held")
def good_small_language_model(fixed):
    """A small language model; nothing is wrong: fused attention, fused AdamW, clipped gradients, a loss printed now and
    then."""
    text = torch.randint(0, 512, (100_000,))
    embed, place, head = nn.Embedding(512, 128), nn.Parameter(torch.zeros(64, 128)), nn.Linear(128, 512)
    body = nn.Sequential(Block(128, 4), Block(128, 4), nn.LayerNorm(128))
    parameters = [*embed.parameters(), place, *body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=True)
    span, total, step = torch.arange(65), torch.zeros(()), 0
    while True:
        piece = text[torch.randint(0, len(text) - 65, (16, 1)) + span]
        logits = head(body(embed(piece[:, :-1]) + place))
        loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        total += loss.detach()
        step += 1
        if step % 50 == 0:
            print(f"step {step}: loss {total.item() / 50:.3f}")
            total.zero_()
        yield len(piece)


@program("audio classifier", "held")
def good_keyword_spotter(fixed):
    """Waves are augmented at random and turned into log-mel spectrograms batch by batch, which cannot be done beforehand;
    nothing is wrong."""
    waves, words = torch.randn(512, 8000), torch.randint(0, 12, (512,))
    window, mel = torch.hann_window(400), torch.rand(40, 201) / 201
    model = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                          nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                          nn.Conv2d(64, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for wave, word in endless(32, waves, words):
        with torch.no_grad():
            wave = wave * torch.empty(len(wave), 1).uniform_(0.7, 1.3)
            wave = wave.roll(int(torch.randint(-800, 800, ())), 1)
            power = torch.stft(wave, 400, 160, window=window, return_complex=True).abs().square()
            features = (mel @ power + 1e-6).log().unsqueeze(1)
        update(optimizer, F.cross_entropy(model(features), word, label_smoothing=0.1))
        yield len(wave)
