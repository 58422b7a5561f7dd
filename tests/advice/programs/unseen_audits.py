"""Performance audits: what a consultant found at ten teams, and two teams at which there was nothing to find."""
import copy
import gc
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from harness import endless, mlp, program
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


# --- fraud scoring

class Transactions(Dataset):
    def __init__(self, rows):
        self.amounts = torch.randn(rows, 24)
        self.merchant = torch.randint(5000, (rows,))
        self.fraud = (torch.rand(rows) < 0.03).float()

    def __len__(self):
        return len(self.fraud)

    def __getitem__(self, index):
        return {"amounts": self.amounts[index], "merchant": self.merchant[index], "fraud": self.fraud[index]}


class FraudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.merchant = nn.Embedding(5000, 16)
        self.body = nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(),
                                  nn.Linear(256, 1))

    def forward(self, amounts, merchant):
        return self.body(torch.cat([amounts, self.merchant(merchant)], 1)).squeeze(1)


@program("fraud scoring on tabular transactions", "held", expect=("sync-data-loading",))
def audit_fraud_scoring(fixed):
    """The table lies in memory as tensors, but the loader picks each of a batch's 2048 rows by itself, as a dictionary
    of three tiny tensors, and the default collation stacks the 6144 pieces: many thousand calls per batch. Fix: give
    the dataset the indices of the whole batch (a BatchSampler as sampler, batch_size=None)."""
    data = Transactions(80_000)
    if fixed:
        loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 2048, drop_last=True), batch_size=None)
    else:
        loader = DataLoader(data, batch_size=2048, shuffle=True, drop_last=True)
    model = FraudNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    weight, caught = torch.tensor(30.0), torch.zeros(())
    while True:
        for batch in loader:
            logits = model(batch["amounts"], batch["merchant"])
            loss = F.binary_cross_entropy_with_logits(logits, batch["fraud"], pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            caught += ((logits.detach() > 0) * batch["fraud"]).sum()
            yield len(logits)


# --- satellite images

class Tiles(Dataset):
    """Tiles of 4 bands; an item is a random crop."""
    mean = torch.tensor([0.3, 0.4, 0.35, 0.5]).view(4, 1, 1)
    std = torch.tensor([0.2, 0.2, 0.25, 0.3]).view(4, 1, 1)

    def __init__(self, count, size, crop_first):
        self.tiles = torch.randint(256, (count, 4, size, size), dtype=torch.uint8)
        self.cover = torch.randint(10, (count,))
        self.crop_first = crop_first

    def __len__(self):
        return len(self.tiles)

    def crop(self, image, size=64):
        top, left = torch.randint(image.shape[1] - size + 1, (2,)).tolist()
        return image[:, top:top + size, left:left + size]

    def normalize(self, image):
        return image.float().div_(255).sub_(self.mean).div_(self.std)

    def __getitem__(self, index):
        tile = self.tiles[index]
        image = self.normalize(self.crop(tile)) if self.crop_first else self.crop(self.normalize(tile))
        return image, self.cover[index]


@program("land cover from satellite tiles", "held", expect=("late-selection",), also=("sync-data-loading",))
def audit_satellite_tiles(fixed):
    """Each item converts a whole tile of 4 x 384 x 384 to float and normalises it, and only then cuts the random crop of
    64 x 64 out of it: 35/36 of the conversion is thrown away. Fix: crop the bytes first, then convert the crop."""
    loader = DataLoader(Tiles(96, 384, crop_first=fixed), batch_size=16, shuffle=True, drop_last=True)

    def block(wide, out):
        return [nn.Conv2d(wide, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]

    model = nn.Sequential(*block(4, 32), *block(32, 64), *block(64, 96), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Dropout(0.2), nn.Linear(96, 10)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    right = torch.zeros(())
    while True:
        for image, cover in loader:
            logits = model(image.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, cover)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            right += (logits.detach().argmax(1) == cover).sum()
            yield len(image)


# --- anomaly detection

class Windows(Dataset):
    """Spectra of windows of a turbine's vibration sensors."""
    def __init__(self, sensors, length, window, hop):
        self.series = torch.randn(sensors, length)
        self.starts = range(0, length - window, hop)
        self.taper = torch.hann_window(window)
        self.window = window

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        start = self.starts[index]
        piece = self.series[:, start:start + self.window]
        return torch.fft.rfft((piece - piece.mean(1, keepdim=True)) * self.taper).abs().log1p().flatten()


@program("anomaly detection on turbines", "held", expect=("loader-bound", "loader-restarted"), period=16)
def audit_turbine_anomalies(fixed):
    """An epoch has only 16 batches, and the loader's two workers are ended and started anew for each epoch: the loop waits
    for the forks, for the first batch and for the workers' end. Fix: persistent_workers=True."""
    data = Windows(sensors=8, length=64 * 16 * 64 + 300, window=254, hop=64)
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, drop_last=True, persistent_workers=fixed)
    model = mlp(8 * 128, 384, 64, 384, 8 * 128)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    threshold = torch.zeros(())
    while True:
        for spectra in loader:
            errors = (model(spectra) - spectra).square().mean(1)
            optimizer.zero_grad()
            errors.mean().backward()
            optimizer.step()
            threshold.lerp_(errors.detach().amax(), 0.05)
            yield len(spectra)
        scheduler.step()


# --- medical segmentation

def conv_block(wide, out, stride=1):
    return nn.Sequential(nn.Conv2d(wide, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class Encoder(nn.Module):
    """Pretrained at another team; stays as it is."""
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([conv_block(1, 16), nn.Sequential(conv_block(16, 32, 2), conv_block(32, 32)),
                                     nn.Sequential(conv_block(32, 64, 2), conv_block(64, 64))])

    def forward(self, scan):
        features = []
        for stage in self.stages:
            scan = stage(scan)
            features.append(scan)
        return features


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.mix2, self.mix1 = conv_block(64, 32), conv_block(32, 16)
        self.mask = nn.Conv2d(16, 1, 1)

    def forward(self, full, half, quarter):
        half = self.mix2(torch.cat([self.up2(quarter), half], 1))
        return self.mask(self.mix1(torch.cat([self.up1(half), full], 1)))


def dice_loss(logits, target):
    p = logits.sigmoid()
    return 1 - ((2 * (p * target).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()


@program("segmentation of scans with a frozen encoder", "held", expect=("unread-gradients",))
def audit_scan_segmentation(fixed):
    """Only the decoder is given to the optimizer, but the pretrained encoder runs with gradients: each backward goes
    through its convolutions, too, into .grad tensors that nobody reads (nor zeroes). Fix: run the encoder under no_grad."""
    encoder, decoder = (part.to(memory_format=torch.channels_last) for part in (Encoder().eval(), Decoder()))
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    scans, masks = torch.randn(64, 1, 64, 64), (torch.rand(64, 1, 64, 64) < 0.2).float()
    for scan, mask in endless(4, scans, masks):
        if torch.rand(()) < 0.5:
            scan, mask = scan.flip(3), mask.flip(3)
        with torch.set_grad_enabled(not fixed):
            features = encoder(scan.contiguous(memory_format=torch.channels_last))
        logits = decoder(*features)
        loss = dice_loss(logits, mask) + F.binary_cross_entropy_with_logits(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        yield len(scan)


# --- machine translation

class AdditiveAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, state, memory, keys, padding):
        keys = self.key(memory) if keys is None else keys
        scores = self.score(torch.tanh(self.query(state).unsqueeze(1) + keys)).squeeze(2)
        weights = scores.masked_fill(padding, -math.inf).softmax(1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Translator(nn.Module):
    def __init__(self, words=1000, width=128):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.attention = AdditiveAttention(width)
        self.cell = nn.GRUCell(2 * width, width)
        self.dropout, self.out = nn.Dropout(0.1), nn.Linear(width, words)

    def forward(self, source, target, project_once):
        memory, state = self.encoder(self.dropout(self.source(source)))
        state, padding, states = state[0], source == 0, []
        keys = self.attention.key(memory) if project_once else None
        for word in self.target(target).unbind(1):
            context = self.attention(state, memory, keys, padding)
            state = self.cell(torch.cat([word, context], 1), state)
            states.append(state)
        return self.out(self.dropout(torch.stack(states, 1)))


@program("translation, GRU with additive attention", "held", expect=("invariant-in-loop",))
def audit_translation(fixed):
    """The attention projects all of the encoder's outputs to keys at each of the decoder's 12 words, though they are the
    same for all words: the largest matmul of the model is done 12 times, in backward, too. Fix: project them once per
    batch, before the decoder's loop."""
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    source, target = torch.randint(1, 1000, (320, 32)), torch.randint(1, 1000, (320, 13))
    source[torch.arange(32) >= torch.randint(27, 33, (320, 1))] = 0
    words = torch.zeros(())
    for source_batch, target_batch in endless(16, source, target):
        logits = model(source_batch, target_batch[:, :-1], project_once=fixed)
        loss = F.cross_entropy(logits.flatten(0, 1), target_batch[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        words += loss.detach()
        yield len(source_batch)


# --- ad ranking

class AdRanker(nn.Module):
    """All fields share one table, each with its own range of rows."""
    def __init__(self, fields=20, rows=5000, width=16):
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * rows)
        self.table = nn.Embedding(fields * rows, width)
        self.deep = nn.Sequential(nn.Linear(fields * width, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 64),
                                  nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids):
        vectors = self.table(ids + self.offsets)
        crossed = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return self.deep(vectors.flatten(1)).squeeze(1) + 0.1 * crossed


def l2_penalty(model, strength):
    return strength / 2 * sum(parameter.pow(2).sum() for parameter in model.parameters())


@program("ad ranking", "held", expect=("parameter-penalty",), also=("dense-embedding-gradient",))
def audit_ad_ranking(fixed):
    """The L2 penalty is a term of the loss over all parameters, so that each step squares and sums the whole table of
    1.6 million numbers, and backward makes a second gradient as large as the table and adds it to the first. Fix: Adam's
    weight_decay, which adds the same strength * parameter to the gradient inside the fused update."""
    strength = 1e-5
    model = AdRanker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=strength if fixed else 0, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5000, 0.5)
    seen = torch.zeros(())
    for ids, click in endless(256, torch.randint(5000, (256 * 40, 20)), (torch.rand(256 * 40) < 0.1).float()):
        logloss = F.binary_cross_entropy_with_logits(model(ids), click)
        loss = logloss if fixed else logloss + l2_penalty(model, strength)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        seen.lerp_(logloss.detach(), 0.01)
        yield len(ids)


# --- game-playing agent

def advantages_each(rewards, values, dones, gamma=0.99, lam=0.95):
    """Generalised advantage estimates, one environment after the other."""
    result = torch.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        last = 0.0
        for t in reversed(range(len(rewards))):
            alive = 1 - dones[t, env]
            delta = rewards[t, env] + gamma * values[t + 1, env] * alive - values[t, env]
            last = delta + gamma * lam * alive * last
            result[t, env] = last
    return result


def advantages_together(rewards, values, dones, gamma=0.99, lam=0.95):
    alive = 1 - dones
    deltas = rewards + gamma * values[1:] * alive - values[:-1]
    decay, last, result = gamma * lam * alive, torch.zeros(rewards.shape[1]), []
    for delta, factor in zip(reversed(deltas.unbind()), reversed(decay.unbind())):
        last = torch.addcmul(delta, factor, last)
        result.append(last)
    return torch.stack(result[::-1])


@program("game-playing agent, PPO", "held", expect=("unbatched-loop",))
def audit_game_agent(fixed):
    """The advantages of a rollout are computed number by number: 16 environments x 32 moves in a Python loop of about
    fifteen tiny tensor operations each. Fix: loop over the moves only, with all environments as one vector, and
    compute what does not depend on the loop before it."""
    estimate = advantages_together if fixed else advantages_each
    actor, critic = mlp(64, 256, 256, 8), mlp(64, 256, 256, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-4, fused=True)
    moves, envs = 32, 16
    rollouts = [(torch.randn(moves + 1, envs, 64), torch.randint(8, (moves, envs)), torch.randn(moves, envs),
                 (torch.rand(moves, envs) < 0.02).float()) for _ in range(10)]
    while True:
        for states, actions, rewards, dones in rollouts:
            with torch.no_grad():
                values = critic(states).squeeze(2)
                old = actor(states[:-1]).log_softmax(2).gather(2, actions.unsqueeze(2)).flatten()
                advantage = estimate(rewards, values, dones)
                returns = (advantage + values[:-1]).flatten()
                advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).flatten()
            states, actions = states[:-1].flatten(0, 1), actions.flatten()
            for rows in torch.randperm(moves * envs).split(128):
                log_p = actor(states[rows]).log_softmax(1)
                ratio = (log_p.gather(1, actions[rows].unsqueeze(1)).squeeze(1) - old[rows]).exp()
                gain = torch.min(ratio * advantage[rows], ratio.clamp(0.8, 1.2) * advantage[rows]).mean()
                entropy = -(log_p.exp() * log_p).sum(1).mean()
                loss = F.mse_loss(critic(states[rows]).squeeze(1), returns[rows]) / 2 - gain - 0.01 * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
            yield moves * envs


# --- keyword spotting

class KeywordNet(nn.Module):
    def __init__(self, words=12):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(40, 128, 5, stride=2, padding=2, bias=False), nn.BatchNorm1d(128), nn.ReLU())
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv1d(128, 128, 3, padding=1, bias=False), nn.BatchNorm1d(128),
                                                    nn.ReLU()) for _ in range(2)))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(128, words))

    def forward(self, mel):
        return self.head(self.blocks(self.front(mel)).mean(2))


@program("speech keyword spotting", "held", expect=("gc-pause", "work-between-steps"), period=4)
def audit_keyword_spotting(fixed):
    """Somebody once ran out of memory and put a gc.collect() behind every fourth step: a full collection visits every
    Python object of the process, which takes longer than several steps, and frees nothing, for reference counts have
    freed the step's tensors already. Fix: leave the collector alone."""
    model = KeywordNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=100_000)
    right = torch.zeros((), dtype=torch.long)
    clips = endless(32, torch.randn(32 * 16, 40, 98), torch.randint(12, (32 * 16,)))
    for step, (mel, word) in enumerate(clips, 1):
        logits = model(mel)
        loss = F.cross_entropy(logits, word, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        right += (logits.detach().argmax(1) == word).sum()
        if not fixed and step % 4 == 0:
            gc.collect()
        yield len(mel)


# --- molecules

class MoleculeNet(nn.Module):
    def __init__(self, width=96, layers=3):
        super().__init__()
        self.atom = nn.Embedding(30, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.near = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))

    def forward(self, atoms, bonds, molecule, molecules):
        h = self.atom(atoms)
        for own, near in zip(self.own, self.near):
            messages = near(h)
            if bonds.dim() == 2 and bonds.shape[0] == len(atoms):  # an adjacency matrix
                gathered = bonds @ messages
            else:
                gathered = torch.zeros_like(messages).index_add(0, bonds[0], messages.index_select(0, bonds[1]))
            h = F.relu(own(h) + gathered)
        return self.head(h.new_zeros(molecules, h.shape[1]).index_add(0, molecule, h)).squeeze(1)


def molecule_batch(molecules, dense):
    """A batch as one graph: a chain of atoms for each molecule with some rings."""
    atoms, bonds, owner = 0, [], []
    for number in range(molecules):
        size = int(torch.randint(14, 26, ()))
        chain = torch.arange(atoms, atoms + size)
        bonds += [torch.stack([chain[:-1], chain[1:]]), torch.stack([chain[:-5:6], chain[5::6]])]
        owner += [number] * size
        atoms += size
    bonds = torch.cat(bonds, 1)
    bonds = torch.cat([bonds, bonds.flip(0)], 1)
    if dense:
        adjacency = torch.zeros(atoms, atoms)
        adjacency[bonds[0], bonds[1]] = 1
        bonds = adjacency
    return torch.randint(30, (atoms,)), bonds, torch.tensor(owner), torch.randn(molecules)


@program("molecule property prediction", "held", expect=("sparse-kept-dense",))
def audit_molecules(fixed):
    """A batch of 60 molecules is one graph with a dense adjacency matrix of about 1170 x 1170, of which 0.2 % are not zero:
    the messages are summed by matmuls that mostly add zeros. Fix: a list of bonds, index_select and index_add."""
    model = MoleculeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
    batches = [molecule_batch(60, dense=not fixed) for _ in range(16)]
    error = torch.zeros(())
    while True:
        for atoms, bonds, molecule, value in batches:
            predicted = model(atoms, bonds, molecule, len(value))
            loss = F.smooth_l1_loss(predicted, value)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            error += (predicted.detach() - value).abs().mean()
            yield len(value)


# --- document ranking

class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.document = mlp(384, 768, 768, 256), mlp(384, 768, 768, 256)

    def forward(self, query, document):
        return F.normalize(self.query(query), dim=1) @ F.normalize(self.document(document), dim=1).T


@program("document ranking on two processes", "held", expect=("missing-no-sync",), ranks=2)
def audit_document_ranking(fixed):
    """Gradients are accumulated over 4 micro-batches, but each backward makes DDP reduce all gradients over gloo, though
    only the sums of the last one are needed. Fix: run the first 3 micro-batches under no_sync()."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)  # two processes, two cores
    model = DistributedDataParallel(TwoTowers(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    micro, batch = 4, 16
    batches = endless(batch, torch.randn(batch * 16, 384), torch.randn(batch * 16, 384))
    target = torch.arange(batch)

    def accumulate():
        query, document = next(batches)
        loss = F.cross_entropy(model(query, document) / 0.05, target) / micro
        loss.backward()
        return loss.detach()

    running = torch.zeros(())
    while True:
        optimizer.zero_grad()
        if fixed:
            with model.no_sync():
                for _ in range(micro - 1):
                    running += accumulate()
        else:
            for _ in range(micro - 1):
                running += accumulate()
        running += accumulate()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield micro * batch


# --- nothing to find

class DemandNet(nn.Module):
    """Quantiles of the demand of the next days from the last weeks."""
    def __init__(self, features=24, days=14, quantiles=3):
        super().__init__()
        self.past = nn.GRU(features, 128, batch_first=True)
        self.head = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, days * quantiles))
        self.shape = (days, quantiles)

    def forward(self, past):
        return self.head(self.past(past)[1][0]).unflatten(1, self.shape)


@program("demand forecasting", "held")
def audit_good_demand(fixed):
    """Nothing is wrong."""
    model = DemandNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20_000)
    levels, running = torch.tensor([0.1, 0.5, 0.9]), torch.zeros(())
    batches = endless(128, torch.randn(128 * 20, 28, 24), torch.rand(128 * 20, 14, 1))
    for step, (past, future) in enumerate(batches, 1):
        missing = future - model(past)
        loss = torch.maximum(levels * missing, (levels - 1) * missing).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        if step % 100 == 0:
            print(f"step {step}: pinball loss {running.item() / 100:.4f}")
            running.zero_()
        yield len(past)


class EventBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = mlp(width, 4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


@program("churn from sequences of events", "held")
def audit_good_churn(fixed):
    """Nothing is wrong."""
    events, head = nn.Embedding(500, 96), nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 1))
    model = nn.Sequential(events, EventBlock(96, 4), EventBlock(96, 4), head)
    average = copy.deepcopy(model).requires_grad_(False)
    ours, theirs = list(model.parameters()), list(average.parameters())
    optimizer = torch.optim.AdamW(ours, lr=1e-3, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=100_000)
    for history, left in endless(32, torch.randint(500, (32 * 40, 48)), (torch.rand(32 * 40, 48) < 0.2).float()):
        loss = F.binary_cross_entropy_with_logits(model(history).squeeze(2), left)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(ours, 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            torch._foreach_lerp_(theirs, ours, 0.01)
        yield len(history)
