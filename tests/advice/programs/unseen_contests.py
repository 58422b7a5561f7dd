"""Programs as people write them for contests, courses and prototypes."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from harness import endless, mlp, program, update


@program("GRU seq2seq with additive attention", "held", expect=("invariant-in-loop",))
def contest_seq2seq_translation(fixed):
    """The additive attention projects the encoder's outputs again at each of the decoder's steps, though they stay the
    same for the whole sentence. Fix: project the keys once per batch, before the loop."""
    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.query, self.key, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

        def forward(self, query, values, keys=None):
            keys = self.key(values) if keys is None else keys
            scores = self.score(torch.tanh(self.query(query).unsqueeze(1) + keys))
            return (scores.softmax(1) * values).sum(1)

    class Translator(nn.Module):
        def __init__(self, source=4000, target=1000, width=160):
            super().__init__()
            self.source, self.target = nn.Embedding(source, 64), nn.Embedding(target, 64)
            self.encoder, self.attention = nn.GRU(64, width, batch_first=True), Attention(width)
            self.cell, self.words = nn.GRUCell(64 + width, width), nn.Linear(width, target)

        def forward(self, source, target):
            values, hidden = self.encoder(self.source(source))
            hidden, states, embedded = hidden[0], [], self.target(target)
            keys = self.attention.key(values) if fixed else None
            for word in embedded.unbind(1):
                context = self.attention(hidden, values, keys)
                hidden = self.cell(torch.cat([word, context], 1), hidden)
                states.append(hidden)
            return self.words(torch.stack(states, 1))

    net = Translator()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for source, target in endless(24, torch.randint(4000, (960, 28)), torch.randint(1000, (960, 15))):
        logits = net(source, target[:, :-1])
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()))
        yield len(source)


@program("DCGAN", "held", expect=("unread-gradients", "repeated-backward"))
def contest_dcgan_faces(fixed):
    """The fakes are not detached for the discriminator's loss, so its backward also runs through the generator (kept alive
    with retain_graph=True) for gradients that are zeroed at once. Fix: discriminator(fake.detach())."""
    def up(inputs, outputs):
        return [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]

    generator = nn.Sequential(nn.ConvTranspose2d(64, 128, 4, bias=False), nn.BatchNorm2d(128), nn.ReLU(True),
                              *up(128, 64), *up(64, 48), nn.ConvTranspose2d(48, 3, 4, 2, 1), nn.Tanh())
    discriminator = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2),
                                  nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 16, 1))
    for_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    for real, in endless(32, torch.rand(512, 3, 32, 32) * 2 - 1):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), 64, 1, 1))
        for_d.zero_grad()
        loss_d = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach() if fixed else fake), zeros)
        loss_d.backward(retain_graph=not fixed)
        for_d.step()
        for_g.zero_grad()
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        for_g.step()
        yield len(real)


class LogMel:
    """As in the tutorials: the triangles of the mel filter bank are filled in one by one."""
    def __init__(self, rate=16000, n_fft=512, bands=48):
        self.n_fft, self.window = n_fft, torch.hann_window(n_fft)
        top = 2595 * math.log10(1 + rate / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
        bins = torch.floor((n_fft + 1) * edges / rate).long().tolist()
        self.bank = torch.zeros(bands, n_fft // 2 + 1)
        for band in range(bands):
            left, middle, right = bins[band:band + 3]
            self.bank[band, left:middle] = (torch.arange(left, middle) - left) / max(middle - left, 1)
            self.bank[band, middle:right] = (right - torch.arange(middle, right)) / max(right - middle, 1)

    def __call__(self, wave):
        spectrum = torch.stft(wave, self.n_fft, 256, window=self.window, return_complex=True).abs().square()
        return torch.log(self.bank @ spectrum + 1e-6)


@program("audio tagging CNN", "held", expect=("constant-rebuilt",))
def contest_audio_tagging(fixed):
    """The dataset makes a new LogMel transform, with its filter bank, for each clip in __getitem__. Fix: make it once in
    __init__."""
    class Clips(Dataset):
        def __init__(self):
            self.waves, self.tags = torch.randn(256, 16000), torch.rand(256, 20).gt(0.8).float()
            self.log_mel = LogMel() if fixed else None

        def __len__(self):
            return len(self.waves)

        def __getitem__(self, index):
            log_mel = self.log_mel or LogMel()
            return log_mel(self.waves[index]).unsqueeze(0), self.tags[index]

    net = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                        nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 20))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(Clips(), batch_size=16, shuffle=True)
    while True:
        for mels, tags in loader:
            update(optimizer, F.binary_cross_entropy_with_logits(net(mels), tags))
            yield len(tags)


@program("single-shot detector", "held", expect=("double-argsort",))
def contest_ssd_detection(fixed):
    """Hard negative mining ranks all anchors by a sort and a sort of its indices, to keep the few with the highest loss.
    Fix: topk with the largest number of negatives of the batch, and a mask for the images that want fewer."""
    class Detector(nn.Module):
        def __init__(self, classes=4, boxes=9):
            super().__init__()
            self.classes = classes
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 5, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU())
            self.down = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
            self.what = nn.ModuleList([nn.Conv2d(32, boxes * classes, 1), nn.Conv2d(64, boxes * classes, 3, 1, 1)])
            self.where = nn.ModuleList([nn.Conv2d(32, boxes * 4, 1), nn.Conv2d(64, boxes * 4, 3, 1, 1)])

        def forward(self, images):
            large = self.stem(images)
            maps = large, self.down(large)
            def gather(heads, width):
                return torch.cat([head(one).permute(0, 2, 3, 1).reshape(len(images), -1, width)
                                  for head, one in zip(heads, maps)], 1)
            return gather(self.what, self.classes), gather(self.where, 4)

    def multibox(logits, places, labels, boxes):
        positive = labels > 0
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        wanted = 3 * positive.sum(1, keepdim=True)
        hardness = losses.detach().masked_fill(positive, 0)
        if fixed:
            hardest = hardness.topk(int(wanted.max()), 1).indices
            negative = torch.zeros_like(positive).scatter_(1, hardest, torch.arange(hardest.shape[1]) < wanted)
        else:
            rank = hardness.sort(1, descending=True).indices.sort(1).indices
            negative = rank < wanted
        regression = F.smooth_l1_loss(places[positive], boxes[positive], reduction="sum")
        return (losses[positive | negative].sum() + regression) / positive.sum()

    net = Detector()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    anchors = 9 * (32 * 32 + 16 * 16)
    labels = torch.randint(1, 4, (64, anchors)) * (torch.rand(64, anchors) < 0.003)
    for images, labels, boxes in endless(8, torch.rand(64, 3, 128, 128), labels, torch.randn(64, anchors, 4)):
        update(optimizer, multibox(*net(images), labels, boxes))
        yield len(images)


@program("learning to rank, pairwise loss", "held", expect=("pairs-of-the-whole-batch-masked-to-pairs-of-a-query",))
def contest_ranking_ranknet(fixed):
    """The pairwise loss is computed for all pairs of documents of the batch and then masked to pairs of the same query, which
    are 1 in 40. Fix: as each query has 30 documents, form the pairs within (queries, documents) only."""
    net = mlp(136, 256, 128, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    features, relevance = torch.randn(800, 30, 136), torch.randint(5, (800, 30)).float()
    for features, relevance in endless(40, features, relevance):
        scores = net(features).squeeze(-1)
        if not fixed:
            query = torch.arange(len(scores)).repeat_interleave(scores.shape[1])
            scores, relevance = scores.flatten(), relevance.flatten()
        margin = scores.unsqueeze(-1) - scores.unsqueeze(-2)
        gain = relevance.unsqueeze(-1) - relevance.unsqueeze(-2)
        weight = gain.clamp(min=0)
        if not fixed:
            weight = weight * (query.unsqueeze(-1) == query.unsqueeze(-2))
        update(optimizer, (weight * F.softplus(-margin)).sum() / weight.sum())
        yield len(features)


@program("word2vec, skip-gram with negative sampling", "held", expect=("weighted-draw",))
def contest_word_vectors(fixed):
    """The negatives are drawn with multinomial from the word frequencies expanded to one row per centre word, so each step
    sums up batch x vocabulary frequencies. Fix: draw batch x negatives from the one distribution and reshape (other random
    numbers, same distribution)."""
    class SkipGram(nn.Module):
        def __init__(self, words, width=100):
            super().__init__()
            self.centre, self.context = (nn.Embedding(words, width, sparse=True) for _ in range(2))
            nn.init.zeros_(self.context.weight)

        def forward(self, centre, context, negative):
            centre = self.centre(centre)
            right = (centre * self.context(context)).sum(-1)
            wrong = torch.bmm(self.context(negative), centre.unsqueeze(-1)).squeeze(-1)
            return -(F.logsigmoid(right) + F.logsigmoid(-wrong).sum(1)).mean()

    words, negatives = 20000, 5
    frequency = (1 / torch.arange(1.0, words + 1)) ** 0.75
    net = SkipGram(words)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    corpus = torch.multinomial(1 / torch.arange(1.0, words + 1), 60001, replacement=True)
    for centre, context in endless(512, corpus[:-1], corpus[1:]):
        if fixed:
            negative = torch.multinomial(frequency, len(centre) * negatives, replacement=True).view(-1, negatives)
        else:
            negative = torch.multinomial(frequency.expand(len(centre), -1), negatives, replacement=True)
        update(optimizer, net(centre, context, negative))
        yield len(centre)


def mean_iou(predicted, target, classes):
    """Of images and classes that occur."""
    ious = []
    for guess, truth in zip(predicted, target):
        for label in range(classes):
            inside = ((guess == label) & (truth == label)).sum().item()
            either = ((guess == label) | (truth == label)).sum().item()
            if either:
                ious.append(inside / either)
    return sum(ious) / len(ious)


def mean_iou_of_counts(predicted, target, classes):
    """The same from the images' confusion matrices."""
    image = torch.arange(len(target)).view(-1, 1, 1)
    pairs = (image * classes + target) * classes + predicted
    counts = torch.bincount(pairs.flatten(), minlength=len(target) * classes ** 2)
    counts = counts.view(-1, classes, classes)
    inside = counts.diagonal(dim1=1, dim2=2)
    either = counts.sum(1) + counts.sum(2) - inside
    return (inside / either)[either > 0].mean().item()


@program("street segmentation, small encoder-decoder", "held", expect=("unbatched-loop",))
def contest_segmentation_iou(fixed):
    """The training IoU compares the whole mask with each class, image by image, in a Python loop. Fix: count the pairs of
    target and prediction with one bincount and read the IoU off the confusion matrices."""
    classes = 19
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1),
                        nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 2, 2), nn.ReLU(), nn.Conv2d(32, classes, 1),
                        nn.Upsample(scale_factor=2, mode="bilinear"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ious = []
    for images, masks in endless(16, torch.rand(96, 3, 64, 64), torch.randint(classes, (96, 8, 8)).repeat_interleave(
            4, 1).repeat_interleave(4, 2)):  # masks at half the resolution
        logits = net(images)
        update(optimizer, F.cross_entropy(logits, masks))
        ious = ious[-99:] + [(mean_iou_of_counts if fixed else mean_iou)(logits.detach().argmax(1), masks, classes)]
        yield len(images)


class Photos(Dataset):
    """Photos as decoded, with a jitter of brightness and gamma, and a random crop."""
    def __init__(self, order, side=288, crop=64):
        self.images, self.labels = torch.randint(256, (96, 3, side, side), dtype=torch.uint8), torch.randint(10, (96,))
        self.order, self.crop = order, crop
        self.mean, self.std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def __len__(self):
        return 12 * len(self.images)

    def __getitem__(self, index):
        image, label = (field[index % len(self.images)] for field in (self.images, self.labels))
        gain, gamma = (0.8 + 0.4 * torch.rand(2)).tolist()
        top, left = torch.randint(image.shape[1] - self.crop, (2,)).tolist()
        steps = {"float": lambda x: x.float() / 255,
                 "jitter": lambda x: (x * gain).clamp(0, 1) ** gamma,
                 "normalize": lambda x: (x - self.mean.view(3, 1, 1)) / self.std.view(3, 1, 1),
                 "crop": lambda x: x[:, top:top + self.crop, left:left + self.crop]}
        for step in self.order:
            image = steps[step](image)
        return image, label


@program("image classification, augmentations in loader workers", "held", expect=("loader-bound",),
         warm=6)
def contest_photo_augmentation(fixed):
    """The loader's workers convert, jitter and normalize whole photos of 288 x 288 and crop 64 x 64 of them last. Fix: crop
    first; all else is elementwise, so the crop is the same."""
    order = ["float", "jitter", "normalize"]
    loader = DataLoader(Photos(["crop", *order] if fixed else [*order, "crop"]), batch_size=32, shuffle=True, num_workers=2,
                        persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
                        nn.Conv2d(48, 96, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    while True:
        for images, labels in loader:
            update(optimizer, F.cross_entropy(net(images), labels))
            yield len(labels)


class Average:
    """An exponential moving average of a model's weights, for validation."""
    def __init__(self, net, decay, frozen_too):
        self.decay, self.frozen_too = decay, frozen_too
        self.weights = {name: weight.detach().clone() for name, weight in self.of(net)}

    def of(self, net):
        return [(name, weight) for name, weight in net.named_parameters() if weight.requires_grad or self.frozen_too]

    @torch.no_grad()
    def update(self, net):
        for name, weight in self.of(net):
            self.weights[name].mul_(self.decay).add_(weight, alpha=1 - self.decay)


@program("text classification, frozen word vectors and a CNN", "held", expect=("frozen-average",))
def contest_toxic_comments(fixed):
    """The moving average of the weights is also updated for the frozen table of pretrained word vectors, which is nearly all
    of the model and never changes. Fix: average only parameters that require gradients."""
    class TextCNN(nn.Module):
        def __init__(self, vectors, filters=32):
            super().__init__()
            self.words = nn.Embedding.from_pretrained(vectors, freeze=True, padding_idx=0)
            self.convs = nn.ModuleList([nn.Conv1d(vectors.shape[1], filters, size) for size in (2, 3, 4)])
            self.head = nn.Linear(3 * filters, 6)

        def forward(self, text):
            embedded = self.words(text).transpose(1, 2)
            return self.head(torch.cat([F.relu(conv(embedded)).amax(2) for conv in self.convs], 1))

    net = TextCNN(torch.randn(40000, 200))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    average = Average(net, 0.999, frozen_too=not fixed)
    for text, labels in endless(32, torch.randint(40000, (2048, 48)), torch.rand(2048, 6).gt(0.9).float()):
        update(optimizer, F.binary_cross_entropy_with_logits(net(text), labels))
        average.update(net)
        yield len(labels)


@program("siamese CNN for whale identification", "held", expect=("repeated-forward",))
def contest_siamese_whales(fixed):
    """The siamese net's forward embeds a pair, and the loss calls it for (anchor, positive) and (anchor, negative), so the
    anchors go through the CNN twice with the same weights. Fix: embed each of the three once."""
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(1, 24, 5, 2, 2), nn.GroupNorm(4, 24), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1),
                                     nn.GroupNorm(4, 48), nn.ReLU(), nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                                     nn.Linear(64 * 64, 64))

        def embed(self, images):
            return F.normalize(self.net(images), dim=1)

        def forward(self, left, right):
            return self.embed(left), self.embed(right)

    net = Siamese()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for anchor, positive, negative in endless(32, *torch.rand(3, 384, 1, 64, 64)):
        if fixed:
            (left, near), far = net(anchor, positive), net.embed(negative)
            closeness, distance = F.pairwise_distance(left, near), F.pairwise_distance(left, far)
        else:
            closeness, distance = F.pairwise_distance(*net(anchor, positive)), F.pairwise_distance(*net(anchor, negative))
        update(optimizer, F.relu(closeness - distance + 0.5).mean())
        yield len(anchor)


@program("two-tower recommender", "held")
def good_contest_two_tower(fixed):
    """Nothing is wrong: histories are bags without padding, tables have sparse gradients and an optimizer of their own, and
    the batch's other items are the negatives."""
    items, history = 100000, 40
    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = nn.EmbeddingBag(items, 64, mode="mean", sparse=True)
            self.item = nn.Embedding(items, 64, sparse=True)
            self.left, self.right = mlp(64, 512, 512, 128), mlp(64, 512, 512, 128)

        def forward(self, seen, starts, item):
            return F.normalize(self.left(self.seen(seen, starts)), dim=1), F.normalize(self.right(self.item(item)), dim=1)

    net = Towers()
    sparse = torch.optim.SGD([net.seen.weight, net.item.weight], lr=1.0)
    dense = torch.optim.Adam([*net.left.parameters(), *net.right.parameters()], lr=1e-3)
    log = torch.randint(items, (400000,))
    while True:
        lengths = torch.randint(1, history, (512,))
        ends = lengths.cumsum(0)
        begin = int(torch.randint(len(log) - 512 * history, ()))
        users, liked = net(log[begin:begin + int(ends[-1])], ends - lengths, torch.randint(items, (512,)))
        loss = F.cross_entropy(users @ liked.T / 0.1, torch.arange(512))
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        yield len(lengths)


@program("energy forecast, dilated convolutions", "held")
def good_contest_energy_forecast(fixed):
    """Nothing is wrong: the windows are a view of the series without copies, one index gathers a batch, and the net predicts
    all steps of a window at once."""
    class Block(nn.Module):
        def __init__(self, width, dilation):
            super().__init__()
            self.pad, self.conv = 2 * dilation, nn.Conv1d(width, 2 * width, 3, dilation=dilation)
            self.out = nn.Conv1d(width, width, 1)

        def forward(self, inputs):
            return inputs + self.out(F.glu(self.conv(F.pad(inputs, (self.pad, 0))), 1))

    net = nn.Sequential(nn.Conv1d(8, 48, 1), *(Block(48, 2 ** power) for power in range(5)), nn.Conv1d(48, 3, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    series = torch.randn(8, 50000).cumsum(1)
    series = (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)
    windows = series.unfold(1, 97, 1).transpose(0, 1)
    quantiles = torch.tensor([0.1, 0.5, 0.9]).view(3, 1)
    while True:
        for rows in torch.randperm(len(windows)).split(48)[:-1]:
            batch = windows[rows]
            error = batch[:, :1, 1:] - net(batch[:, :, :-1])
            update(optimizer, torch.maximum(quantiles * error, (quantiles - 1) * error).mean())
            yield len(rows)
