"""Training jobs of companies: ten with one performance mistake each, two without."""

import math
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from harness import endless, mlp, program, update


@program("ads, shared-bottom multi-task model", "held", expect=("repeated-backward",))
def prod_ads_multitask(fixed):
    """Each task's loss is sent backward on its own (retain_graph), so the shared trunk is differentiated four times a
    step. Fix: add the weighted losses and call backward once."""
    class SharedBottom(nn.Module):
        def __init__(self, tasks):
            super().__init__()
            self.ad = nn.EmbeddingBag(2000, 32)
            self.trunk = mlp(32 + 96, 640, 640, 256)
            self.heads = nn.ModuleDict({task: nn.Linear(256, 1) for task in tasks})

        def forward(self, dense, ads):
            shared = F.relu(self.trunk(torch.cat([self.ad(ads), dense], 1)))
            return {task: head(shared).squeeze(1) for task, head in self.heads.items()}

    weights = {"click": 1.0, "cart": 0.5, "purchase": 2.0, "hide": 0.2}
    model = SharedBottom(weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10000)
    dense, ads = torch.randn(8192, 96), torch.randint(2000, (8192, 10))
    targets = (torch.rand(8192, 4) < 0.2).float()
    for x, bag, y in endless(512, dense, ads, targets):
        logits = model(x, bag)
        losses = {task: weight * F.binary_cross_entropy_with_logits(logits[task], y[:, i])
                  for i, (task, weight) in enumerate(weights.items())}
        optimizer.zero_grad()
        if fixed:
            sum(losses.values()).backward()
        else:
            for loss in losses.values():
                loss.backward(retain_graph=True)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        yield len(x)


@program("search, two towers with hard negatives", "held", expect=("broadcast-contraction",))
def prod_search_hard_negatives(fixed):
    """The distances of all query-document pairs come from a broadcast difference of shape batch x batch x dim, which
    is written, squared, summed and differentiated. Fix: |q|^2 + |d|^2 - 2 q d^T, one matrix product."""
    queries, documents = mlp(256, 768, 512, 128), mlp(384, 768, 512, 128)
    parameters = [*queries.parameters(), *documents.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
    margin, itself = 0.3, torch.eye(160, dtype=torch.bool)

    def distances(q, d):
        if fixed:
            return q.square().sum(1, keepdim=True) + d.square().sum(1) - 2 * q @ d.T
        return (q.unsqueeze(1) - d.unsqueeze(0)).pow(2).sum(-1)

    def mined_loss(q, d):
        apart = distances(q, d)
        positive = apart.diagonal()
        # the nearest wrong document of each query, and the nearest wrong query of each document
        wrong = apart.masked_fill(itself, math.inf)
        hardest = torch.minimum(wrong.amin(1), wrong.amin(0))
        return F.relu(positive - hardest + margin).mean()

    for text, page in endless(160, torch.randn(6400, 256), torch.randn(6400, 384)):
        q, d = F.normalize(queries(text), dim=1), F.normalize(documents(page), dim=1)
        update(optimizer, mined_loss(q, d))
        yield len(text)


@program("fraud, tabular network on warehouse features", "held", expect=("fp64-compute",))
def prod_fraud_features(fixed):
    """The warehouse's doubles reach the network, and the model was made double to fit them, so everything is computed
    in float64. Fix: convert the features to float32 and leave the model in float32."""
    class FeatureStore:
        """Transactions with amounts in cents, as the warehouse exports them."""
        def __init__(self, rows):
            raw = torch.rand(rows, 120, dtype=torch.float64) * 1e4
            self.mean, self.std = raw.mean(0), raw.std(0)
            self.features = (raw - self.mean) / self.std
            self.labels = (torch.rand(rows, dtype=torch.float64) < 0.03).to(torch.float64)
            if fixed:
                self.features, self.labels = self.features.float(), self.labels.float()

    class Trainer:
        def __init__(self, model, store):
            self.model, self.store = model.to(store.features.dtype), store
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5)
            self.weight = torch.tensor(20.0, dtype=store.features.dtype)

        def fit(self):
            for x, y in endless(512, self.store.features, self.store.labels):
                score = self.model(x).squeeze(1)
                update(self.optimizer, F.binary_cross_entropy_with_logits(score, y, pos_weight=self.weight))
                yield len(x)

    yield from Trainer(mlp(120, 512, 512, 256, 1), FeatureStore(8192)).fit()


@program("forecasting, residual MLP blocks with quantile loss", "held", expect=("logging-checkpoint-stall",))
def prod_forecast_checkpoint(fixed):
    """The checkpoint callback writes model and optimizer to disk after every step. Fix: save every few hundred steps
    (or per epoch)."""
    class Block(nn.Module):
        def __init__(self, history, horizon):
            super().__init__()
            self.body = mlp(history, 384, 384, history + horizon)
            self.history = history

        def forward(self, x):
            back, ahead = self.body(x).split([self.history, 96], 1)
            return x - back, ahead

    class Checkpoint:
        def __init__(self, every, path="last.pt"):
            self.every, self.path = every, path

        def on_step_end(self, step):
            if step % self.every == 0:
                torch.save({"step": step, "model": blocks.state_dict(), "optimizer": optimizer.state_dict()}, self.path)

    history, horizon = 168, 24 * 4  # hours; four quantiles of a day
    blocks = nn.ModuleList(Block(history, horizon) for _ in range(4))
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-3, fused=True)
    quantiles = torch.tensor([0.1, 0.5, 0.9, 0.99]).view(1, 4, 1)
    callbacks = [Checkpoint(every=500 if fixed else 1)]
    load = torch.randn(7680, 168), torch.randn(7680, 1, 24)
    for step, (past, future) in enumerate(endless(96, *load), 1):
        forecast = 0
        for block in blocks:
            past, ahead = block(past)
            forecast = forecast + ahead
        error = future - forecast.view(-1, 4, 24)
        update(optimizer, torch.maximum(quantiles * error, (quantiles - 1) * error).mean())
        for callback in callbacks:
            callback.on_step_end(step)
        yield len(future)


@program("document classification, small transformer", "held", expect=("padded-to-maximum",))
def prod_documents_collate(fixed):
    """The collate function pads every batch to the model's 256 tokens although the documents have 20 to 80. Fix: pad
    to the longest document of the batch."""
    class Receipts(Dataset):
        def __init__(self, count):
            lengths = torch.randint(20, 81, (count,)).tolist()
            self.tokens = [torch.randint(1, 4000, (length,)) for length in lengths]
            self.labels = torch.randint(12, (count,)).tolist()

        def __len__(self):
            return len(self.tokens)

        def __getitem__(self, index):
            return self.tokens[index], self.labels[index]

    class Classifier(nn.Module):
        def __init__(self, width=96, longest=256):
            super().__init__()
            self.tokens, self.places = nn.Embedding(4000, width), nn.Embedding(longest, width)
            layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(width, 12)

        def forward(self, ids):
            real = ids != 0
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            x = self.encoder(x, src_key_padding_mask=~real) * real.unsqueeze(2)
            return self.head(x.sum(1) / real.sum(1, keepdim=True))

    def collate(items, max_length=256):
        tokens, labels = zip(*items)
        ids = pad_sequence(tokens, batch_first=True)
        if not fixed:
            ids = F.pad(ids, (0, max_length - ids.shape[1]))
        return ids, torch.tensor(labels)

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    loader = DataLoader(Receipts(2048), batch_size=10, shuffle=True, drop_last=True, collate_fn=collate)
    while True:
        for ids, labels in loader:
            update(optimizer, F.cross_entropy(model(ids), labels))
            yield len(labels)


@program("speech assistant, keyword spotting", "held", expect=("constant-rebuilt",))
def prod_speech_frontend(fixed):
    """The feature function builds the mel filter bank anew for every clip, in a loop over the filters. Fix: build it
    once, when the front end is made."""
    def mel_bank(filters=40, bins=257, rate=16000):
        """Triangles that overlap, evenly spaced in mel."""
        top = 2595 * math.log10(1 + rate / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, filters + 2) / 2595) - 1)
        hertz = torch.linspace(0, rate / 2, bins)
        rows = []
        for low, mid, high in zip(edges[:-2], edges[1:-1], edges[2:]):
            rows.append(torch.minimum((hertz - low) / (mid - low), (high - hertz) / (high - mid)).clamp(min=0))
        return torch.stack(rows)

    class FrontEnd:
        def __init__(self):
            self.window = torch.hann_window(512)
            self.bank = mel_bank() if fixed else None

        def __call__(self, clip):
            spectrum = torch.stft(clip, 512, 256, window=self.window, return_complex=True).abs().square()
            bank = self.bank if self.bank is not None else mel_bank()
            return (bank @ spectrum + 1e-6).log().T

    class Clips(Dataset):
        def __init__(self, count):
            self.waves = [torch.randn(random.Random(i).randint(10000, 16000)) for i in range(count)]
            self.words = torch.randint(20, (count,)).tolist()
            self.front_end = FrontEnd()

        def __len__(self):
            return len(self.waves)

        def __getitem__(self, index):
            # noise added to the wave, so that no two epochs are alike
            wave = self.waves[index]
            return self.front_end(wave + 0.01 * torch.randn_like(wave)), self.words[index]

    def collate(items):
        return pad_sequence([item[0] for item in items], batch_first=True), torch.tensor([item[1] for item in items])

    body = nn.Sequential(nn.Conv1d(40, 128, 5, 2, 2), nn.ReLU(), nn.Conv1d(128, 128, 5, 2, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 20))
    optimizer = torch.optim.SGD(body.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Clips(512), batch_size=24, shuffle=True, drop_last=True, collate_fn=collate)
    while True:
        for mels, words in loader:
            update(optimizer, F.cross_entropy(body(mels.transpose(1, 2)), words))
            yield len(words)


@program("chat model, instruction tuning", "held", expect=("ignored-labels",))
def prod_chat_answers(fixed):
    """The logits over the vocabulary are computed for all positions, though the loss ignores (-100) the prompt, which
    is 80 % of them. Fix: select the hidden states of the answer's positions before the output layer."""
    class ChatModel(nn.Module):
        def __init__(self, vocabulary=8000, width=128):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(128, width)
            self.block = nn.TransformerEncoderLayer(width, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
            self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(128))

        def forward(self, ids, labels):
            hidden = self.tokens(ids) + self.places.weight
            hidden = self.norm(self.block(hidden, src_mask=self.causal, is_causal=True))
            if fixed:
                counted = labels != -100
                hidden, labels = hidden[counted], labels[counted]
            return F.cross_entropy(self.out(hidden).flatten(0, -2), labels.flatten(), ignore_index=-100)

    model = ChatModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
    dialogues = torch.randint(8000, (400, 129))
    ids, labels = dialogues[:, :-1], dialogues[:, 1:].clone()
    prompt = torch.randint(90, 116, (400, 1))
    labels[torch.arange(128) < prompt] = -100  # only the answer is learnt
    for batch, wanted in endless(4, ids, labels):
        loss = model(batch, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        yield len(batch)


@program("robot arm, off-policy critic with target network", "held", expect=("host-copy-on-convert",))
def prod_robot_replay(fixed):
    """The replay buffer keeps transitions as Python lists of floats, and each step turns a thousand sampled ones into
    tensors number by number. Fix: keep the buffer in preallocated tensors and index them."""
    class Replay:
        """Transitions as the controller sends them: state, action, reward, next state."""
        def __init__(self, rows):
            state, action = torch.randn(rows, 42), torch.rand(rows, 7)
            columns = state, action, torch.randn(rows), state.roll(-1, 0)
            self.columns = columns if fixed else [column.tolist() for column in columns]
            self.rows = rows

        def sample(self, count):
            chosen = torch.randint(self.rows, (count,))
            if fixed:
                return [column[chosen] for column in self.columns]
            chosen = chosen.tolist()
            return [torch.tensor([column[i] for i in chosen]) for column in self.columns]

    critic, target = mlp(49, 256, 256, 1), mlp(49, 256, 256, 1)
    target.load_state_dict(critic.state_dict())
    policy = mlp(42, 128, 7)
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-4, fused=True)
    replay = Replay(10000)
    while True:
        state, action, reward, after = replay.sample(1024)
        with torch.no_grad():
            aim = reward + 0.98 * target(torch.cat([after, policy(after)], 1)).squeeze(1)
        update(optimizer, F.smooth_l1_loss(critic(torch.cat([state, action], 1)).squeeze(1), aim))
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), 0.005)
        yield len(reward)


@program("maps, travel times on two processes", "held", expect=("ddp-bucket-shape",), ranks=2)
def prod_maps_travel_times(fixed):
    """The trainer averages the gradients between the processes itself, with one blocking all-reduce for each of 88 small
    parameters. Fix: DistributedDataParallel, which sends them in buckets during the backward (or one flat tensor)."""
    class Residual(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, x):
            return x + self.down(F.relu(self.up(self.norm(x))))

    class Trainer:
        def __init__(self, model):
            self.model = DistributedDataParallel(model, gradient_as_bucket_view=True) if fixed else model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def average_gradients(self):
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

        def step(self, segments, minutes):
            loss = F.huber_loss(self.model(segments).squeeze(1), minutes)
            self.optimizer.zero_grad()
            loss.backward()
            if not fixed:
                self.average_gradients()
            self.optimizer.step()

    torch.set_num_threads(1)  # two processes on this machine
    dist.init_process_group("gloo")
    trainer = Trainer(nn.Sequential(nn.Linear(40, 96), *(Residual(96) for _ in range(14)), nn.Linear(96, 1)))
    own = torch.Generator().manual_seed(100 + dist.get_rank())  # each process has its own region
    regions = torch.randn(4096, 40, generator=own), torch.rand(4096, generator=own)
    for segments, minutes in endless(128, *regions):
        trainer.step(segments, minutes)
        yield len(minutes)


@program("manufacturing, quantisation-aware training", "held", expect=("unbatched-loop",))
def prod_factory_qat(fixed):
    """The weights are fake-quantised one output channel at a time, hundreds of small calls per step. Fix: all channels
    in one call (fake_quantize_per_channel_affine, scales with amax)."""
    def quantised(weight):
        """int8 weights with a scale for each output channel."""
        if fixed:
            scales = weight.detach().flatten(1).abs().amax(1) / 127
            zeros = torch.zeros(len(weight), dtype=torch.int32)
            return torch.fake_quantize_per_channel_affine(weight, scales, zeros, 0, -127, 127)
        channels, zero = [], torch.zeros(1, dtype=torch.int32)
        for channel in weight:
            scale = channel.detach().abs().max() / 127
            channels.append(torch.fake_quantize_per_tensor_affine(channel, scale.view(1), zero, -127, 127))
        return torch.stack(channels)

    class QuantConv(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, quantised(self.weight), self.bias)

    net = nn.Sequential(QuantConv(1, 32, 3, 2, 1), nn.ReLU(), QuantConv(32, 64, 3, 2, 1), nn.ReLU(),
                        QuantConv(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(128, 6))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    # grey pictures of parts, six kinds of defect
    for pictures, defects in endless(16, torch.randn(640, 1, 48, 48), torch.randint(6, (640,))):
        update(optimizer, F.cross_entropy(net(pictures), defects))
        yield len(defects)


@program("ranking with EMA, clipping and a schedule", "held")
def good_prod_ranking(fixed):
    """Nothing is wrong."""
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.parameters = list(model.parameters())
            self.average = [p.detach().clone() for p in self.parameters]
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, fused=True)
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1e-3, 100000)
            self.total, self.count = torch.zeros(()), 0
            self.mixed = torch.cpu._is_avx512_bf16_supported()

        def step(self, features, relevance):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
                scores = self.model(features).squeeze(-1).float()
            loss = F.kl_div(scores.log_softmax(1), relevance, reduction="batchmean")
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
            self.optimizer.step()
            self.scheduler.step()
            torch._foreach_lerp_(self.average, self.parameters, 0.001)
            self.log(loss.detach())

        def log(self, loss, every=200):
            self.total += loss
            self.count += 1
            if self.count % every == 0:
                print(f"step {self.count}: loss {self.total.item() / every:.4f}")
                self.total.zero_()

    trainer = Trainer(mlp(96, 384, 384, 1))
    lists = torch.randn(2048, 20, 96), torch.rand(2048, 20).softmax(1)  # twenty documents for each query
    for features, relevance in endless(128, *lists):
        trainer.step(features, relevance)
        yield len(features)


@program("manufacturing, defect images", "held")
def good_prod_inspection(fixed):
    """Nothing is wrong."""
    def stage(inside, outside):
        return nn.Sequential(nn.Conv2d(inside, outside, 3, 2, 1, bias=False), nn.BatchNorm2d(outside),
                             nn.ReLU(inplace=True))

    net = nn.Sequential(stage(3, 32), stage(32, 64), stage(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(128, 8)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, foreach=True)
    mixed = torch.cpu._is_avx512_bf16_supported()  # bfloat16 only where the CPU computes with it
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    pictures = torch.randn(1024, 3, 48, 48).to(memory_format=torch.channels_last)
    labels = torch.randint(8, (1024,))
    seen, right = 0, torch.zeros((), dtype=torch.long)
    for x, y in endless(64, pictures, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            logits = net(x).float()
        update(optimizer, loss_of(logits, y))
        seen += len(y)
        right += (logits.detach().argmax(1) == y).sum()
        if seen >= 64000:
            print(f"accuracy {right.item() / seen:.3f}")
            seen, right = 0, torch.zeros((), dtype=torch.long)
        yield len(y)
