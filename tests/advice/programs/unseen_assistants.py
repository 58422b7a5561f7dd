"""Training loops as an AI coding assistant or a hurried engineer writes them, one fault each."""
import copy
import math
import random

import torch
import torch.nn.functional as F
from harness import endless, mlp, program, update
from torch import nn
from torch.utils.data import DataLoader, Dataset


@program("LoRA fine-tuning of a small encoder", "held", expect=("merged-adapter",))
def assist_lora(fixed):
    """Every forward pass adds the full matrix B A to the frozen weight, so the backward pass forms the gradient of the
    full matrix, too, although only the two thin ones are trained. Fix: W x + B (A x), with the thin matrices only."""
    class LoraLinear(nn.Module):
        def __init__(self, inputs, outputs, rank=8, alpha=16):
            super().__init__()
            self.base = nn.Linear(inputs, outputs).requires_grad_(False)
            self.lora_a = nn.Parameter(torch.randn(rank, inputs) / rank)
            self.lora_b = nn.Parameter(torch.zeros(outputs, rank))
            self.scale = alpha / rank

        def forward(self, x):
            if fixed:
                return self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale
            return F.linear(x, self.base.weight + self.scale * (self.lora_b @ self.lora_a), self.base.bias)

    class Block(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = LoraLinear(dim, 3 * dim), LoraLinear(dim, dim)
            self.up, self.down = LoraLinear(dim, 4 * dim), LoraLinear(4 * dim, dim)

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    embed = nn.Embedding(5000, 320).requires_grad_(False)
    blocks, head = nn.Sequential(*(Block(320, 5) for _ in range(2))), nn.Linear(320, 2)
    params = [p for m in (blocks, head) for p in m.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=2e-4, fused=True)
    for ids, labels in endless(4, torch.randint(5000, (4 * 90, 16)), torch.randint(2, (4 * 90,))):
        update(optimizer, F.cross_entropy(head(blocks(embed(ids)).mean(1)), labels))
        yield len(ids)


@program("segmentation of patches of medical images", "held", expect=("unbatched-loop",))
def assist_segmentation(fixed):
    """The Dice score of every training batch is computed in loops over thresholds, images and organs, with a handful of
    tiny operations and three .item() for each. Fix: for each threshold, sum over the whole batch's pixels at once."""
    organs, thresholds = 4, (0.3, 0.5, 0.7)

    def dice_scores(probs, masks):
        scores = {}
        for threshold in thresholds:
            preds = probs > threshold
            if fixed:
                overlap, sizes = (preds & masks).sum((2, 3)), preds.sum((2, 3)) + masks.sum((2, 3))
                scores[threshold] = ((2 * overlap + 1e-6) / (sizes + 1e-6)).mean().item()
                continue
            dices = []
            for pred, mask in zip(preds, masks):
                for organ in range(organs):
                    overlap = (pred[organ] & mask[organ]).sum().item()
                    size = pred[organ].sum().item() + mask[organ].sum().item()
                    dices.append((2 * overlap + 1e-6) / (size + 1e-6))
            scores[threshold] = sum(dices) / len(dices)
        return scores

    model = nn.Sequential(
        nn.Conv2d(1, 24, 4, stride=4, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, organs * 16, 1), nn.PixelShuffle(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images, targets = torch.randn(24 * 40, 1, 40, 40), torch.rand(24 * 40, organs, 40, 40) < 0.2
    history = []
    for x, y in endless(24, images, targets):
        logits = model(x)
        update(optimizer, F.binary_cross_entropy_with_logits(logits, y.float()))
        history = (history + [dice_scores(logits.detach().sigmoid(), y)])[-20:]
        yield len(x)


@program("click prediction from user and item ids", "held", expect=("dense-embedding-gradient",))
def assist_recommender(fixed):
    """A batch touches 2,000 rows of tables of 54,000, but their gradients are dense, so that every step clears, fills
    and applies gradients of all rows. Fix: nn.Embedding(sparse=True); Adagrad does the same with sparse gradients."""
    users, items, dim = 36_000, 18_000, 48
    user_table = nn.Embedding(users, dim, sparse=fixed)
    item_table = nn.Embedding(items, dim, sparse=fixed)
    tower = mlp(2 * dim, 256, 128, 1)
    optimizer = torch.optim.Adagrad([*user_table.parameters(), *item_table.parameters(), *tower.parameters()], lr=0.02)
    rows = 1024 * 100
    data = torch.randint(users, (rows,)), torch.randint(items, (rows,)), torch.rand(rows).round()
    for user, item, clicked in endless(1024, *data):
        scores = tower(torch.cat([user_table(user), item_table(item)], dim=1)).squeeze(1)
        update(optimizer, F.binary_cross_entropy_with_logits(scores, clicked))
        yield len(user)


@program("forecasting of many time series", "held", expect=("sync-data-loading",))
def assist_forecast(fixed):
    """The dataset cuts out and normalises each window on its own, a handful of tiny operations for each of 128 samples,
    and the loader stacks them in the training process. Fix: cut out and normalise the batch's windows together."""
    past, future = 96, 24
    series = torch.randn(7, 20_000).cumsum(1)

    class WindowDataset(Dataset):
        def __len__(self):
            return series.shape[1] - past - future

        def __getitem__(self, start):
            window = series[:, start:start + past + future]
            mean, std = window[:, :past].mean(1, keepdim=True), window[:, :past].std(1, keepdim=True)
            window = (window - mean) / (std + 1e-5)
            return window[:, :past], window[:, past:]

    def batches():
        windows = series.unfold(1, past + future, 1).transpose(0, 1)
        for starts in torch.randperm(len(WindowDataset())).split(128):
            window = windows[starts]
            mean, std = window[..., :past].mean(2, keepdim=True), window[..., :past].std(2, keepdim=True)
            window = (window - mean) / (std + 1e-5)
            yield window[..., :past], window[..., past:]

    model = mlp(past, 256, 256, future)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    while True:
        for x, y in batches() if fixed else DataLoader(WindowDataset(), batch_size=128, shuffle=True):
            update(optimizer, F.huber_loss(model(x), y))
            yield len(x)


@program("denoising diffusion with an averaged model", "held", expect=("work-between-steps",))
def assist_diffusion(fixed):
    """The moving average of the weights is made as new tensors (two products and a sum for each weight) which are then
    copied into the averaged model, at every step. Fix: torch._foreach_lerp_ on the averaged weights in place."""
    steps, dim = 1000, 768
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), 0)
    freqs = torch.exp(-math.log(10_000) * torch.arange(32) / 32)
    model = nn.Sequential(nn.Linear(256 + 64, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim),
                          nn.SiLU(), nn.Linear(dim, 256))
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)

    def update_ema(decay=0.999):
        if fixed:
            with torch.no_grad():
                torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)
            return
        averaged = {}
        for name, value in model.state_dict().items():
            averaged[name] = decay * ema.state_dict()[name] + (1 - decay) * value
        ema.load_state_dict(averaged)

    for (x,) in endless(64, torch.randn(64 * 50, 256)):
        t, noise = torch.randint(steps, (len(x),)), torch.randn_like(x)
        a = alphas[t].unsqueeze(1)
        angles = t.unsqueeze(1) * freqs
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        predicted = model(torch.cat([noisy, angles.sin(), angles.cos()], dim=1))
        update(optimizer, F.mse_loss(predicted, noise))
        update_ema()
        yield len(x)


@program("contrastive learning of two views (SimCLR)", "held", expect=("broadcast-contraction",))
def assist_contrastive(fixed):
    """All pairs' cosine similarity comes from broadcasting to pairs x pairs x features, which is written and read many
    times. Fix: normalise the rows and multiply the matrix with its transpose."""
    def nt_xent(z1, z2, temperature=0.5):
        z = torch.cat([z1, z2])
        if fixed:
            z = F.normalize(z, dim=1)
            sim = z @ z.T
        else:
            sim = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2)
        sim = (sim / temperature).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        return F.cross_entropy(sim, torch.arange(len(z)).roll(len(z1)))

    encoder = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
                            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), mlp(32 * 64, 128, 64))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-4, fused=True)
    for (x,) in endless(64, torch.rand(64 * 40, 3, 32, 32)):
        views = [image + 0.1 * torch.randn_like(image) for image in (x, x.flip(3))]
        z1, z2 = encoder(torch.cat(views)).chunk(2)
        update(optimizer, nt_xent(z1, z2))
        yield len(x)


@program("Q learning with a replay memory", "held", expect=("unbatched-loop",))
def assist_dqn(fixed):
    """The target network is asked for one transition of the batch after another. Fix: ask it once for all next states
    of the batch and set the value behind final states to 0."""
    gamma, capacity, seen, epsilon = 0.99, 20_000, 2_000, 0.1
    states, next_states = torch.randn(capacity, 64), torch.randn(capacity, 64)
    actions, rewards, dones = torch.randint(6, (capacity,)), torch.randn(capacity), torch.rand(capacity) < 0.02
    dynamics, effect = torch.randn(64, 64) / 8, torch.randn(6, 64)
    policy, target = mlp(64, 512, 512, 6), mlp(64, 512, 512, 6)
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4, fused=True)
    state = torch.randn(64)
    while True:
        with torch.no_grad():
            action = random.randrange(6) if random.random() < epsilon else int(policy(state).argmax())
        slot, new = seen % capacity, torch.tanh(state @ dynamics + effect[action])
        states[slot], next_states[slot], actions[slot], rewards[slot] = state, new, action, new[0]
        state, seen = new, seen + 1

        batch = torch.randint(min(seen, capacity), (64,))
        with torch.no_grad():
            if fixed:
                goals = rewards[batch] + gamma * target(next_states[batch]).amax(1) * ~dones[batch]
            else:
                goals = []
                for reward, next_state, done in zip(rewards[batch], next_states[batch], dones[batch]):
                    goals.append(reward if done else reward + gamma * target(next_state).max())
                goals = torch.stack(goals)
        values = policy(states[batch]).gather(1, actions[batch].unsqueeze(1)).squeeze(1)
        update(optimizer, F.smooth_l1_loss(values, goals))
        yield len(batch)


@program("recognition of spoken commands", "held", expect=("padded-to-maximum",))
def assist_speech(fixed):
    """Each batch is padded to the longest utterance that is allowed, 160 frames, though most have 30 to 80. Fix: pad to
    the longest utterance of the batch."""
    max_frames, dim = 160, 96
    lengths = [min(max_frames, int(random.lognormvariate(3.9, 0.3))) for _ in range(800)]
    utterances = [(torch.randn(length, 80), random.randrange(35)) for length in lengths]

    def collate(batch):
        lens = torch.tensor([len(feats) for feats, _ in batch])
        size = int(lens.max()) if fixed else max_frames
        padded = torch.zeros(len(batch), size, 80)
        for row, (feats, _) in zip(padded, batch):
            row[:len(feats)] = feats
        return padded, torch.arange(size) >= lens.unsqueeze(1), torch.tensor([label for _, label in batch])

    project, positions = nn.Linear(80, dim), nn.Parameter(torch.randn(max_frames, dim) * 0.02)
    layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    head = nn.Linear(dim, 35)
    params = [positions, *project.parameters(), *encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(params, lr=5e-4, fused=True)
    loader = DataLoader(utterances, batch_size=8, shuffle=True, collate_fn=collate)
    while True:
        for feats, mask, labels in loader:
            hidden = encoder(project(feats) + positions[:feats.shape[1]], src_key_padding_mask=mask)
            keep = (~mask).unsqueeze(2)
            pooled = (hidden * keep).sum(1) / keep.sum(1)
            update(optimizer, F.cross_entropy(head(pooled), labels))
            yield len(feats)


@program("node classification with a graph net", "held", expect=("repeated-rows",))
def assist_graph(fixed):
    """The message layer works on the source node's features after they were gathered for each edge, so each node is
    multiplied 6 times, once per edge. Fix: apply the layer to the nodes and gather its result."""
    nodes, degree, features = 1200, 6, 64
    source, target = torch.randint(nodes, (2, nodes * degree))
    degrees = torch.bincount(target, minlength=nodes).clamp(min=1).unsqueeze(1)

    class GraphLayer(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.message = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())
            self.own = nn.Linear(inputs, outputs)

        def forward(self, h):
            messages = self.message(h).index_select(0, source) if fixed else self.message(h.index_select(0, source))
            gathered = torch.zeros(nodes, messages.shape[1]).index_add(0, target, messages)
            return F.relu(self.own(h) + gathered / degrees)

    model = nn.Sequential(GraphLayer(features, 96), GraphLayer(96, 96), nn.Linear(96, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    x, y, labelled = torch.randn(nodes, features), torch.randint(10, (nodes,)), torch.randperm(nodes)[:800]
    while True:
        update(optimizer, F.cross_entropy(model(x)[labelled], y[labelled]))
        yield nodes


@program("several tasks on one shared trunk", "held", expect=("repeated-backward",))
def assist_multitask(fixed):
    """backward() is called for each of the four tasks' losses with retain_graph=True, and so passes through the shared
    trunk four times. Fix: one backward() of the weighted sum."""
    trunk = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 48, 3, padding=1),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48 * 49, 256), nn.ReLU())
    heads = nn.ModuleDict({"digit": mlp(256, 128, 10), "style": mlp(256, 128, 4), "angle": mlp(256, 128, 1),
                           "width": mlp(256, 128, 1)})
    weights = {"digit": 1.0, "style": 0.5, "angle": 0.2, "width": 0.2}
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3, fused=True)
    count = 24 * 50
    data = torch.rand(count, 1, 28, 28), torch.randint(10, (count,)), torch.randint(4, (count,)), \
        torch.randn(count), torch.rand(count)
    for x, digit, style, angle, width in endless(24, *data):
        shared = trunk(x)
        losses = {"digit": F.cross_entropy(heads["digit"](shared), digit),
                  "style": F.cross_entropy(heads["style"](shared), style),
                  "angle": F.mse_loss(heads["angle"](shared).squeeze(1), angle),
                  "width": F.mse_loss(heads["width"](shared).squeeze(1), width)}
        optimizer.zero_grad()
        if fixed:
            sum(weights[task] * loss for task, loss in losses.items()).backward()
        else:
            for task, loss in losses.items():
                (weights[task] * loss).backward(retain_graph=True)
        optimizer.step()
        yield len(x)


@program("a small language model on packed text: nothing is wrong", "held")
def assist_good_language(fixed):
    """Nothing is wrong; `fixed` changes nothing."""
    class Block(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out, self.mlp = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), mlp(dim, 4 * dim, dim)

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.norm2(x))

    model = nn.Sequential(nn.Embedding(256, 192), Block(192, 4), Block(192, 4), nn.LayerNorm(192), nn.Linear(192, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for (tokens,) in endless(8, torch.randint(256, (8 * 60, 33))):
        logits = model(tokens[:, :-1])
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
        yield len(tokens)


@program("an actor and a critic on stored experience: nothing is wrong", "held")
def assist_good_actor_critic(fixed):
    """Nothing is wrong; `fixed` changes nothing."""
    body, actor, critic = mlp(128, 512, 512), nn.Linear(512, 12), nn.Linear(512, 1)
    params = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(params, lr=3e-4, fused=True)
    count = 384 * 60
    data = torch.randn(count, 128), torch.randint(12, (count,)), torch.randn(count), torch.randn(count), \
        torch.full((count,), -math.log(12))
    for state, action, advantage, value_goal, old_log_prob in endless(384, *data):
        hidden = F.relu(body(state))
        log_probs = F.log_softmax(actor(hidden), dim=1)
        ratio = (log_probs.gather(1, action.unsqueeze(1)).squeeze(1) - old_log_prob).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        update(optimizer, 0.5 * F.mse_loss(critic(hidden).squeeze(1), value_goal) - gain - 0.01 * entropy)
        yield len(state)
