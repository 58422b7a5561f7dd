"""Programs with mistakes that users make often, and two good ones, written without knowledge of the tool they judge."""

import contextlib
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from harness import endless, mlp, program, update


@program("recommender, embeddings and MLP", "held", expect=("sync-data-loading",))
def click_recommender(fixed):
    """All data is in memory, but the loader fetches it sample by sample and stacks 1024 samples to a batch.
    Fix: let the sampler hand over the indices of a whole batch, so that a batch is one indexing operation."""
    user, item = nn.Embedding(5000, 32), nn.Embedding(2000, 32)
    head = mlp(32 + 32 + 8, 128, 64, 1)
    layers = nn.ModuleList([user, item, head])
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3, fused=True)
    count = 65536
    data = TensorDataset(torch.randint(5000, (count,)), torch.randint(2000, (count,)), torch.randn(count, 8),
                         torch.randint(2, (count,)).float())
    if fixed:
        loader = DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 1024, drop_last=True))
    else:
        loader = DataLoader(data, batch_size=1024, shuffle=True, drop_last=True)
    while True:
        for users, items, context, clicked in loader:
            scores = head(torch.cat((user(users), item(items), context), 1)).squeeze(1)
            update(optimizer, F.binary_cross_entropy_with_logits(scores, clicked))
            yield len(clicked)


@program("GAN, fully connected", "held", expect=("unread-gradients",))
def digit_gan(fixed):
    """The discriminator's loss on generated images is propagated back through the generator, too, whose gradients
    are then thrown away. Fix: fake.detach() for the discriminator's step."""
    generator, discriminator = mlp(64, 512, 512, 784), mlp(784, 256, 128, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, fused=True)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, fused=True)
    ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)
    for real, in endless(128, torch.randn(8192, 784)):
        discriminator.requires_grad_(True)
        fake = generator(torch.randn(128, 64))
        if fixed:
            fake = fake.detach()
        update(of_discriminator, F.binary_cross_entropy_with_logits(discriminator(real), ones)
               + F.binary_cross_entropy_with_logits(discriminator(fake), zeros))
        discriminator.requires_grad_(False)
        fake = generator(torch.randn(128, 64))
        update(of_generator, F.binary_cross_entropy_with_logits(discriminator(fake), ones))
        yield len(real)


@program("transformer, text classification", "held", expect=("padded-to-maximum",))
def review_classifier_padded(fixed):
    """Every text is padded to the longest length the tokenizer allows, 128, though none here has 50 tokens.
    Fix: pad a batch to the longest text in it."""
    embed, place = nn.Embedding(4000, 64, padding_idx=0), nn.Embedding(128, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 2)
    layers = nn.ModuleList([embed, place, encoder, head])
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4, fused=True)
    lengths = torch.randint(36, 50, (2048, 1))
    tokens = torch.randint(1, 4000, (2048, 128)) * (torch.arange(128) < lengths)
    for texts, labels in endless(16, tokens, torch.randint(2, (2048,))):
        if fixed:
            texts = texts[:, :(texts != 0).sum(1).max()]
        padding = texts == 0
        hidden = encoder(embed(texts) + place.weight[:texts.shape[1]], src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(2)
        update(optimizer, F.cross_entropy(head((hidden * kept).sum(1) / kept.sum(1)), labels))
        yield len(labels)


@program("GNN, node classification on one graph", "held", expect=("sparse-kept-dense",))
def citation_gcn_dense(fixed):
    """The normalised adjacency matrix, of which 0.3 % are not zero, is stored and multiplied as a dense matrix.
    Fix: store it as a sparse matrix."""
    nodes, edges = 1600, 3200
    one, other = torch.randint(nodes, (2, edges))
    adjacency = torch.eye(nodes)
    adjacency[one, other] = 1.0
    adjacency[other, one] = 1.0
    scale = adjacency.sum(1).rsqrt()
    adjacency = scale[:, None] * adjacency * scale
    if fixed:
        adjacency = adjacency.to_sparse_coo().coalesce()
    features, labels = torch.randn(nodes, 64), torch.randint(7, (nodes,))
    first, second, last = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 7)
    layers = nn.ModuleList([first, second, last])
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-2, weight_decay=5e-4, fused=True)
    while True:
        hidden = F.relu(adjacency @ first(features))
        hidden = F.relu(adjacency @ second(hidden))
        update(optimizer, F.cross_entropy(adjacency @ last(hidden), labels))
        yield nodes


@program("RL, deep Q-learning", "held", expect=("shifted-buffer",))
def dqn_agent(fixed):
    """The replay memory is rebuilt with torch.cat each time transitions come in: all of it is copied to add eight.
    Fix: allocate it once and overwrite the oldest transitions in place."""
    size, envs = 50_000, 8
    net, target = mlp(32, 128, 128, 4), mlp(32, 128, 128, 4)
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    memory = [torch.randn(size, 32), torch.randint(4, (size,)), torch.randn(size), torch.randn(size, 32)]
    dynamics, states, oldest = 0.1 * torch.randn(4, 32), torch.randn(envs, 32), 0
    while True:
        with torch.no_grad():
            actions = net(states).argmax(1)
        after = 0.9 * states + dynamics[actions] + 0.1 * torch.randn(envs, 32)
        new = states, actions, -after.square().mean(1), after
        if fixed:
            for kept, added in zip(memory, new):
                kept[oldest:oldest + envs] = added
            oldest = (oldest + envs) % size
        else:
            memory = [torch.cat((kept[envs:], added)) for kept, added in zip(memory, new)]
        states, chosen = after, torch.randint(size, (128,))
        seen, did, reward, then = (kept[chosen] for kept in memory)
        with torch.no_grad():
            wanted = reward + 0.99 * target(then).max(1).values
        update(optimizer, F.smooth_l1_loss(net(seen).gather(1, did[:, None]).squeeze(1), wanted))
        yield len(chosen)


@program("contrastive learning, SimCLR loss", "held", expect=("unbatched-loop",))
def simclr_projection(fixed):
    """The contrastive loss is computed in a Python loop, one anchor at a time: hundreds of tiny operations.
    Fix: one matrix of similarities with its diagonal masked, and one cross entropy."""
    net = mlp(128, 256, 256, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    half = 64
    partner = torch.arange(2 * half).roll(half)
    itself = torch.eye(2 * half, dtype=torch.bool)
    for samples, in endless(half, torch.randn(8192, 128)):
        views = torch.cat((samples + 0.1 * torch.randn(half, 128), samples + 0.1 * torch.randn(half, 128)))
        codes = F.normalize(net(views), dim=1)
        if fixed:
            loss = F.cross_entropy((codes @ codes.T / 0.5).masked_fill(itself, -torch.inf), partner)
        else:
            loss = 0.0
            for anchor in range(2 * half):
                similar = torch.exp(codes @ codes[anchor] / 0.5)
                loss = loss - torch.log(similar[partner[anchor]] / (similar.sum() - similar[anchor]))
            loss = loss / (2 * half)
        update(optimizer, loss)
        yield half


@program("speech, keyword spotting with 1-d convolutions", "held", expect=("fp64-compute",))
def keywords_in_double(fixed):
    """The features were stored in float64, as NumPy does, and the network was made double to silence the error.
    Fix: float32 for the features and the network."""
    features = torch.randn(1024, 40, 100, dtype=torch.float64)
    net = nn.Sequential(nn.Conv1d(40, 64, 5, padding=2), nn.ReLU(),
                        nn.Conv1d(64, 64, 5, stride=2, padding=2), nn.ReLU(),
                        nn.Conv1d(64, 64, 5, stride=2, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                        nn.Linear(64, 12))
    if fixed:
        features = features.float()
    else:
        net = net.double()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for inputs, labels in endless(32, features, torch.randint(12, (1024,))):
        update(optimizer, F.cross_entropy(net(inputs), labels))
        yield len(labels)


@program("MLP, data parallel with accumulated gradients", "held", ranks=2,
         expect=("missing-no-sync",))
def accumulating_ddp(fixed):
    """Four backward passes per optimizer step, and DDP averages the gradients over the ranks in each of them.
    Fix: no_sync() for all but the last."""
    torch.set_num_threads(1)  # one core per rank
    dist.init_process_group("gloo")
    rank, parts = dist.get_rank(), 4
    net = DistributedDataParallel(mlp(256, 768, 768, 10), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    data = torch.randn(8192, 256)[rank::2], torch.randint(10, (8192,))[rank::2]
    for inputs, labels in endless(16 * parts, *data):
        optimizer.zero_grad()
        for part, (some, theirs) in enumerate(zip(inputs.chunk(parts), labels.chunk(parts))):
            with net.no_sync() if fixed and part < parts - 1 else contextlib.nullcontext():
                (F.cross_entropy(net(some), theirs) / parts).backward()
        optimizer.step()
        yield len(labels)


@program("diffusion, convolutional denoiser", "held", expect=("cores-idle",))
def image_denoiser(fixed):
    """torch.set_num_threads(1), copied from a script that ran many processes, leaves the other core idle.
    Fix: as many threads as there are cores."""
    if not fixed:
        torch.set_num_threads(1)
    time = mlp(1, 32, 32)
    enter, leave = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
    inner = nn.Sequential(nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1), nn.SiLU())
    layers = nn.ModuleList([time, enter, inner, leave])
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3, fused=True)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    for images, in endless(16, torch.randn(1024, 3, 32, 32)):
        moment, noise = torch.randint(1000, (len(images),)), torch.randn_like(images)
        share = kept[moment][:, None, None, None]
        noisy = share.sqrt() * images + (1 - share).sqrt() * noise
        hidden = enter(noisy) + time(moment[:, None] / 1000)[:, :, None, None]
        update(optimizer, F.mse_loss(leave(inner(hidden)), noise))
        yield len(images)


class _Photos(Dataset):
    """Photos of 96x96 pixels, augmented: cropped and resized to 32x32, flipped, contrast changed."""
    def __init__(self, count):
        self.photos = torch.randint(256, (count, 3, 96, 96), dtype=torch.uint8)

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        side = random.randint(48, 96)
        top, left = random.randint(0, 96 - side), random.randint(0, 96 - side)
        photo = self.photos[index, :, top:top + side, left:left + side].float()
        photo = F.interpolate(photo[None], (32, 32), mode="bilinear", antialias=True)[0] / 255
        if random.random() < 0.5:
            photo = photo.flip(2)
        mean = photo.mean()
        return ((photo - mean) * random.uniform(0.6, 1.4) + mean - 0.5) / 0.25, index % 10


@program("CNN, image classification with a small data set", "held", period=10, warm=10,
         expect=("loader-bound",))
def photo_classifier(fixed):
    """An epoch has 10 steps only, and the loader's workers are started anew for each: a pause every 10 steps.
    Fix: persistent_workers=True."""
    loader = DataLoader(_Photos(320), batch_size=32, shuffle=True, num_workers=2, persistent_workers=fixed)
    net = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1),
                        nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    while True:
        for images, labels in loader:
            update(optimizer, F.cross_entropy(net(images), labels))
            yield len(labels)


@program("distillation, MLP", "held")
def distilled_student(fixed):
    """Nothing is wrong: the teacher runs without gradients, and not in advance since its inputs are new each time."""
    teacher = mlp(128, 512, 512, 10).eval().requires_grad_(False)
    student = mlp(128, 256, 256, 10)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3, fused=True)
    for step, (samples, labels) in enumerate(endless(512, torch.randn(8192, 128), torch.randint(10, (8192,)))):
        inputs = samples + 0.1 * torch.randn_like(samples)
        with torch.no_grad():
            wanted = F.softmax(teacher(inputs) / 2, 1)
        scores = student(inputs)
        soft = F.kl_div(F.log_softmax(scores / 2, 1), wanted, reduction="batchmean")
        loss = 0.5 * F.cross_entropy(scores, labels) + 2.0 * soft
        update(optimizer, loss)
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        yield len(labels)


@program("RNN, language model for text generation", "held")
def character_lstm(fixed):
    """Nothing is wrong: one nn.LSTM over whole sequences, states detached between them, and clipped gradients."""
    embed, lstm, head = nn.Embedding(96, 64), nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 96)
    layers = nn.ModuleList([embed, lstm, head])
    optimizer = torch.optim.Adam(layers.parameters(), lr=2e-3, fused=True)
    text, state = torch.randint(96, (32, 16385)), None
    while True:
        for begin in range(0, 16384, 64):
            inputs, following = text[:, begin:begin + 64], text[:, begin + 1:begin + 65]
            hidden, state = lstm(embed(inputs), state)
            state = tuple(part.detach() for part in state)
            optimizer.zero_grad()
            F.cross_entropy(head(hidden).flatten(0, 1), following.flatten()).backward()
            nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
            optimizer.step()
            yield inputs.numel()
