"""What goes unnoticed for months: eight training programs with one mistake each, and two in which nothing is wrong."""

import math
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from harness import endless, mlp, program, update


@program("machine translation, GRU with attention", "held", expect=("invariant-in-loop",))
def translation_keys_in_decoder_loop(fixed):
    """The attention projects the encoder's outputs to keys anew for every target word, although they stay the same for the
    whole sentence. Fix: project them once before the decoder's loop."""
    vocabulary, width, words = 1000, 128, 15
    embed_source, embed_target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
    encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
    to_key, to_query, to_score = nn.Linear(2 * width, width), nn.Linear(width, width), nn.Linear(width, 1, bias=False)
    cell, to_word = nn.GRUCell(3 * width, width), nn.Linear(width, vocabulary)
    model = nn.ModuleList([embed_source, embed_target, encoder, to_key, to_query, to_score, cell, to_word])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    pairs = torch.randint(vocabulary, (480, 24)), torch.randint(vocabulary, (480, words + 1))
    for source, target in endless(24, *pairs):
        memory = encoder(embed_source(source))[0]
        keys, inputs = to_key(memory), embed_target(target[:, :-1])
        hidden, outputs = memory.new_zeros(len(source), width), []
        for word in inputs.unbind(1):
            if not fixed:
                keys = to_key(memory)  # cause:
            scores = to_score(torch.tanh(keys + to_query(hidden)[:, None]))
            context = (scores.softmax(1).transpose(1, 2) @ memory)[:, 0]
            hidden = cell(torch.cat([word, context], 1), hidden)
            outputs.append(hidden)
        logits = to_word(torch.stack(outputs, 1))
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()))
        yield len(source)


class SmallUNet(nn.Module):
    """A U-Net of two levels."""
    def __init__(self, classes):
        super().__init__()
        self.top, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.bottom, self.up = nn.Conv2d(32, 32, 3, padding=1), nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.merge, self.out = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(16, classes, 1)

    def forward(self, x):
        skip = F.relu(self.top(x))
        deep = F.relu(self.bottom(F.relu(self.down(skip))))
        return self.out(F.relu(self.merge(torch.cat([skip, self.up(deep)], 1))))


@program("U-Net segmentation", "held", expect=("unbatched-loop",))
def unet_dice_class_by_class(fixed):
    """The Dice loss takes the classes in a Python loop over slices of the probabilities: in backward every slice becomes a zero
    tensor of the size of all classes, and these are added up. Fix: sum over batch and pixels for all classes at once."""
    classes = 59
    model = SmallUNet(classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images, labels = torch.rand(40, 3, 64, 64), torch.randint(classes, (40, 64, 64))
    numbers = torch.arange(classes).view(-1, 1, 1)
    for image, label in endless(4, images, labels):
        logits = model(image)
        chance, truth = logits.softmax(1), (label[:, None] == numbers).float()
        if fixed:
            overlap = (chance * truth).sum((0, 2, 3))
            total = chance.square().sum((0, 2, 3)) + truth.sum((0, 2, 3))
            dice = ((2 * overlap + 1e-5) / (total + 1e-5)).mean()
        else:
            dice = 0
            for c in range(classes):
                p, t = chance[:, c], truth[:, c]  # cause:
                dice = dice + (2 * (p * t).sum() + 1e-5) / ((p * p).sum() + t.sum() + 1e-5) / classes
        update(optimizer, 0.5 * F.cross_entropy(logits, label) + 0.5 * (1 - dice))
        yield len(image)


@program("graph network, node classification", "held", expect=("repeated-rows",))
def graph_linear_on_every_edge(fixed):
    """The messages gather the source node of each of 16 edges per node and only then apply the linear layer, so that the same
    rows are multiplied 16 times. Fix: apply the layer to the nodes, then gather its results."""
    nodes, edges, width = 1500, 24000, 64
    layers = nn.ModuleList(nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)]) for _ in range(2))
    head = nn.Linear(width, 7)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=5e-3, fused=True)
    features, labels = torch.randn(nodes, width), torch.randint(7, (nodes,))
    source, target = torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)).sort()[0]
    weight = torch.rand(edges, 1) / 16
    while True:
        h = features
        for to_message, to_self in layers:
            if fixed:
                message = to_message(h).index_select(0, source)
            else:
                message = to_message(h.index_select(0, source))  # cause:
            gathered = torch.zeros_like(h).index_add(0, target, message * weight)
            h = F.relu(to_self(h) + gathered)
        update(optimizer, F.cross_entropy(head(h), labels))
        yield nodes


class EncoderBlock(nn.Module):
    """A transformer block with self-attention."""
    def __init__(self, width, fixed):
        super().__init__()
        self.fixed = fixed
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed, self.before, self.behind = mlp(width, 2 * width, width), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        y = self.before(x)
        if self.fixed:
            y, _ = self.attention(y, y, y, need_weights=False)
        else:
            y, _ = self.attention(y, y, y)  # cause:
        x = x + y
        return x + self.feed(self.behind(x))


@program("forecasting, transformer encoder", "held", expect=("attention-by-hand",))
def forecast_attention_weights_thrown_away(fixed):
    """nn.MultiheadAttention is called with its default need_weights=True, so it writes out, and averages over the heads, all
    attention matrices, which nobody reads, instead of using the fused attention. Fix: need_weights=False."""
    series, horizon, width = 336, 24, 64
    model = nn.Sequential(nn.Linear(7, width), EncoderBlock(width, fixed), EncoderBlock(width, fixed), nn.LayerNorm(width))
    head = nn.Linear(width, horizon * 7)
    position = nn.Parameter(0.02 * torch.randn(series, 7))
    parameters = [*model.parameters(), *head.parameters(), position]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    for past, future in endless(6, torch.randn(240, series, 7), torch.randn(240, horizon * 7)):
        forecast = head(model(past + position).mean(1))
        update(optimizer, F.mse_loss(forecast, future))
        yield len(past)


@program("GAN, images", "held", expect=("unread-gradients", "repeated-backward"))
def gan_discriminator_loss_reaches_generator(fixed):
    """The fake images are not detached in the discriminator's step: its backward also runs through the whole generator, whose
    gradients are then zeroed (retain_graph=True got rid of the error message). Fix: fake.detach(), and no retain_graph."""
    generator = nn.Sequential(
        nn.Linear(64, 64 * 8 * 8), nn.Unflatten(1, (64, 8, 8)), nn.ReLU(),
        nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 48, 3, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(48, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(3, 24, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(24, 48, 4, 2, 1), nn.LeakyReLU(0.2),
                           nn.Flatten(), nn.Linear(48 * 8 * 8, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    for real, in endless(16, torch.rand(480, 3, 32, 32) * 2 - 1):
        fake = generator(torch.randn(len(real), 64))
        critic.requires_grad_(True)
        of_critic.zero_grad()
        judged = critic(fake.detach() if fixed else fake)  # cause:
        loss = F.softplus(-critic(real)).mean() + F.softplus(judged).mean()
        loss.backward(retain_graph=not fixed)
        of_critic.step()
        critic.requires_grad_(False)
        update(of_generator, F.softplus(-critic(fake)).mean())
        yield len(real)


@program("reinforcement learning, DQN on frames", "held", expect=("shifted-buffer",))
def dqn_replay_rebuilt_by_cat(fixed):
    """The replay memory drops its oldest transition and appends the new one with torch.cat, which copies the whole memory in
    every step. Fix: a ring buffer, which overwrites one row in place."""
    capacity, actions = 8000, 6
    def network():
        return nn.Sequential(nn.Conv2d(4, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                             nn.Flatten(), mlp(32 * 5 * 5, 128, actions))
    online, target = network(), network()
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4, fused=True)
    memory = torch.randint(256, (capacity, 5, 28, 28), dtype=torch.uint8)  # four frames and the next
    played, rewards = torch.randint(actions, (capacity,)), torch.randn(capacity)
    frames, count = memory[0].clone(), 0
    while True:
        with torch.no_grad():
            action = online(frames[None, 1:] / 255).argmax(1)
        frames = torch.cat([frames[1:], torch.randint(256, (1, 28, 28), dtype=torch.uint8)])  # the game's answer
        slot, count = count % capacity, count + 1
        if fixed:
            memory[slot] = frames
        else:
            memory, slot = torch.cat([memory[1:], frames[None]]), 0  # cause:
        played[slot], rewards[slot] = action[0], random.random()
        rows = torch.randint(capacity, (96,))
        batch = memory[rows] / 255
        with torch.no_grad():
            goal = rewards[rows] + 0.99 * target(batch[:, 1:]).amax(1)
        value = online(batch[:, :4]).gather(1, played[rows, None])[:, 0]
        update(optimizer, F.smooth_l1_loss(value, goal))
        if count % 500 == 0:
            target.load_state_dict(online.state_dict())
        yield len(rows)


class Rows(TensorDataset):
    """A table that hands out the rows of a batch at once."""
    def __getitems__(self, indices):
        return [tensor[indices] for tensor in self.tensors]


def forever(loader):
    """The batches of a loader, epoch after epoch."""
    while True:
        yield from loader


@program("semi-supervised learning on a table", "held", expect=("loader-restarted",))
def pseudo_labels_next_iter_loader(fixed):
    """Every step takes its unlabelled batch with next(iter(loader)): a new iterator shuffles all 400000 rows and only the
    first batch of them is used. Fix: keep one iterator and take the next batch from it."""
    model = mlp(32, 384, 384, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    labelled = forever(DataLoader(Rows(torch.randn(4000, 32), torch.randint(10, (4000,))), 64, shuffle=True, drop_last=True,
                                  collate_fn=list))
    unlabelled = DataLoader(Rows(torch.randn(400000, 32)), 448, shuffle=True, drop_last=True, collate_fn=list)
    stream = forever(unlabelled)
    while True:
        x, y = next(labelled)
        u, = next(stream) if fixed else next(iter(unlabelled))  # cause:
        with torch.no_grad():
            sure, guess = model(u).softmax(1).max(1)
        logits = model(torch.cat([x, u + 0.1 * torch.randn_like(u)]))
        extra = F.cross_entropy(logits[len(x):], guess, reduction="none")
        update(optimizer, F.cross_entropy(logits[:len(x)], y) + (extra * (sure > 0.8)).mean())
        yield len(x) + len(u)


@program("data-parallel training, two gloo ranks", "held", expect=("ddp-bucket-shape",), ranks=2)
def ranks_average_each_parameter(fixed):
    """After backward the gradients are averaged with one all_reduce per parameter, 98 small ones one after the other, while
    nothing else happens. Fix: DistributedDataParallel, which puts them in buckets and sends these during backward."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)  # one core for each rank
    blocks = [nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()) for _ in range(24)]
    model = nn.Sequential(*blocks, nn.Linear(64, 10))
    net = DistributedDataParallel(model) if fixed else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    torch.manual_seed(int(os.environ["RANK"]))
    for x, y in endless(192, torch.randn(1920, 64), torch.randint(10, (1920,))):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        if not fixed:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)  # cause:
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        yield len(x)


@program("Gaussian process with a deep kernel", "held")
def good_gaussian_process_in_double(fixed):
    """Nothing is wrong. A checklist would complain about float64, but the Cholesky factor of a kernel matrix with little noise
    needs it; and about a kernel computed anew from the same data in every step, but it depends on the trained parameters."""
    x, y = torch.rand(400, 8, dtype=torch.float64), torch.randn(400, 1, dtype=torch.float64)
    features = mlp(8, 64, 4).double()
    scale, noise = (nn.Parameter(torch.full((1,), value, dtype=torch.float64)) for value in (0.0, -6.0))
    optimizer = torch.optim.Adam([*features.parameters(), scale, noise], lr=1e-3, fused=True)
    while True:
        z = features(x)
        square = z.square().sum(1, keepdim=True)
        distance = square + square.T - 2 * z @ z.T
        kernel = scale.exp() * torch.exp(-0.5 * distance) + torch.diag((noise.exp() + 1e-6).expand(len(x)))
        factor = torch.linalg.cholesky(kernel)
        white = torch.linalg.solve_triangular(factor, y, upper=False)
        loss = 0.5 * white.square().sum() + factor.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)
        update(optimizer, loss)
        print(f"loss {loss.item():.3f}")
        yield len(x)


@program("speech recognition, CTC", "held")
def good_speech_ctc_loader_without_workers(fixed):
    """Nothing is wrong. A checklist would complain about num_workers=0, pin_memory, loss.item() in every step and the many small
    operators of the GRU, but the features lie in memory, there is no GPU to wait for, and time steps are sequential."""
    lengths = sorted(random.Random(0).randint(120, 200) for _ in range(320))
    speech = [(torch.randn(length, 40), torch.randint(1, 29, (length // 8,))) for length in lengths]
    batches = [list(range(first, first + 16)) for first in range(0, 320, 16)]  # of similar lengths, so hardly any padding
    random.Random(1).shuffle(batches)
    def collate(items):
        sounds, texts = zip(*items)
        sizes = torch.tensor([len(sound) for sound in sounds]), torch.tensor([len(text) for text in texts])
        return pad_sequence(sounds, batch_first=True), torch.cat(texts), *sizes
    loader = DataLoader(speech, batch_sampler=batches, collate_fn=collate, num_workers=0)
    convolution, recurrent, head = nn.Conv1d(40, 160, 5, 2, 2), nn.GRU(160, 160, batch_first=True), nn.Linear(160, 29)
    model = nn.ModuleList([convolution, recurrent, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for sound, text, frames, letters in forever(loader):
        hidden = recurrent(F.relu(convolution(sound.transpose(1, 2))).transpose(1, 2))[0]
        scores = head(hidden).log_softmax(2).transpose(0, 1)
        loss = F.ctc_loss(scores, text, (frames + 1) // 2, letters)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        print(f"loss {loss.item():.3f}")
        yield len(sound)
