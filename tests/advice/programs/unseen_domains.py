"""Training programs as practitioners of different application domains write them."""

import copy
import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import endless, mlp, program, update


@program("keyword spotting with reverberation, depthwise-separable 1-d CNN", "held",
         expect=("direct-convolution",))
def domain_keyword_reverb(fixed):
    """The reverberation augments each batch with a room impulse response of 2000 taps by a direct conv1d, where each
    output sample costs 2000 multiplications. Fix: convolve by FFT (rfft, product, irfft); same result to rounding."""
    def separable(inside, outside, stride):
        return nn.Sequential(nn.Conv1d(inside, inside, 9, stride, 4, groups=inside), nn.Conv1d(inside, outside, 1),
                             nn.BatchNorm1d(outside), nn.ReLU())

    net = nn.Sequential(nn.Conv1d(1, 32, 80, 16), nn.BatchNorm1d(32), nn.ReLU(), separable(32, 64, 2),
                        separable(64, 64, 1), separable(64, 128, 2), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                        nn.Linear(128, 12))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    rooms = torch.randn(20, 2000) * torch.exp(-torch.arange(2000) / 300.0)
    rooms = rooms / rooms.norm(dim=1, keepdim=True)

    def reverberate(waves, room):
        if not fixed:
            return F.conv1d(F.pad(waves[:, None], (len(room) - 1, 0)), room.flip(0)[None, None])
        size = 2 ** math.ceil(math.log2(waves.shape[1] + len(room) - 1))
        wet = torch.fft.irfft(torch.fft.rfft(waves, size) * torch.fft.rfft(room, size), size)
        return wet[:, None, :waves.shape[1]]

    for waves, labels in endless(12, torch.randn(504, 8000) * 0.1, torch.randint(12, (504,))):
        waves = reverberate(waves, rooms[torch.randint(len(rooms), ()).item()])
        update(optimizer, F.cross_entropy(net(waves), labels))
        yield len(labels)


class OrganNet(nn.Module):
    """A small 3-d encoder-decoder."""
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(1, 12, 3, 2, 1), nn.InstanceNorm3d(12), nn.LeakyReLU())
        self.deep = nn.Sequential(nn.Conv3d(12, 24, 3, 2, 1), nn.InstanceNorm3d(24), nn.LeakyReLU(),
                                  nn.ConvTranspose3d(24, 12, 2, 2), nn.LeakyReLU())
        self.head = nn.ConvTranspose3d(24, classes, 2, 2)

    def forward(self, volume):
        shallow = self.stem(volume)
        return self.head(torch.cat([shallow, self.deep(shallow)], 1))


@program("abdominal CT segmentation, 3-d encoder-decoder, Dice loss", "held",
         expect=("invariant-in-loop",))
def domain_ct_dice(fixed):
    """The Dice loss takes the softmax of the whole logits anew in its loop over the organs, and so does its backward
    pass, for each organ. Fix: one softmax before the loop (and all organs at once)."""
    organs = 7
    net = OrganNet(organs)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.99, nesterov=True)

    def dice_loop(logits, mask):
        score = 0
        for organ in range(organs):
            predicted, truth = logits.softmax(1)[:, organ], (mask == organ).float()
            score = score + (2 * (predicted * truth).sum() + 1) / (predicted.sum() + truth.sum() + 1)
        return 1 - score / organs

    def dice_at_once(logits, mask):
        predicted = logits.softmax(1)
        hit = predicted.gather(1, mask[:, None])[:, 0]
        size = torch.bincount(mask.flatten(), minlength=organs)
        both = torch.zeros(organs).index_add(0, mask.flatten(), hit.flatten())
        return 1 - ((2 * both + 1) / (predicted.sum((0, 2, 3, 4)) + size + 1)).mean()

    dice = dice_at_once if fixed else dice_loop
    for volume, mask in endless(1, torch.randn(12, 1, 32, 64, 64), torch.randint(organs, (12, 32, 64, 64))):
        update(optimizer, dice(net(volume), mask))
        yield len(volume)


class SessionRecommender(nn.Module):
    """A GRU over the items of a session; scores are inner products with item vectors."""
    def __init__(self, items, width):
        super().__init__()
        self.item = nn.Embedding(items, width)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, session, candidates, all_scores):
        user = self.gru(self.item(session))[1][0]
        if all_scores:
            return (user @ self.item.weight.T).gather(1, candidates)
        return torch.einsum("bd,bcd->bc", user, self.item(candidates))


@program("session recommender, GRU4Rec with sampled softmax", "held",
         expect=("late-selection",))
def domain_session_recommender(fixed):
    """The loss is a softmax over the clicked item and 20 sampled ones, but the model scores the whole catalogue and
    gathers those 21 scores. Fix: look up the 21 item vectors and score only them; same loss to rounding."""
    net = SessionRecommender(20_000, 48)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    sessions, clicked = torch.randint(20_000, (8192, 12)), torch.randint(20_000, (8192, 1))
    for session, positive in endless(256, sessions, clicked):
        candidates = torch.cat([positive, torch.randint(20_000, (len(session), 20))], 1)
        scores = net(session, candidates, all_scores=not fixed)
        update(optimizer, F.cross_entropy(scores, torch.zeros(len(session), dtype=torch.long)))
        yield len(session)


class GraspQ(nn.Module):
    """The value of each of the gripper's discrete motions in a camera image."""
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
                                 nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.act = mlp(64 * 36 + 4, 256, 12)

    def forward(self, image, pose):
        return self.act(torch.cat([self.see(image), pose], 1))


@program("robot grasping, maxmin DQN from camera images", "held",
         expect=("unread-gradients",))
def domain_grasp_dqn(fixed):
    """The bootstrapped target is neither detached nor made under no_grad, so the backward pass runs through the two
    target networks, too, whose gradients nobody uses. Fix: make the target under torch.no_grad(). As often in DQN
    code, the online network is trained as in the fixed variant: the optimizer and zero_grad know only its parameters."""
    online = GraspQ()
    lagging = nn.ModuleList([copy.deepcopy(online), copy.deepcopy(online)])
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    count = 1024
    memory = (torch.rand(count, 3, 48, 48), torch.randn(count, 4), torch.randint(12, (count, 1)), torch.rand(count),
              torch.rand(count, 3, 48, 48), torch.randn(count, 4), (torch.rand(count) < 0.9).float())
    for step in itertools.count():
        chosen = torch.randint(count, (32,))
        image, pose, action, reward, next_image, next_pose, goes_on = (part[chosen] for part in memory)
        with torch.set_grad_enabled(not fixed):
            best = torch.stack([target(next_image, next_pose) for target in lagging]).amin(0).amax(1)
            wanted = reward + 0.95 * goes_on * best
        value = online(image, pose).gather(1, action)[:, 0]
        update(optimizer, F.smooth_l1_loss(value, wanted))
        if step % 200 == 199:
            lagging[step // 200 % 2].load_state_dict(online.state_dict())
        yield len(chosen)


class MoleculeNet(nn.Module):
    """Message passing over bonds, then a sum over the atoms of a molecule."""
    def __init__(self, width=96, layers=3):
        super().__init__()
        self.atom = nn.Embedding(12, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.near = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = mlp(width, width, 1)

    def forward(self, atoms, bonds, molecule, count, dense):
        state, (source, sink) = self.atom(atoms), bonds
        if dense:
            adjacency = torch.zeros(len(atoms), len(atoms))
            adjacency[sink, source] = 1
        for own, near in zip(self.own, self.near):
            if dense:
                gathered = adjacency @ state
            else:
                gathered = torch.zeros_like(state).index_add(0, sink, state[source])
            state = state + torch.relu(own(state) + near(gathered))
        return self.out(torch.zeros(count, state.shape[1]).index_add(0, molecule, state))[:, 0]


@program("molecule solubility, graph network", "held", expect=("sparse-kept-dense",), also=("sync-data-loading",))
def domain_molecule_graph(fixed):
    """The neighbours of a batch of molecules are summed by a product with the dense adjacency matrix of all atoms of
    the batch, of which 0.1 % is not zero. Fix: gather and index_add along the bonds; same sums to rounding."""
    net = MoleculeNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)

    def molecule():
        atoms = int(torch.randint(14, 35, ()))
        chain = torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)])
        rings = torch.tensor([[start, start + 5] for start in range(0, atoms - 6, 8)]).T
        bonds = torch.cat([chain, rings], 1)
        return torch.randint(12, (atoms,)), torch.cat([bonds, bonds.flip(0)], 1), torch.randn(())

    def collate(group):
        sizes = torch.tensor([len(atoms) for atoms, _, _ in group])
        starts = (sizes.cumsum(0) - sizes).tolist()
        return (torch.cat([atoms for atoms, _, _ in group]),
                torch.cat([bonds + start for (_, bonds, _), start in zip(group, starts)], 1),
                torch.arange(len(group)).repeat_interleave(sizes), torch.stack([target for _, _, target in group]))

    loader = DataLoader([molecule() for _ in range(960)], 64, shuffle=True, collate_fn=collate)
    while True:
        for atoms, bonds, owner, targets in loader:
            guess = net(atoms, bonds, owner, len(targets), dense=not fixed)
            update(optimizer, F.mse_loss(guess, targets))
            yield len(targets)


class Allocator(nn.Module):
    """Portfolio weights from a window of returns."""
    def __init__(self, assets):
        super().__init__()
        self.read = nn.LSTM(assets, 128, batch_first=True)
        self.weigh = nn.Linear(128, assets)

    def forward(self, window):
        return self.weigh(self.read(window)[1][0][0]).softmax(-1)


@program("portfolio allocation, LSTM, mean-variance utility", "held",
         expect=("broadcast-contraction",))
def domain_portfolio_covariance(fixed):
    """The covariance of the assets in a window is the mean of outer products that are all written to memory first
    (batch x days x assets x assets). Fix: a batched matrix product, X^T X / days; same loss to rounding."""
    assets, days = 60, 60
    net = Allocator(assets)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    market = torch.randn(4000, assets) * 0.01
    for _ in itertools.count():
        start = torch.randint(4000 - days - 5, (48,))
        window = market[start[:, None] + torch.arange(days)]
        ahead = market[start[:, None] + days + torch.arange(5)].sum(1)
        centred = window - window.mean(1, keepdim=True)
        if fixed:
            covariance = centred.transpose(1, 2) @ centred / days
        else:
            covariance = (centred[:, :, :, None] * centred[:, :, None, :]).mean(1)
        weights = net(window * 100)
        risk = torch.einsum("bi,bij,bj->b", weights, covariance, weights)
        update(optimizer, (5 * risk - (weights * ahead).sum(1)).mean())
        yield len(weights)


class Tiles(Dataset):
    """Random training crops of multispectral scenes."""
    def __init__(self, crop_first):
        self.crop_first = crop_first
        self.scenes = torch.randint(0, 10_000, (24, 12, 256, 256), dtype=torch.int16)
        self.cover = torch.randint(0, 9, (24, 256, 256), dtype=torch.uint8)
        self.mean, self.deviation = torch.full((12, 1, 1), 5000.0), torch.full((12, 1, 1), 2900.0)

    def __len__(self):
        return 24 * 16

    def prepare(self, bands):
        return ((bands.float() - self.mean) / self.deviation).clamp(-3, 3)

    def __getitem__(self, index):
        bands, cover = self.scenes[index % 24], self.cover[index % 24]
        top, left = torch.randint(256 - 64, (2,)).tolist()
        place = (..., slice(top, top + 64), slice(left, left + 64))
        bands = self.prepare(bands[place]) if self.crop_first else self.prepare(bands)[place]
        turns = int(torch.randint(4, ()))
        return bands.rot90(turns, (1, 2)), cover[place].long().rot90(turns)


@program("land cover mapping, fully convolutional net on 12 bands", "held",
         expect=("late-selection",), also=("sync-data-loading",))
def domain_land_cover_tiles(fixed):
    """The dataset converts and normalizes a whole 256 x 256 scene of 12 bands for each sample and then keeps a crop of
    64 x 64, a sixteenth of it. Fix: crop first, then convert and normalize; the samples are the same."""
    net = nn.Sequential(nn.Conv2d(12, 32, 4, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 1),
                        nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 2, dilation=2), nn.ReLU(),
                        nn.Conv2d(64, 9 * 16, 1), nn.PixelShuffle(4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader(Tiles(crop_first=fixed), 16, shuffle=True)
    while True:
        for bands, cover in loader:
            update(optimizer, F.cross_entropy(net(bands), cover))
            yield len(bands)


class LineReader(nn.Module):
    """A convolutional recurrent network that reads lines of text for CTC."""
    def __init__(self, letters):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 24, 7, 4, 3), nn.ReLU(), nn.Conv2d(24, 32, 3, (2, 1), 1),
                                  nn.ReLU(), nn.Conv2d(32, 48, (4, 3), 1, (0, 1)), nn.ReLU())
        self.read = nn.GRU(48, 48)
        self.name = nn.Linear(48, letters + 1)

    def forward(self, lines):
        columns = self.look(lines).squeeze(2).permute(2, 0, 1)
        return self.name(self.read(columns)[0]).log_softmax(-1)


@program("text line OCR, CRNN with CTC, word accuracy", "held",
         expect=("unbatched-loop",))
def domain_ocr_accuracy(fixed):
    """The accuracy of each step decodes greedily with an indexing, an argmax and an item() for each single column of
    each line, 2304 of each. Fix: one argmax over all columns and one tolist(), then plain Python; same result."""
    net = LineReader(40)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def decode(best):
        text, last = [], 0
        for letter in best:
            if letter != last and letter != 0:
                text.append(letter)
            last = letter
        return text

    running = 0.0
    for lines, words in endless(48, torch.rand(480, 1, 32, 192), torch.randint(1, 41, (480, 8))):
        scores = net(lines)
        lengths = torch.full((len(lines),), len(scores)), torch.full((len(lines),), 8)
        update(optimizer, F.ctc_loss(scores, words, *lengths, zero_infinity=True))
        scores = scores.detach()
        if fixed:
            best = scores.argmax(-1).T.tolist()
        else:
            best = [[scores[column, line].argmax().item() for column in range(len(scores))]
                    for line in range(len(lines))]
        right = sum(decode(row) == word for row, word in zip(best, words.tolist()))
        running = 0.98 * running + 0.02 * right / len(lines)
        yield len(lines)


class OthelloNet(nn.Module):
    """Policy and value of a board."""
    def __init__(self, width=40):
        super().__init__()
        self.first = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
                                                  nn.ReLU()) for _ in range(3))
        self.policy = nn.Sequential(nn.Conv2d(width, 2, 1), nn.Flatten(), nn.Linear(128, 65))
        self.value = nn.Sequential(nn.Conv2d(width, 1, 1), nn.Flatten(), nn.Linear(64, 1), nn.Tanh())

    def forward(self, boards):
        state = self.first(torch.stack([boards == 1, boards == -1], 1).float())
        for block in self.blocks:
            state = state + block(state)
        return self.policy(state), self.value(state)[:, 0]


@program("Othello self-play learner, small AlphaZero", "held",
         expect=("late-selection",))
def domain_othello_replay(fixed):
    """Each batch is drawn from a replay buffer of 1,000,000 positions with randperm(1,000,000)[:128], which shuffles
    all indices for 128 of them. Fix: torch.randint; equivalent training, only the random choice differs (a position may
    be drawn twice, with a probability of 1 %)."""
    count = 1_000_000
    boards = torch.randint(-1, 2, (count, 8, 8), dtype=torch.int8)
    moves, results = torch.randint(65, (count,)), torch.randint(-1, 2, (count,)).float()
    net = OthelloNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    while True:
        chosen = torch.randint(count, (128,)) if fixed else torch.randperm(count)[:128]
        policy, value = net(boards[chosen])
        update(optimizer, F.cross_entropy(policy, moves[chosen]) + F.mse_loss(value, results[chosen]))
        yield len(chosen)


@program("gravity inversion, convolutional decoder, correlated station noise", "held",
         expect=("constant-rebuilt", "explicit-inverse"), also=("layout-transpose",))
def domain_gravity_inversion(fixed):
    """The misfit weighs residuals with the inverse of the station covariance, and inverts that constant 700 x 700
    matrix in each step. Fix: invert (or factor) it once before training; same loss."""
    stations = 700
    place = torch.rand(stations, 2) * 50
    covariance = torch.exp(-torch.cdist(place, place) / 5) + 0.1 * torch.eye(stations)
    kernel = 1 / (1 + torch.cdist(place, torch.cartesian_prod(torch.arange(32.0), torch.arange(32.0)) * 1.6)) ** 2
    net = nn.Sequential(nn.Linear(64, 32 * 64), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)),
                        nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
                        nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    class Misfit(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("covariance", covariance)
            self.precision = torch.linalg.inv(covariance) if fixed else None

        def forward(self, residual):
            precision = self.precision if fixed else torch.linalg.inv(self.covariance)
            return ((residual @ precision) * residual).sum(1).mean()

    misfit = Misfit()
    for codes, gravity in endless(32, torch.randn(512, 64), torch.randn(512, stations)):
        density = net(codes)
        roughness = density.diff(dim=2).abs().mean() + density.diff(dim=3).abs().mean()
        update(optimizer, misfit(density.flatten(1) @ kernel.T - gravity) / stations + 0.1 * roughness)
        yield len(codes)


class PatchForecaster(nn.Module):
    """Patches of a window as tokens of a small transformer."""
    def __init__(self, patch=16, tokens=21, width=96, horizon=96):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, width)
        self.place = nn.Parameter(torch.zeros(tokens, width))
        layer = nn.TransformerEncoderLayer(width, 4, 192, dropout=0.0, batch_first=True, norm_first=True)
        self.mix = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(tokens * width, horizon)

    def forward(self, window):
        tokens = window.unfold(1, self.patch, self.patch)
        return self.head(self.mix(self.embed(tokens) + self.place).flatten(1))


@program("electricity load forecasting, patch transformer, averaged weights", "held")
def good_domain_load_forecast(fixed):
    """Nothing is wrong: windows are one gather from a table of series, the average of the weights is one fused call,
    the loss is read once in 20 steps."""
    past, horizon = 336, 96
    table = torch.randn(64, 8000).cumsum(1) * 0.05
    windows = table.unfold(1, past + horizon, 1)  # a view
    net = PatchForecaster(horizon=horizon)
    weights = list(net.parameters())
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=5e-4, fused=True)
    total = torch.zeros(())
    for step in itertools.count(1):
        window = windows[torch.randint(64, (64,)), torch.randint(windows.shape[1], (64,))]
        level, scale = window[:, :past].mean(1, keepdim=True), window[:, :past].std(1, keepdim=True) + 1e-3
        window = (window - level) / scale
        loss = F.huber_loss(net(window[:, :past]), window[:, past:])
        update(optimizer, loss)
        with torch.no_grad():
            torch._foreach_lerp_(average, weights, 0.01)
            total += loss.detach()
            if step % 20 == 0:
                print(step, total.item() / 20)
                total.zero_()
        yield len(window)


class Tagger(nn.Module):
    """A bidirectional LSTM tagger with a word and a spelling vector (a bag of hashed letter n-grams)."""
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(8000, 64)
        self.spelling = nn.EmbeddingBag(2000, 32, mode="sum")
        self.read = nn.LSTM(96, 96, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(192, 17)

    def forward(self, words, grams):
        spelled = self.spelling(grams.flatten(0, 1)).unflatten(0, words.shape)
        return self.tag(self.read(torch.cat([self.word(words), spelled], -1))[0])


@program("part-of-speech tagging, batches of sentences of one length", "held", period=4)
def good_domain_bucket_tagger(fixed):
    """Nothing is wrong: sentences are grouped by length, so that there is no padding; batches have about as many
    words each, so shapes change from step to step, but not the work."""
    net = Tagger()
    groups = [(torch.randint(8000, (count * 8, length)), torch.randint(2000, (count * 8, length, 6)),
               torch.randint(17, (count * 8, length))) for length, count in ((8, 128), (16, 64), (24, 43), (32, 32))]
    batches = [endless(len(group[0]) // 8, *group) for group in groups]
    optimizer = torch.optim.Adam([{"params": [*net.word.parameters(), *net.spelling.parameters()], "lr": 2e-3},
                                  {"params": [*net.read.parameters(), *net.tag.parameters()], "lr": 1e-3}], fused=True)
    for words, grams, tags in itertools.chain.from_iterable(zip(*batches)):
        optimizer.zero_grad()
        F.cross_entropy(net(words, grams).flatten(0, 1), tags.flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0, foreach=True)
        optimizer.step()
        yield words.numel()
