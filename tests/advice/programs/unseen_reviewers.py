"""Programs of reviewers who know neither the engine nor its rules: what people really commit, and four sound loops."""

import contextlib
import json
import math
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

from harness import endless, mlp, program, update


# --- Data sets and loaders ---

@program("time series", "held", expect=("sync-data-loading",), warm=8)
def review_forecast_loader(fixed):
    """A GRU forecasts from windows that a map-style data set parses from JSON lines in the training process, because
    the DataLoader has no workers. The fix is num_workers=2, so that parsing runs beside training."""
    class Windows(Dataset):
        def __init__(self):
            generator = random.Random(0)
            self.lines = [json.dumps({"past": [[round(generator.gauss(0, 1), 4) for _ in range(12)] for _ in range(64)],
                                      "next": generator.gauss(0, 1)}) for _ in range(512)]

        def __len__(self):
            return 100_000  # drawn with replacement: an epoch is long

        def __getitem__(self, index):
            record = json.loads(self.lines[index % len(self.lines)])
            past = torch.tensor(record["past"])
            return (past - past.mean(0)) / past.std(0), torch.tensor([record["next"]])

    gru, head = nn.GRU(12, 48, batch_first=True), nn.Linear(48, 1)
    optimizer = torch.optim.Adam([*gru.parameters(), *head.parameters()], fused=True)
    loader = DataLoader(Windows(), 64, shuffle=True, num_workers=2 if fixed else 0, persistent_workers=fixed)
    while True:
        for past, target in loader:
            update(optimizer, F.mse_loss(head(gru(past)[0][:, -1]), target))
            yield len(past)


def flipped(image):
    """Images mirrored at random: augmentation, so that what a frozen net says of them cannot be stored."""
    return torch.where((torch.rand(len(image)) < 0.5)[:, None, None, None], image.flip(3), image)


@program("MLP on a table", "held", expect=("sync-data-loading",))
def review_table_collate(fixed):
    """A table that lies in memory as one tensor goes through TensorDataset and DataLoader, which take it apart row by
    row and stack the rows again for every batch. The fix indexes the tensors with a batch of shuffled row numbers
    (another shuffle)."""
    rows = torch.randn(60_000, 40)
    labels = (rows[:, 0] * rows[:, 1] > 0).float()
    model = mlp(40, 256, 256, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    loader = DataLoader(TensorDataset(rows, labels), 1500, shuffle=True)

    def epoch():
        if not fixed:
            yield from loader
            return
        for chosen in torch.randperm(len(rows)).split(1500):
            yield rows[chosen], labels[chosen]

    while True:
        for x, y in epoch():
            update(optimizer, F.binary_cross_entropy_with_logits(model(x)[:, 0], y))
            yield len(x)


@program("text classification with padding", "held", expect=("padded-to-maximum",))
def review_encoder_padding(fixed):
    """The collate function pads each batch of short texts to the model's maximum of 192 tokens, and the encoder
    computes all of them. The fix pads to the longest text of the batch; masks keep padding out of attention and out of
    the mean."""
    longest = 192
    texts = [torch.randint(1, 3000, (length,)) for length in torch.randint(44, 57, (2000,)).tolist()]
    labels = torch.randint(0, 4, (2000,))
    words, places = nn.Embedding(3000, 64, padding_idx=0), nn.Embedding(longest, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 4)
    parameters = [p for part in (words, places, encoder, head) for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, 3e-4, fused=True)
    while True:
        for chosen in torch.randperm(len(texts)).split(8):
            batch = nn.utils.rnn.pad_sequence([texts[i] for i in chosen.tolist()], batch_first=True)
            if not fixed:
                batch = F.pad(batch, (0, longest - batch.shape[1]))
            empty = batch == 0
            hidden = encoder(words(batch) + places.weight[:batch.shape[1]], src_key_padding_mask=empty)
            kept = (~empty).unsqueeze(2).float()
            update(optimizer, F.cross_entropy(head((hidden * kept).sum(1) / kept.sum(1)), labels[chosen]))
            yield len(chosen)


@program("DQN with a replay buffer", "held", expect=("host-copy-on-convert",))
def review_dqn_replay(fixed):
    """The replay buffer is a Python list of transitions whose states are lists of floats, so that each update turns
    hundreds of lists into tensors. The fix keeps the buffer in preallocated tensors and indexes them."""
    size, wide, batch = 10_000, 64, 384
    states, actions = torch.randn(size + 1, wide), torch.randint(0, 8, (size,))
    rewards, ends = torch.randn(size), (torch.rand(size) < 0.02).float()
    memory = list(zip(states[:-1].tolist(), actions.tolist(), rewards.tolist(), states[1:].tolist(), ends.tolist()))
    followers = states[1:].clone()
    online, target = mlp(wide, 512, 512, 8), mlp(wide, 512, 512, 8)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), 1e-4, fused=True)
    random.seed(0)
    state, step = [0.0] * wide, 0
    while True:
        with torch.no_grad():
            action = online(torch.tensor(state)).argmax().item()
        following = [0.9 * value + random.gauss(0.0, 0.1) for value in state]
        transition, slot = (state, action, -abs(following[action]), following, 0.0), step % size
        chosen = torch.randint(size, (batch,))
        if fixed:
            for kept, value in zip((states, actions, rewards, followers, ends), transition):
                kept[slot] = torch.tensor(value)
            s, a, r, f, e = (kept[chosen] for kept in (states, actions, rewards, followers, ends))
        else:
            memory[slot] = transition
            s, a, r, f, e = (torch.tensor(column) for column in zip(*(memory[i] for i in chosen.tolist())))
        with torch.no_grad():
            wanted = r + 0.99 * (1 - e) * target(f).max(1).values
        update(optimizer, F.smooth_l1_loss(online(s).gather(1, a[:, None])[:, 0], wanted))
        state, step = following, step + 1
        if step % 500 == 0:
            target.load_state_dict(online.state_dict())
        yield batch


# --- Left on, left in, left out ---

@program("LSTM tagger", "held", expect=("unbatched-loop",))
def review_tagger_metrics(fixed):
    """Hits and the confusion table for an F1 score are counted token by token in a Python loop over tensors in every
    training step. The fix counts all pairs of a batch with one bincount."""
    tags = 12
    tokens, truth = torch.randint(0, 4000, (1920, 40)), torch.randint(0, tags, (1920, 40))
    words, lstm = nn.Embedding(4000, 64), nn.LSTM(64, 48, bidirectional=True, batch_first=True)
    head = nn.Linear(96, tags)
    optimizer = torch.optim.SGD([*words.parameters(), *lstm.parameters(), *head.parameters()], 0.1, fused=True)
    confusion = torch.zeros(tags, tags, dtype=torch.long)
    counts, hits = {(t, p): 0 for t in range(tags) for p in range(tags)}, 0
    for x, y in endless(32, tokens, truth):
        scores = head(lstm(words(x))[0])
        update(optimizer, F.cross_entropy(scores.flatten(0, 1), y.flatten()))
        guesses = scores.argmax(2)
        if fixed:
            confusion += torch.bincount((y * tags + guesses).flatten(), minlength=tags * tags).view(tags, tags)
            hits = confusion.trace()
        else:
            for right, guess in zip(y.flatten(), guesses.flatten()):
                counts[right.item(), guess.item()] += 1
                hits += (guess == right).item()
        yield len(x)


@program("VAE", "held", expect=("fp64-compute",))
def review_vae_double(fixed):
    """The images came as float64 arrays, and model.double() made the complaint about types go away, so that everything
    is computed in float64. The fix converts the images to float32 once; the rest differs by rounding, and the noise is
    drawn anew."""
    images = torch.rand(3200, 784, dtype=torch.float64)
    encoder, decoder = mlp(784, 400, 40), mlp(20, 400, 784)
    if fixed:
        images = images.float()
    else:
        encoder.double()
        decoder.double()
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3, fused=True)
    for (image,) in endless(320, images):
        mean, logvar = encoder(image).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        rebuilt = F.binary_cross_entropy_with_logits(decoder(drawn), image, reduction="sum")
        divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum()
        update(optimizer, (rebuilt + divergence) / len(image))
        yield len(image)


class Double(nn.Sequential):
    """Two convolutions of a U-Net."""
    def __init__(self, inward, outward):
        super().__init__(nn.Conv2d(inward, outward, 3, padding=1), nn.BatchNorm2d(outward), nn.ReLU(inplace=True),
                         nn.Conv2d(outward, outward, 3, padding=1), nn.BatchNorm2d(outward), nn.ReLU(inplace=True))


@program("U-Net for segmentation", "held", expect=("debug-api-on",))
def review_unet_anomaly(fixed):
    """torch.autograd.set_detect_anomaly(True) was left on after the hunt for a NaN: each operation keeps its stack
    trace, and each gradient is searched for NaN. The fix is to switch it off."""
    torch.autograd.set_detect_anomaly(not fixed)
    first, second, bottom = Double(1, 8), Double(8, 16), Double(16, 32)
    up_second, up_first = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
    back_second, back_first, head = Double(32, 16), Double(16, 8), nn.Conv2d(8, 1, 1)
    parts = nn.ModuleList([first, second, bottom, up_second, up_first, back_second, back_first, head])
    optimizer = torch.optim.Adam(parts.parameters(), 1e-3, fused=True)
    for image, mask in endless(4, torch.randn(160, 1, 48, 48), (torch.rand(160, 1, 48, 48) > 0.5).float()):
        wide = first(image)
        middle = second(F.max_pool2d(wide, 2))
        low = bottom(F.max_pool2d(middle, 2))
        middle = back_second(torch.cat([middle, up_second(low)], 1))
        wide = back_first(torch.cat([wide, up_first(middle)], 1))
        update(optimizer, F.binary_cross_entropy_with_logits(head(wide), mask))
        yield len(image)


# --- Gradients that nobody needs ---

class Residual(nn.Module):
    """A block of a small ResNet."""
    def __init__(self, channels):
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm_one, self.norm_two = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))))


def resnet(channels, blocks, classes=10):
    """Residual blocks in two resolutions."""
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *(Residual(channels) for _ in range(blocks)),
                         nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
                         *(Residual(2 * channels) for _ in range(blocks)),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * channels, classes))


@program("distillation of a ResNet", "held", expect=("unread-gradients", "grad-in-validation"))
def review_distill_teacher(fixed):
    """The teacher is in eval mode, but its forward pass is not under no_grad, so that the loss goes back through it and
    fills gradients that no optimizer reads. The fix is torch.no_grad() around the teacher."""
    teacher, student = resnet(16, 2).eval(), resnet(8, 1)
    optimizer = torch.optim.SGD(student.parameters(), 0.05, momentum=0.9, fused=True)
    for image, label in endless(16, torch.randn(640, 3, 32, 32), torch.randint(0, 10, (640,))):
        image = flipped(image)
        with torch.set_grad_enabled(not fixed):
            soft = F.softmax(teacher(image) / 4, 1)
        scores = student(image)
        distance = F.kl_div(F.log_softmax(scores / 4, 1), soft, reduction="batchmean")
        update(optimizer, 16 * distance + F.cross_entropy(scores, label))
        yield len(image)


@program("GAN", "held", expect=("unread-gradients", "repeated-backward"))
def review_gan_detach(fixed):
    """The discriminator's loss is computed on generated images that still hang on the generator, so that its backward
    pass goes through the generator as well, whose gradients are thrown away. The fix generates them under no_grad."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(32, 64, 4), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 48, 4, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
        nn.ConvTranspose2d(48, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())
    critic = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 1, 8))
    for_generator = torch.optim.Adam(generator.parameters(), 2e-4, (0.5, 0.999), fused=True)
    for_critic = torch.optim.Adam(critic.parameters(), 2e-4, (0.5, 0.999), fused=True)
    for (real,) in endless(16, torch.rand(960, 3, 32, 32) * 2 - 1):
        with torch.set_grad_enabled(not fixed):
            fake = generator(torch.randn(len(real), 32, 1, 1))
        update(for_critic, F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean())
        critic.requires_grad_(False)
        update(for_generator, F.softplus(-critic(generator(torch.randn(len(real), 32, 1, 1)))).mean())
        critic.requires_grad_(True)
        yield len(real)


@program("ViT, its head tuned", "held", expect=("unread-gradients",))
def review_vit_frozen(fixed):
    """Only the head of a vision transformer is given to the optimizer, but the body's parameters still require
    gradients, and backward computes them all. The fix is requires_grad_(False) on the body."""
    patches, places = nn.Conv2d(3, 128, 8, stride=8), nn.Parameter(0.02 * torch.randn(1, 64, 128))
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    body, head = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(128, 20)
    if fixed:
        for part in (patches, body, places):
            part.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3, fused=True)
    for image, label in endless(8, torch.randn(320, 3, 64, 64), torch.randint(0, 20, (320,))):
        tokens = patches(flipped(image)).flatten(2).transpose(1, 2) + places
        loss = F.cross_entropy(head(body(tokens).mean(1)), label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield len(image)


@program("recommender", "held", expect=("dense-embedding-gradient",))
def review_recommender_dense(fixed):
    """A batch touches a few thousand of 120000 embedding rows, but the tables give dense gradients, so that every step
    fills and Adagrad reads and writes whole tables. The fix is sparse=True, which gives the same values with
    Adagrad."""
    users, items = nn.Embedding(60_000, 32, sparse=fixed), nn.Embedding(60_000, 32, sparse=fixed)
    tower = mlp(64, 256, 128, 1)
    optimizer = torch.optim.Adagrad([*users.parameters(), *items.parameters(), *tower.parameters()], 0.01)
    user, item = torch.randint(0, 60_000, (2, 65_536))
    clicked = (torch.rand(65_536) < 0.2).float()
    for u, i, y in endless(2048, user, item, clicked):
        scores = tower(torch.cat([users(u), items(i)], 1))[:, 0]
        update(optimizer, F.binary_cross_entropy_with_logits(scores, y))
        yield len(u)


# --- Work that could be smaller ---

@program("small GPT", "held", expect=("attention-by-hand",))
def review_gpt_attention(fixed):
    """Attention is written out: scores, mask, softmax and product, each a tensor of heads x 256 x 256 that is kept for
    backward. The fix is F.scaled_dot_product_attention with is_causal=True."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_one, self.norm_two = nn.LayerNorm(128), nn.LayerNorm(128)
            self.qkv, self.out, self.wide = nn.Linear(128, 384), nn.Linear(128, 128), nn.Linear(128, 512)
            self.narrow = nn.Linear(512, 128)
            self.register_buffer("mask", torch.ones(256, 256, dtype=torch.bool).tril())

        def forward(self, x):
            q, k, v = (t.unflatten(2, (4, 32)).transpose(1, 2) for t in self.qkv(self.norm_one(x)).chunk(3, 2))
            if fixed:
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(2, 3) / math.sqrt(32)
                mixed = F.softmax(scores.masked_fill(~self.mask, float("-inf")), -1) @ v
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.narrow(F.gelu(self.wide(self.norm_two(x))))

    words, places = nn.Embedding(256, 128), nn.Embedding(256, 128)
    body, head = nn.Sequential(Block(), Block(), nn.LayerNorm(128)), nn.Linear(128, 256)
    optimizer = torch.optim.AdamW([p for part in (words, places, body, head) for p in part.parameters()], 3e-4, fused=True)
    for (text,) in endless(4, torch.randint(0, 256, (400, 257))):
        scores = head(body(words(text[:, :-1]) + places.weight))
        update(optimizer, F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten()))
        yield len(text)


@program("masked language model", "held", expect=("ignored-labels", "late-selection"))
def review_mlm_logits(fixed):
    """The head computes logits over the vocabulary for all tokens, and the loss then ignores the 85 % that are not
    masked. The fix selects the masked tokens before the head."""
    words, places = nn.Embedding(9000, 128), nn.Embedding(96, 128)
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, activation="gelu")
    body, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 9000)
    parameters = [p for part in (words, places, body, head) for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, 3e-4, fused=True)
    for (text,) in endless(4, torch.randint(4, 9000, (400, 96))):
        masked = torch.rand(text.shape) < 0.15
        hidden = body(words(text.masked_fill(masked, 3)) + places.weight)
        if fixed:
            loss = F.cross_entropy(head(hidden[masked]), text[masked])
        else:
            truth = text.masked_fill(~masked, -100)
            loss = F.cross_entropy(head(hidden).flatten(0, 1), truth.flatten(), ignore_index=-100)
        update(optimizer, loss)
        yield len(text)


@program("contrastive learning", "held", expect=("broadcast-contraction",))
def review_contrastive_broadcast(fixed):
    """The squared distances of all pairs of embeddings come from a broadcast difference of 256 x 256 x 64 numbers,
    which is kept for backward. The fix takes them from norms and one matrix product, equal up to rounding."""
    encoder = mlp(512, 512, 64)
    optimizer = torch.optim.Adam(encoder.parameters(), 1e-4, fused=True)
    for (sample,) in endless(256, torch.randn(256 * 30, 512)):
        one = F.normalize(encoder(sample + 0.1 * torch.randn_like(sample)), dim=1)
        two = F.normalize(encoder(sample + 0.1 * torch.randn_like(sample)), dim=1)
        if fixed:
            distances = one.square().sum(1)[:, None] + two.square().sum(1)[None] - 2 * one @ two.T
        else:
            distances = ((one[:, None] - two[None]) ** 2).sum(2)
        update(optimizer, F.cross_entropy(-distances / 0.2, torch.arange(len(sample))))
        yield len(sample)


@program("graph network", "held", expect=("constant-rebuilt", "renormalised-adjacency"))
def review_gcn_norm(fixed):
    """The forward pass of a GCN adds self-loops to a graph that never changes, normalises it by degrees and makes the
    sparse matrix, in every step. The fix does so once, before training."""
    nodes, edges = 4000, torch.randint(0, 4000, (2, 40_000))
    x, y, known = torch.randn(nodes, 64), torch.randint(0, 7, (nodes,)), torch.rand(nodes) < 0.5
    layers = nn.ModuleList([nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 7)])
    optimizer = torch.optim.Adam(layers.parameters(), 0.01, weight_decay=5e-4, fused=True)

    def normalised():
        loops = torch.arange(nodes)
        source, target = looped = torch.cat([edges, torch.stack([loops, loops])], 1)
        degree = torch.zeros(nodes).scatter_add_(0, target, torch.ones(len(target)))
        scale = degree.pow(-0.5)
        matrix = torch.sparse_coo_tensor(looped.flip(0), scale[source] * scale[target], (nodes, nodes))
        return matrix.coalesce().to_sparse_csr()

    once = normalised()
    while True:
        graph = once if fixed else normalised()
        hidden = F.relu(graph @ layers[0](x))
        hidden = F.relu(graph @ layers[1](hidden))
        scores = graph @ layers[2](hidden)
        update(optimizer, F.cross_entropy(scores[known], y[known]))
        yield nodes


@program("data parallel with gradient accumulation", "held", expect=("missing-no-sync",), ranks=2)
def review_ddp_sync(fixed):
    """Two processes accumulate gradients over four micro-batches, and DDP reduces them after each of the four. The fix
    wraps all but the last in no_sync(), which gives the same sum up to rounding."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(mlp(256, 768, 768, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, fused=True)
    torch.manual_seed(2 + dist.get_rank())
    batches = endless(64, torch.randn(6400, 256), torch.randint(0, 10, (6400,)))
    while True:
        for number in range(4):
            x, y = next(batches)
            with model.no_sync() if fixed and number < 3 else contextlib.nullcontext():
                (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield 4 * 64


# --- Nothing is wrong with these ---

@program("ResNet", "held")
def review_good_resnet(fixed):
    """Nothing is wrong: images in memory are flipped at random as a batch, the learning rate follows a cosine, and the
    loss is read each hundred steps."""
    model = resnet(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    batches = endless(16, torch.randn(1600, 3, 32, 32), torch.randint(0, 10, (1600,)))
    for step, (image, label) in enumerate(batches):
        loss = F.cross_entropy(model(flipped(image)), label, label_smoothing=0.1)
        update(optimizer, loss)
        schedule.step()
        if step % 100 == 0:
            print(step, loss.item())
        yield len(image)


@program("physics-informed net", "held")
def review_good_pinn(fixed):
    """Nothing is wrong: Burgers' equation needs first and second derivatives of the net, which come from one forward
    pass, and the graph is kept because the loss is differentiated through them."""
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                        nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    while True:
        inside = torch.rand(1500, 2).requires_grad_()
        start = torch.cat([torch.rand(200, 1) * 2 - 1, torch.zeros(200, 1)], 1)
        u = net(inside)
        slope = torch.autograd.grad(u.sum(), inside, create_graph=True)[0]
        curve = torch.autograd.grad(slope[:, 0].sum(), inside, create_graph=True)[0][:, 0]
        residual = slope[:, 1] + u[:, 0] * slope[:, 0] - 0.01 / math.pi * curve
        initial = net(start)[:, 0] + torch.sin(math.pi * start[:, 0])
        update(optimizer, residual.square().mean() + initial.square().mean())
        yield len(inside)


@program("multi-task learning", "held")
def review_good_multitask(fixed):
    """Nothing is wrong: one trunk serves three heads in one forward and one backward pass, learned weights balance the
    losses, and the gradient is clipped."""
    trunk = mlp(128, 768, 768, 256)
    price, kind, sold = nn.Linear(256, 1), nn.Linear(256, 50), nn.Linear(256, 1)
    balance = nn.Parameter(torch.zeros(3))
    parameters = [*trunk.parameters(), *price.parameters(), *kind.parameters(), *sold.parameters(), balance]
    optimizer = torch.optim.AdamW(parameters, 3e-4, fused=True)
    table, prices, kinds = torch.randn(25_600, 128), torch.randn(25_600), torch.randint(0, 50, (25_600,))
    for x, p, k, s in endless(512, table, prices, kinds, (table[:, 0] > 0).float()):
        hidden = F.relu(trunk(x))
        losses = torch.stack([F.mse_loss(price(hidden)[:, 0], p), F.cross_entropy(kind(hidden), k),
                              F.binary_cross_entropy_with_logits(sold(hidden)[:, 0], s)])
        optimizer.zero_grad()
        ((-balance).exp() * losses + balance).sum().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        yield len(x)


@program("audio classification", "held")
def review_good_speech(fixed):
    """Nothing is wrong: a batch of waves is shifted and gets noise, so that its log-mel spectrogram is new each time;
    window and filters were made once, a band is masked at random, and convolutions classify it."""
    random.seed(0)
    window, centres = torch.hann_window(400), torch.linspace(0, 1, 66)[1:-1] ** 2 * 200
    filters = torch.clamp(1 - (torch.arange(201.0)[None] - centres[:, None]).abs() / (2 + centres[:, None] / 8), min=0)
    model = nn.Sequential(nn.Conv1d(64, 96, 5, 2, 2), nn.BatchNorm1d(96), nn.ReLU(), nn.Conv1d(96, 96, 5, 2, 2),
                          nn.BatchNorm1d(96), nn.ReLU(), nn.Conv1d(96, 128, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 30))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    for wave, label in endless(24, 0.1 * torch.randn(480, 16_000), torch.randint(0, 30, (480,))):
        wave = wave.roll(random.randrange(1600), 1) + 0.01 * torch.randn_like(wave)
        power = torch.stft(wave, 400, 160, window=window, return_complex=True).abs().square()
        mel = (filters @ power + 1e-6).log()
        low = random.randrange(56)
        mel[:, low:low + 8] = mel.mean()
        update(optimizer, F.cross_entropy(model(mel), label))
        yield len(wave)
