"""Programs as people post them under "Why is my PyTorch training so slow?"."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from harness import endless, mlp, program, update


@program("super-resolution with a perceptual loss", "held", expect=("unread-gradients",))
def forum_superres_perceptual(fixed):
    """The pretrained feature network of the perceptual loss still requires gradients, so that the backward pass computes
    those of its weights and goes through the features of the target. Fix: features.requires_grad_(False)."""
    class Upscaler(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.head = nn.Conv2d(3, width, 3, padding=1)
            self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                      nn.Conv2d(width, width, 3, padding=1))
            self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

        def forward(self, low):
            x = self.head(low)
            return self.tail(x + self.body(x))
    model = Upscaler().to(memory_format=torch.channels_last)
    features = nn.Sequential(  # the first blocks of a VGG
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
    features.eval().to(memory_format=torch.channels_last)
    if fixed:
        features.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    high = torch.rand(256, 3, 48, 48).to(memory_format=torch.channels_last)
    for target, low in endless(4, high, F.avg_pool2d(high, 2)):
        output = model(low)
        pixel_loss = F.l1_loss(output, target)
        feature_loss = F.mse_loss(features(output), features(target))
        update(optimizer, pixel_loss + 0.1 * feature_loss)
        yield len(target)


@program("recommender, ratings", "held", expect=("dense-embedding-gradient",))
def forum_recommender(fixed):
    """Every step makes a gradient as large as the embedding tables and updates all of their rows, though a batch touches few.
    Fix: nn.Embedding(..., sparse=True), for which Adagrad does the same."""
    users, items, dim = 60_000, 20_000, 32

    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.user = nn.Embedding(users, dim, sparse=fixed)
            self.item = nn.Embedding(items, dim, sparse=fixed)
            self.top = mlp(2 * dim, 128, 64, 1)

        def forward(self, user, item):
            return self.top(torch.cat([self.user(user), self.item(item)], 1)).squeeze(1)
    model = Recommender()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    ratings = 50_000
    user, item = torch.randint(users, (ratings,)), torch.randint(items, (ratings,))
    stars = torch.randint(1, 6, (ratings,)).float()
    for user_batch, item_batch, target in endless(1000, user, item, stars):
        update(optimizer, F.mse_loss(model(user_batch, item_batch), target))
        yield len(target)


class _Reviews(Dataset):
    """Token ids of reviews of different lengths, and whether they are positive."""
    def __init__(self, count, vocabulary):
        self.texts = [torch.randint(1, vocabulary, (int(n),)) for n in torch.randint(12, 56, (count,))]
        self.labels = torch.randint(2, (count,)).tolist()

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], self.labels[index]


@program("sentiment classifier, transformer encoder", "held", expect=("padded-to-maximum",))
def forum_sentiment(fixed):
    """All texts are padded to 128 tokens (padding="max_length"), though none of the batch has more than 56.
    Fix: pad to the longest text of the batch."""
    vocabulary, max_length, dim = 4000, 128, 64

    def collate(samples):
        texts, labels = zip(*samples)
        padded = pad_sequence(texts, batch_first=True)
        if not fixed:
            padded = F.pad(padded, (0, max_length - padded.shape[1]))
        return padded, torch.tensor(labels)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, dim, padding_idx=0)
            self.position = nn.Parameter(0.02 * torch.randn(max_length, dim))
            layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.out = nn.Linear(dim, 2)

        def forward(self, tokens):
            padding = tokens == 0
            x = self.embed(tokens) + self.position[:tokens.shape[1]]
            x = self.encoder(x, src_key_padding_mask=padding)
            keep = ~padding.unsqueeze(2)
            return self.out((x * keep).sum(1) / keep.sum(1))
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    loader = DataLoader(_Reviews(640, vocabulary), batch_size=8, shuffle=True, collate_fn=collate)
    while True:
        for tokens, labels in loader:
            update(optimizer, F.cross_entropy(model(tokens), labels))
            yield len(labels)


@program("electricity load forecast, LSTM", "held", expect=("fp64-compute",))
def forum_load_forecast(fixed):
    """The data came as float64 and the model was made .double() to get rid of the error about dtypes, so that everything is
    computed in double precision. Fix: data and model in float32."""
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 64, num_layers=2, batch_first=True)
            self.head = nn.Linear(64, 24)

        def forward(self, window):
            hidden, _ = self.lstm(window)
            return self.head(hidden[:, -1])
    # hourly values of a csv file
    hours = torch.arange(6000, dtype=torch.float64)
    series = torch.stack([torch.sin(2 * math.pi * hours / period) for period in (24, 168, 12, 48, 720, 36)], 1)
    series += 0.1 * torch.randn(6000, 6, dtype=torch.float64)
    model = Forecaster()
    if fixed:
        series = series.float()
    else:
        model = model.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    history, ahead, batch = 36, 24, 32
    steps = torch.arange(history)
    while True:
        start = torch.randint(len(series) - history - ahead, (batch, 1))
        window = series[start + steps]
        target = series[start + history + torch.arange(ahead), 0]
        update(optimizer, F.mse_loss(model(window), target))
        yield batch


@program("graph convolution, citation network", "held", expect=("sparse-kept-dense",))
def forum_citations_gcn(fixed):
    """The normalized adjacency matrix, of whose entries 0.3 % are not zero, is multiplied as a dense one.
    Fix: a sparse matrix (adjacency.to_sparse_coo() or an index_add over the edges)."""
    nodes, edges, words, classes = 2400, 7000, 128, 7
    source, target = torch.randint(nodes, (2, edges))
    adjacency = torch.eye(nodes)
    adjacency[source, target] = 1
    adjacency[target, source] = 1
    scale = adjacency.sum(1).rsqrt()
    adjacency = scale[:, None] * adjacency * scale
    if fixed:
        adjacency = adjacency.to_sparse_coo()

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(words, 96)
            self.second = nn.Linear(96, classes)

        def forward(self, x):
            x = F.relu(adjacency @ self.first(x))
            return adjacency @ self.second(x)
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    x, labels = torch.randn(nodes, words), torch.randint(classes, (nodes,))
    train = torch.randperm(nodes)[:1000]
    while True:
        update(optimizer, F.cross_entropy(model(x)[train], labels[train]))
        yield len(train)


@program("clothes classifier with running accuracy", "held", expect=("unbatched-loop",))
def forum_fashion_accuracy(fixed):
    """The accuracy is counted with Python's sum(), which takes the elements of the tensor one by one.
    Fix: (predicted == labels).sum()."""
    model = nn.Sequential(nn.Flatten(), mlp(28 * 28, 128, 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.rand(8 * 1024, 1, 28, 28), torch.randint(10, (8 * 1024,))
    correct, seen = torch.tensor(0), 0
    for x, y in endless(1024, images, labels):
        logits = model(x)
        update(optimizer, F.cross_entropy(logits, y))
        predicted = logits.argmax(1)
        if fixed:
            correct += (predicted == y).sum()
        else:
            correct += sum(predicted == y)
        seen += len(y)
        if seen % (100 * 1024) == 0:
            print(f"accuracy {correct.item() / seen:.3f}")
        yield len(y)


@program("physics-informed network, Burgers' equation", "held", expect=("repeated-forward",))
def forum_burgers_pinn(fixed):
    """Each derivative calls the network again and builds its own graph of first derivatives.
    Fix: compute u once, both of its derivatives in one call, and the second derivative from the first."""
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                        nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    viscosity = 0.01 / math.pi

    def u(x, t):
        return net(torch.cat([x, t], 1))

    def derive(y, *wanted):
        return torch.autograd.grad(y, wanted, torch.ones_like(y), create_graph=True)

    def u_t(x, t):
        return derive(u(x, t), t)[0]

    def u_x(x, t):
        return derive(u(x, t), x)[0]

    def u_xx(x, t):
        return derive(u_x(x, t), x)[0]
    x0 = torch.linspace(-1, 1, 100)[:, None]
    while True:
        x = (torch.rand(1500, 1) * 2 - 1).requires_grad_()
        t = torch.rand(1500, 1).requires_grad_()
        if fixed:
            value = u(x, t)
            along_x, along_t = derive(value, x, t)
            residual = along_t + value * along_x - viscosity * derive(along_x, x)[0]
        else:
            residual = u_t(x, t) + u(x, t) * u_x(x, t) - viscosity * u_xx(x, t)
        initial = u(x0, torch.zeros_like(x0)) + torch.sin(math.pi * x0)
        update(optimizer, residual.square().mean() + initial.square().mean())
        yield len(x)


class _Clips(Dataset):
    """Clips of one second with 16 kHz as log spectrograms, and the word that is spoken."""
    def __init__(self, count, once):
        self.waves = torch.randn(count, 16000)
        self.labels = torch.randint(12, (count,)).tolist()
        self.window = torch.hann_window(512)
        self.ready = [self.spectrogram(wave) for wave in self.waves] if once else None

    def spectrogram(self, wave):
        power = torch.stft(wave, 512, 160, window=self.window, return_complex=True).abs().square()
        return torch.log(power[:128].reshape(1, 64, 2, -1).mean(2) + 1e-6)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        return self.ready[index] if self.ready else self.spectrogram(self.waves[index]), self.labels[index]


@program("keyword spotting on spectrograms", "held", expect=("sync-data-loading",))
def forum_keyword_spotting(fixed):
    """The dataset computes the same spectrogram of a clip anew in each epoch. Fix: compute them once, when it is made."""
    loader = DataLoader(_Clips(320, once=fixed), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        for spectrograms, labels in loader:
            update(optimizer, F.cross_entropy(model(spectrograms), labels))
            yield len(labels)


@program("actor-critic, several environments", "held", expect=("unbatched-loop",))
def forum_actor_critic(fixed):
    """While it plays, the policy is called with the observation of one environment at a time.
    Fix: one call with the observations of all environments."""
    envs, horizon, actions = 16, 16, 3
    policy, critic = mlp(8, 128, 128, actions), mlp(8, 128, 128, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=3e-4, fused=True)
    dynamics, push = torch.eye(8) + 0.02 * torch.randn(8, 8), 0.1 * torch.randn(actions, 8)
    state = torch.randn(envs, 8)
    while True:
        noise = -torch.log(-torch.log(torch.rand(horizon, envs, actions)))  # sampling by the Gumbel trick
        states, chosen, rewards = [], [], []
        with torch.no_grad():
            for time in range(horizon):
                if fixed:
                    logits = policy(state)
                else:
                    logits = torch.stack([policy(state[i]) for i in range(envs)])
                action = (logits + noise[time]).argmax(1)
                states.append(state)
                chosen.append(action)
                state = torch.tanh(state @ dynamics + push[action])
                rewards.append(-state.square().sum(1))
            result = critic(state).squeeze(1)
            returns = [result := reward + 0.98 * result for reward in reversed(rewards)][::-1]
        states, chosen, returns = torch.cat(states), torch.cat(chosen), torch.cat(returns)
        values = critic(states).squeeze(1)
        advantage = returns - values.detach()
        log_probs = -F.cross_entropy(policy(states), chosen, reduction="none")
        update(optimizer, F.mse_loss(values, returns) - (log_probs * advantage).mean())
        yield len(states)


@program("U-Net segmentation", "held", expect=("layout-transpose",))
def forum_unet_layout(fixed):
    """Images and model are in the contiguous NCHW layout, which the convolutions of the CPU reorder again and again.
    Fix: .to(memory_format=torch.channels_last) for both."""
    def block(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = block(3, 16), block(16, 32), block(32 + 16, 16)
            self.out = nn.Conv2d(16, 4, 1)

        def forward(self, x):
            a = self.a(x)
            b = F.interpolate(self.b(F.max_pool2d(a, 2)), scale_factor=2)
            return self.out(self.c(torch.cat([a, b], 1)))
    model = UNet()
    images = torch.rand(64, 3, 64, 64)
    if fixed:
        model = model.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for x, y in endless(8, images, torch.randint(4, (64, 64, 64))):
        update(optimizer, F.cross_entropy(model(x), y))
        yield len(x)


@program("small language model", "held")
def good_forum_language_model(fixed):
    """Nothing is wrong."""
    vocabulary, length, dim, heads = 96, 96, 96, 4

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(attended.transpose(1, 2).flatten(2))
            return x + self.feed(self.norm2(x))
    embed, position = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
    model = nn.Sequential(Block(), Block(), nn.LayerNorm(dim), nn.Linear(dim, vocabulary))
    parameters = [*embed.parameters(), *position.parameters(), *model.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=True)
    text, offsets = torch.randint(vocabulary, (100_000,)), torch.arange(length + 1)
    while True:
        window = text[torch.randint(len(text) - length, (8, 1)) + offsets]
        tokens, following = window[:, :-1], window[:, 1:]
        logits = model(embed(tokens) + position.weight)
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), following.flatten()))
        yield len(tokens)


@program("denoising autoencoder of machine vibrations", "held")
def good_forum_vibrations(fixed):
    """Nothing is wrong."""
    encoder, decoder = mlp(512, 512, 256, 48), mlp(48, 256, 512, 512)
    model = nn.Sequential(encoder, decoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    signals = torch.randn(8192, 512)
    running, step = torch.zeros(()), 0
    for clean, in endless(512, signals):
        noisy = clean + 0.1 * torch.randn_like(clean)
        loss = F.mse_loss(model(noisy), clean)
        update(optimizer, loss)
        # report now and then
        running += loss.detach()
        step += 1
        if step % 200 == 0:
            print(f"step {step}: loss {running.item() / 200:.4f}")
            running.zero_()
        yield len(clean)
