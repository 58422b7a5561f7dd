"""Training machinery as people write it around their models: ten programs with one mistake each, two with none."""

import copy
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from harness import endless, mlp, program, update


@program("multi-task MLP with GradNorm-weighted heads", "held", expect=("unread-gradients",))
def trainer_gradnorm(fixed):
    """GradNorm needs the gradient of each task's loss for the last shared layer only, but autograd.grad is asked for all
    parameters of the trunk, so each task costs a whole extra backward pass. Fix: ask for the last shared weight only."""
    class MultiTask(nn.Module):
        def __init__(self, tasks):
            super().__init__()
            self.trunk = mlp(128, 512, 512, 512, 512, 256)
            self.heads = nn.ModuleList(mlp(256, 64, 1) for _ in range(tasks))

        def forward(self, x):
            shared = F.relu(self.trunk(x))
            return [head(shared).squeeze(1) for head in self.heads]

    net = MultiTask(4)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    weights = torch.ones(4)
    for x, y in endless(384, torch.randn(6144, 128), torch.randn(6144, 4)):
        losses = [F.smooth_l1_loss(out, target) for out, target in zip(net(x), y.unbind(1))]
        shared_params = [net.trunk[-1].weight] if fixed else [p for p in net.trunk.parameters() if p.dim() > 1]
        norms = []
        for task_loss in losses:
            grads = torch.autograd.grad(task_loss, shared_params, retain_graph=True)
            norms.append(grads[-1].norm())
        norms = torch.stack(norms)
        weights = (0.9 * weights + 0.1 * norms.mean() / (norms + 1e-8)).clamp(0.1, 10)
        loss = sum(w * task_loss for w, task_loss in zip(weights, losses))
        update(optimizer, loss)
        yield len(x)


@program("weight-normed recurrent forecaster", "held", expect=("recomputed-weights",))
def trainer_weightnorm_rnn(fixed):
    """The recurrent weights are parametrized with weight_norm and used at each of 24 time steps; every use computes the
    normed weight (and its backward) again. Fix: run the loop within parametrize.cached()."""
    class Recurrent(nn.Module):
        def __init__(self, inputs, hidden):
            super().__init__()
            self.inp = parametrizations.weight_norm(nn.Linear(inputs, 3 * hidden))
            self.rec = parametrizations.weight_norm(nn.Linear(hidden, 3 * hidden))
            self.out = nn.Linear(hidden, 1)

        def forward(self, x):
            h = x.new_zeros(x.shape[0], self.rec.in_features)
            for xt in x.unbind(1):
                ir, iz, i_n = self.inp(xt).chunk(3, 1)
                hr, hz, hn = self.rec(h).chunk(3, 1)
                z = torch.sigmoid(iz + hz)
                h = (1 - z) * torch.tanh(i_n + torch.sigmoid(ir + hr) * hn) + z * h
            return self.out(h).squeeze(1)

    net = Recurrent(32, 256)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for x, y in endless(16, torch.randn(2048, 24, 32), torch.randn(2048)):
        if fixed:
            with parametrize.cached():
                predicted = net(x)
        else:
            predicted = net(x)
        loss = F.mse_loss(predicted, y)
        update(optimizer, loss)
        yield len(x)


class PriorityReplay:
    """Transitions in ring tensors, with a priority each."""
    def __init__(self, size, width, as_tensor):
        self.state, self.next_state = torch.randn(size, width), torch.randn(size, width)
        self.action, self.reward = torch.randint(6, (size,)), torch.randn(size)
        first = torch.rand(size) + 0.1
        self.priority = first if as_tensor else first.tolist()

    def sample(self, count):
        weights = torch.as_tensor(self.priority) ** 0.6
        cumulated = weights.cumsum(0)
        places = torch.searchsorted(cumulated, torch.rand(count) * cumulated[-1]).clamp_(max=len(weights) - 1)
        importance = (weights[places] / cumulated[-1] * len(weights)) ** -0.4
        return places, importance / importance.max()

    def reprioritize(self, places, errors):
        if isinstance(self.priority, torch.Tensor):
            self.priority[places] = errors + 1e-3
        else:
            for place, error in zip(places.tolist(), errors.tolist()):
                self.priority[place] = error + 1e-3


@program("double DQN with prioritized replay", "held", expect=("host-copy-on-convert",))
def trainer_priority_replay(fixed):
    """The priorities of 120k transitions are a Python list, of which every sampling makes a tensor element by element.
    Fix: keep them in a tensor and write new ones by index. (Priorities differ by rounding only.)"""
    net, batch = mlp(48, 256, 256, 6), 256
    target = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    replay = PriorityReplay(120_000, 48, as_tensor=fixed)
    while True:
        places, importance = replay.sample(batch)
        state, following = replay.state[places], replay.next_state[places]
        with torch.no_grad():
            best = net(following).argmax(1, keepdim=True)
            goal = replay.reward[places] + 0.99 * target(following).gather(1, best).squeeze(1)
        value = net(state).gather(1, replay.action[places, None]).squeeze(1)
        loss = (importance * F.smooth_l1_loss(value, goal, reduction="none")).mean()
        update(optimizer, loss)
        replay.reprioritize(places, (goal - value).detach().abs())
        torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), 0.005)
        yield batch


def average_gradients(model, flat):
    """Data parallelism by hand."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    world = dist.get_world_size()
    if flat:
        joined = torch.cat([grad.view(-1) for grad in grads])
        dist.all_reduce(joined)
        joined /= world
        torch._foreach_copy_(grads, [part.view_as(grad) for part, grad in zip(
            joined.split([grad.numel() for grad in grads]), grads)])
    else:
        for grad in grads:
            dist.all_reduce(grad)
            grad /= world


@program("hand-made data parallelism, residual MLP", "held", expect=("ddp-bucket-shape",), also=("foreach-not-fused",), ranks=2)
def trainer_average_gradients(fixed):
    """Gradients are averaged between two ranks by one blocking all_reduce per parameter, and there are some 120 small ones.
    Fix: all-reduce one flat buffer (or use DDP)."""
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(F.silu(self.up(self.norm(x))))

    dist.init_process_group("gloo")
    net = nn.Sequential(nn.Linear(40, 64), *(Block(64) for _ in range(20)), nn.Linear(64, 5))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    torch.set_num_threads(1)
    torch.manual_seed(1 + dist.get_rank())
    for x, y in endless(128, torch.randn(4096, 40), torch.randint(5, (4096,))):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(net, flat=fixed)
        optimizer.step()
        yield len(x)


class JacobianSoftmax(torch.autograd.Function):
    """Softmax over the last dimension."""
    @staticmethod
    def forward(ctx, scores):
        probs = torch.softmax(scores, -1)
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx, grad):
        probs, = ctx.saved_tensors
        jacobian = torch.diag_embed(probs) - probs.unsqueeze(-1) * probs.unsqueeze(-2)
        return torch.matmul(jacobian, grad.unsqueeze(-1)).squeeze(-1)


class Softmax(JacobianSoftmax):
    @staticmethod
    def backward(ctx, grad):
        probs, = ctx.saved_tensors
        return probs * (grad - (grad * probs).sum(-1, keepdim=True))


@program("set transformer with a softmax of its own", "held",
         expect=("diagonal-product", "broadcast-contraction", "function-by-hand", "attention-by-hand"))
def trainer_custom_softmax(fixed):
    """The backward of the user's softmax builds the whole Jacobian, a matrix for each row of the attention scores, to
    multiply it by the gradient. Fix: the closed form probs * (grad - sum(grad * probs))."""
    class Attend(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.norm = heads, nn.LayerNorm(width)
            self.qkv, self.proj, self.mlp = nn.Linear(width, 3 * width), nn.Linear(width, width), mlp(width, 4 * width, width)
            self.softmax = (Softmax if fixed else JacobianSoftmax).apply

        def forward(self, x):
            q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2))
            probs = self.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5)
            x = x + self.proj((probs @ v).transpose(1, 2).flatten(2))
            return x + self.mlp(x)

    net = nn.Sequential(nn.Linear(8, 128), Attend(128, 4), Attend(128, 4))
    head = nn.Linear(128, 20)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=3e-4)
    for points, labels in endless(16, torch.randn(960, 40, 8), torch.randint(20, (960,))):
        loss = F.cross_entropy(head(net(points).mean(1)), labels)
        update(optimizer, loss)
        yield len(points)


@program("segmentation CNN with running mIoU", "held", expect=("unbatched-loop",), also=("layout-transpose",))
def trainer_miou(fixed):
    """The running IoU of 90 classes makes two masks over all pixels and their counts for each class, every step. Fix: one
    bincount of target * classes + prediction gives the same counts."""
    classes = 90
    net = nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
        nn.Conv2d(48, 48, 3, 1, 1), nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, classes, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    inter, union = torch.zeros(classes), torch.zeros(classes)
    for images, masks in endless(8, torch.randn(64, 3, 128, 128), torch.randint(classes, (64, 128, 128))):
        logits = net(images)
        loss = F.cross_entropy(logits, masks[:, ::4, ::4])
        update(optimizer, loss)
        with torch.no_grad():
            predicted = logits.argmax(1).repeat_interleave(4, 1).repeat_interleave(4, 2)
            if fixed:
                confusion = torch.bincount((masks * classes + predicted).flatten(), minlength=classes ** 2)
                confusion = confusion.view(classes, classes)
                hits = confusion.diag()
                inter += hits
                union += confusion.sum(0) + confusion.sum(1) - hits
            else:
                for c in range(classes):
                    is_pred, is_true = predicted == c, masks == c
                    inter[c] += (is_pred & is_true).sum()
                    union[c] += (is_pred | is_true).sum()
            miou = (inter / union.clamp(min=1)).mean()
        print(f"loss {loss.item():.4f} mIoU {miou.item():.4f}")
        yield len(images)


@program("implicit-feedback recommender, random batches of interactions", "held", expect=("late-selection",))
def trainer_random_batches(fixed):
    """Each batch is the first 512 of a new random permutation of all 800k interactions. Fix: permute once per epoch and walk
    through it. (Random batches either way, in another order.)"""
    class TwoTower(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(2000, 64), nn.Embedding(3000, 64)
            self.left, self.right = mlp(64, 256, 256, 64), mlp(64, 256, 256, 64)

        def forward(self, user, item):
            left, right = self.left(self.users(user)), self.right(self.items(item))
            return F.normalize(left, dim=1) @ F.normalize(right, dim=1).T / 0.1

    count, batch = 800_000, 512
    user, item = torch.randint(2000, (count,)), torch.randint(3000, (count,))
    net = TwoTower()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.02)
    epoch = iter(())
    while True:
        if fixed:
            picked = next(epoch, None)
            if picked is None:
                epoch = iter(torch.randperm(count)[:count // batch * batch].split(batch))
                picked = next(epoch)
        else:
            picked = torch.randperm(count)[:batch]
        loss = F.cross_entropy(net(user[picked], item[picked]), torch.arange(batch))
        update(optimizer, loss)
        yield batch


class Tracker:
    """What is to be seen of a model in the log: scalars and a histogram per parameter."""
    def __init__(self, model, every, only_when_due):
        self.model, self.every, self.only_when_due, self.count = model, every, only_when_due, 0

    @torch.no_grad()
    def statistics(self):
        row = {}
        for name, p in self.model.named_parameters():
            for what, tensor in (("weight", p), ("grad", p.grad)):
                row[f"{what}/{name}/norm"], row[f"{what}/{name}/std"] = tensor.norm(), tensor.std(correction=0)
                row[f"{what}/{name}/absmax"], row[f"{what}/{name}/bins"] = tensor.abs().max(), torch.histc(tensor, 30)
        return row

    def step(self, loss):
        self.count += 1
        due = self.count % self.every == 0
        if due or not self.only_when_due:
            row = self.statistics()
        if due:
            print(self.count, loss.item(), {name: value.tolist() for name, value in row.items()})


@program("transformer language model, logged histograms", "held", expect=("work-between-steps",))
def trainer_tracker(fixed):
    """Norms, deviations and histograms of all weights and gradients are computed at every step, but only those of each
    500th are written; the others are dropped. Fix: compute them when they are due."""
    class Language(nn.Module):
        def __init__(self, words, width):
            super().__init__()
            self.words = nn.Embedding(words, width)
            self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True), 3, enable_nested_tensor=False)
            self.out = nn.Linear(width, words)

        def forward(self, tokens):
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            return self.out(self.blocks(self.words(tokens), mask, is_causal=True))

    net = Language(1000, 128)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
    tracker = Tracker(net, 500, only_when_due=fixed)
    for tokens, in endless(6, torch.randint(1000, (510, 49))):
        loss = F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        update(optimizer, loss)
        tracker.step(loss)
        yield len(tokens)


@program("CNN with orthogonality regularizer", "held", expect=("gram-matrix-of-the-wrong-side",), also=("layout-transpose",))
def trainer_orthogonal(fixed):
    """The regularizer of each conv weight W (out x in*3*3, wide) computes |W'W - I|^2, a matrix of up to 1152 x 1152, where
    |WW' - I|^2, at most 128 x 128, is the same but for a constant. Fix: take the smaller Gram matrix; the constant is added
    here to keep the loss the same."""
    def penalty(weight):
        flat = weight.flatten(1)
        if fixed and flat.shape[0] < flat.shape[1]:
            gram = flat @ flat.T
            return (gram - torch.eye(len(gram))).square().sum() + flat.shape[1] - flat.shape[0]
        gram = flat.T @ flat
        return (gram - torch.eye(len(gram))).square().sum()

    def conv(inputs, outputs, stride):
        return [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    net = nn.Sequential(*conv(3, 32, 1), *conv(32, 64, 2), *conv(64, 128, 2), *conv(128, 128, 2), *conv(128, 128, 1),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for images, labels in endless(32, torch.randn(512, 3, 32, 32), torch.randint(10, (512,))):
        loss = F.cross_entropy(net(images), labels)
        loss = loss + 1e-5 * sum(penalty(layer.weight) for layer in net if isinstance(layer, nn.Conv2d))
        update(optimizer, loss)
        yield len(images)


class Average:
    """Exponential moving average of a model's parameters."""
    def __init__(self, model, decay, trained_only):
        self.decay, self.trained_only = decay, trained_only
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        pairs = [(self.shadow[name], p) for name, p in model.named_parameters() if p.requires_grad or not self.trained_only]
        torch._foreach_lerp_([mine for mine, _ in pairs], [p.detach() for _, p in pairs], 1 - self.decay)


@program("text classifier on frozen word vectors, EMA", "held", expect=("moving-average-of-frozen-parameters",))
def trainer_ema_frozen(fixed):
    """The moving average also runs over the frozen table of word vectors, 80000 x 300, which never changes. Fix: average the
    trained parameters only; the shadow of the table stays what it is."""
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding.from_pretrained(torch.randn(80_000, 300) * 0.1, freeze=True)
            self.convs = nn.ModuleList(nn.Conv1d(300, 64, size) for size in (3, 4, 5))
            self.out = nn.Linear(192, 4)

        def forward(self, tokens):
            x = self.words(tokens).transpose(1, 2)
            return self.out(torch.cat([F.relu(conv(x)).amax(2) for conv in self.convs], 1))

    net = Classifier()
    optimizer = torch.optim.Adam((p for p in net.parameters() if p.requires_grad), lr=1e-3)
    average = Average(net, 0.999, trained_only=fixed)
    for tokens, labels in endless(16, torch.randint(80_000, (2048, 40)), torch.randint(4, (2048,))):
        loss = F.cross_entropy(net(tokens), labels)
        update(optimizer, loss)
        average.update(net)
        yield len(tokens)


@program("contrastive CNN with momentum encoder and queue", "held")
def good_trainer_moco(fixed):
    """Nothing is wrong: the keys are encoded without gradients, the queue is a ring that is written in place, and the
    momentum encoder follows by one foreach call."""
    def encoder():
        return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.GroupNorm(8, 32), nn.ReLU(),
                             nn.Conv2d(32, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.ReLU(),
                             nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 64))

    net = encoder()
    follower = copy.deepcopy(net).requires_grad_(False)
    pairs = list(follower.parameters()), [p.detach() for p in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    queue, place, batch, draws = F.normalize(torch.randn(4096, 64), dim=1), 0, 64, random.Random(0)
    positives = torch.zeros(batch, dtype=torch.long)
    for images, in endless(batch, torch.randn(1024, 3, 36, 36)):
        (top, left), (top2, left2) = [draws.choices(range(5), k=2) for _ in range(2)]
        query = F.normalize(net(images[:, :, top:top + 32, left:left + 32]), dim=1)
        with torch.no_grad():
            torch._foreach_lerp_(*pairs, 0.01)
            key = F.normalize(follower(images[:, :, top2:top2 + 32, left2:left2 + 32].flip(3)), dim=1)
        logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], 1) / 0.2
        loss = F.cross_entropy(logits, positives)
        update(optimizer, loss)
        queue[place:place + batch] = key
        place = (place + batch) % len(queue)
        yield len(images)


class SAM:
    """Sharpness-aware minimization around another optimizer."""
    def __init__(self, base, rho):
        self.base, self.rho = base, rho
        self.params = [p for group in base.param_groups for p in group["params"]]

    @torch.no_grad()
    def climb(self):
        grads = [p.grad for p in self.params]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        self.steps = torch._foreach_mul(grads, self.rho / (norm + 1e-12))
        torch._foreach_add_(self.params, self.steps)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        torch._foreach_sub_(self.params, self.steps)
        self.base.step()
        self.base.zero_grad()


@program("bidirectional GRU tagger with SAM", "held")
def good_trainer_sam(fixed):
    """Nothing is wrong: SAM takes two forward and backward passes a step by its nature, and its own arithmetic is done by
    foreach calls."""
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(2000, 96)
            self.gru = nn.GRU(96, 128, batch_first=True, bidirectional=True)
            self.out = nn.Linear(256, 17)

        def forward(self, tokens):
            return self.out(self.gru(self.words(tokens))[0])

    net = Tagger()
    sam = SAM(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True), rho=0.05)
    for tokens, tags in endless(32, torch.randint(2000, (1024, 24)), torch.randint(17, (1024, 24))):
        loss = F.cross_entropy(net(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        sam.climb()
        F.cross_entropy(net(tokens).flatten(0, 1), tags.flatten()).backward()
        sam.descend()
        yield len(tokens)
