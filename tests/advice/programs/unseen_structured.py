"""The third blind set, third part: tables, graphs, RL, recommenders, several tasks, meta-learning; two in which nothing is wrong."""

import random
from collections import deque

import torch
from harness import endless, mlp, program, update
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F


@program("table", "held", expect=("late-selection",), also=("sync-data-loading",))
def credit_scores(fixed):
    """Shuffles by x[order][begin:end], which gathers the whole table for each batch. Fix: x[order[begin:end]]."""
    model = mlp(48, 384, 384, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(50_000, 48), torch.randint(2, (50_000,)).float()
    while True:
        order = torch.randperm(len(x))
        for begin in range(0, len(x) - 255, 256):
            if fixed:
                chosen = order[begin:begin + 256]
                rows, labels = x[chosen], y[chosen]
            else:
                rows, labels = x[order][begin:begin + 256], y[order][begin:begin + 256]
            update(optimizer, F.binary_cross_entropy_with_logits(model(rows).squeeze(1), labels))
            yield len(rows)


class Convolution(nn.Module):
    """A layer of a GCN."""
    def __init__(self, inputs, outputs, project_first):
        super().__init__()
        self.project, self.bias, self.project_first = nn.Linear(inputs, outputs, bias=False), nn.Parameter(torch.zeros(outputs)), project_first

    def forward(self, x, source, target, weight):
        if self.project_first:
            x = self.project(x)
        mixed = torch.zeros_like(x).index_add(0, target, x[source] * weight)
        return (mixed if self.project_first else self.project(mixed)) + self.bias


@program("GNN", "held", expect=("product-order",))
def citation_gcn(fixed):
    """Sends 256 features along each edge, and then projects the sums to 32. Fix: project first, which gives the same sums."""
    source, target = torch.randint(2000, (2, 10_000))
    degree = torch.bincount(target, minlength=2000).clamp(min=1)
    weight = (1 / degree[target])[:, None]
    first, second = Convolution(256, 32, fixed), Convolution(32, 7, True)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2, fused=True)
    features, labels = torch.rand(2000, 256), torch.randint(7, (2000,))
    while True:
        h = first(F.dropout(features, 0.5), source, target, weight).relu()
        update(optimizer, F.cross_entropy(second(h, source, target, weight), labels))
        yield 2000


class Tuples:
    """Replay memory of transitions as they come."""
    def __init__(self, size):
        self.memory = deque(maxlen=size)

    def push(self, *transition):
        self.memory.append(transition)

    def sample(self, count):
        state, action, reward, following, done = zip(*random.sample(self.memory, count))
        return (torch.stack(state), torch.tensor(action), torch.tensor(reward), torch.stack(following),
                torch.tensor(done, dtype=torch.float32))


class Columns:
    """Replay memory of one tensor per field."""
    def __init__(self, size):
        self.fields = (torch.zeros(size, 16), torch.zeros(size, dtype=torch.long), torch.zeros(size), torch.zeros(size, 16),
                       torch.zeros(size))
        self.count, self.size = 0, size

    def push(self, *transition):
        for field, value in zip(self.fields, transition):
            field[self.count % self.size] = value
        self.count += 1

    def sample(self, count):
        chosen = torch.tensor(random.sample(range(min(self.count, self.size)), count))
        return [field[chosen] for field in self.fields]


@program("RL", "held", expect=("host-copy-on-convert", "sync-data-loading"), also=("python-between-ops",))
def dqn_replay(fixed):
    """The replay memory is a deque of tuples, of which every batch is stacked transition by transition. Fix: one tensor per field,
    indexed once."""
    random.seed(0)
    q, target = mlp(16, 256, 256, 4), mlp(16, 256, 256, 4)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4, fused=True)
    memory = (Columns if fixed else Tuples)(50_000)
    state = torch.randn(16)
    for number in range(10**9):
        for _ in range(5000 if number == 0 else 1):
            with torch.no_grad():
                action = random.randrange(4) if random.random() < 0.1 or number == 0 else q(state).argmax().item()
            following = 0.9 * state + 0.1 * torch.randn(16)
            following[action] += 0.1
            memory.push(state, action, following[0].item(), following, random.random() < 0.01)
            state = following
        s, a, r, s2, done = memory.sample(256)
        with torch.no_grad():
            goal = r + 0.99 * (1 - done) * target(s2).amax(1)
        update(optimizer, F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), goal))
        if number % 500 == 499:
            target.load_state_dict(q.state_dict())
        yield 256


class Ratings(nn.Module):
    def __init__(self, users, items, width, sparse):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width, sparse=sparse), nn.Embedding(items, width, sparse=sparse)
        self.top = mlp(2 * width, 256, 256, 1)

    def forward(self, user, item):
        return self.top(torch.cat((self.users(user), self.items(item)), 1)).squeeze(1)


@program("recommender", "held", expect=("dense-embedding-gradient",))
def shop_ratings(fixed):
    """Each batch sees 512 of 150,000 users, but the gradient of the table is dense, and SGD runs over all of it.
    Fix: Embedding(sparse=True)."""
    model = Ratings(150_000, 20_000, 32, sparse=fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    users, items, stars = torch.randint(150_000, (51_200,)), torch.randint(20_000, (51_200,)), torch.rand(51_200)
    for user, item, star in endless(512, users, items, stars):
        update(optimizer, F.mse_loss(model(user, item), star))
        yield len(user)


@program("multi-task", "held", expect=("repeated-backward",))
def scene_tasks(fixed):
    """Calls backward for each of three tasks, and so goes through the shared trunk three times. Fix: one backward of the sum."""
    trunk = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten()).to(memory_format=torch.channels_last)
    heads = nn.ModuleDict({"weather": nn.Linear(768, 5), "hour": nn.Linear(768, 24), "speed": nn.Linear(768, 1)})
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=1e-3, fused=True)
    images = torch.randn(256, 3, 48, 48).contiguous(memory_format=torch.channels_last)
    for x, weather, hour, speed in endless(32, images, torch.randint(5, (256,)), torch.randint(24, (256,)), torch.rand(256)):
        z = trunk(x)
        losses = [F.cross_entropy(heads["weather"](z), weather), F.cross_entropy(heads["hour"](z), hour),
                  F.mse_loss(heads["speed"](z).squeeze(1), speed)]
        optimizer.zero_grad()
        if fixed:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
        optimizer.step()
        yield len(x)


@program("meta-learning", "held", expect=("unused-second-derivatives",), also=("unbatched-loop",))
def first_order_maml(fixed):
    """Takes the inner gradients with create_graph=True, though first-order MAML detaches them. Fix: leave it out."""
    model = mlp(32, 192, 192, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        optimizer.zero_grad()
        for _ in range(4):
            centres = torch.randn(5, 32)
            support_y, query_y = torch.arange(5).repeat(5), torch.arange(5).repeat(15)
            support, query = (centres[y] + torch.randn(len(y), 32) for y in (support_y, query_y))
            fast = dict(model.named_parameters())
            for _ in range(3):
                loss = F.cross_entropy(functional_call(model, fast, (support,)), support_y)
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=not fixed)
                fast = {name: p - 0.1 * g.detach() for (name, p), g in zip(fast.items(), grads)}
            (F.cross_entropy(functional_call(model, fast, (query,)), query_y) / 4).backward()
        optimizer.step()
        yield 4


@program("private training", "held", expect=("unbatched-loop",))
def private_records(fixed):
    """Takes the gradient of every sample by a backward pass of its own, to clip it. Fix: vmap(grad(...))."""
    model = mlp(64, 128, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    names = [name for name, _ in model.named_parameters()]

    def loss_of(parameters, a, b):
        return F.cross_entropy(functional_call(model, parameters, (a[None],)), b[None])

    per_sample = vmap(grad(loss_of), in_dims=(None, 0, 0))
    for x, y in endless(64, torch.randn(2048, 64), torch.randint(2, (2048,))):
        if fixed:
            grads = list(per_sample({k: p.detach() for k, p in model.named_parameters()}, x, y).values())
        else:
            each = [torch.autograd.grad(F.cross_entropy(model(a[None]), b[None]), list(model.parameters())) for a, b in zip(x, y)]
            grads = [torch.stack(g) for g in zip(*each)]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads]).norm(dim=0)
        scale = (1 / norms.clamp(min=1e-6)).clamp(max=1)
        for p, g in zip(model.parameters(), grads):
            p.grad = (torch.tensordot(scale, g, 1) + 0.5 * torch.randn_like(p)) / len(x)
        optimizer.step()
        yield len(x)


@program("GP", "held", expect=("explicit-inverse",))
def kernel_fit(fixed):
    """Fits a Gaussian process with inverse() and logdet(), which factorize the matrix twice and invert it. Fix: one Cholesky factor."""
    scales, noise = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.tensor(-1.0))
    optimizer = torch.optim.Adam([scales, noise], lr=1e-2, fused=True)
    x = torch.randn(400, 8)
    y = x[:, :1].sin() + 0.1 * torch.randn(400, 1)
    while True:
        z = x * scales.exp()
        k = torch.exp(-0.5 * torch.cdist(z, z, compute_mode="use_mm_for_euclid_dist").square()) + noise.exp() * torch.eye(len(x))
        if fixed:
            factor = torch.linalg.cholesky(k)
            fit, volume = y.T @ torch.cholesky_solve(y, factor), 2 * factor.diagonal().log().sum()
        else:
            fit, volume = y.T @ torch.inverse(k) @ y, torch.logdet(k)
        update(optimizer, 0.5 * (fit.squeeze() + volume) / len(x))
        yield len(x)


@program("RL", "held")
def good_policy_gradient(fixed):
    """Many environments at once, advantages by one loop over time, one update of a wide network."""
    actor, critic = mlp(64, 768, 768, 8), mlp(64, 768, 768, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-4, fused=True)
    state = torch.randn(64, 64)
    while True:
        states, actions, rewards = [], [], []
        for _ in range(6):
            with torch.no_grad():
                action = torch.multinomial(actor(state).softmax(1), 1)
            states.append(state)
            actions.append(action)
            state = 0.9 * state + 0.1 * torch.randn(64, 64) + 0.05 * action
            rewards.append(-state.square().mean(1))
        with torch.no_grad():
            follows, returns = critic(state).squeeze(1), []
            for reward in reversed(rewards):
                follows = reward + 0.95 * follows
                returns.insert(0, follows)
        s, a, r = torch.cat(states), torch.cat(actions), torch.cat(returns)
        log_p, value = actor(s).log_softmax(1), critic(s).squeeze(1)
        advantage = (r - value).detach()
        chosen = log_p.gather(1, a).squeeze(1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        update(optimizer, -(advantage * chosen).mean() + 0.5 * F.mse_loss(value, r) - 0.01 * entropy)
        yield len(s)


@program("recommender", "held")
def good_two_towers(fixed):
    """Sparse gradients of the tables with an optimizer of their own, wide towers, negatives from the batch."""
    users, items = nn.Embedding(50_000, 64, sparse=True), nn.Embedding(20_000, 64, sparse=True)
    left, right = mlp(64, 1024, 512, 64), mlp(64, 1024, 512, 64)
    tables = torch.optim.SGD([users.weight, items.weight], lr=0.1)
    towers = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=1e-4, fused=True)
    for user, item in endless(512, torch.randint(50_000, (51_200,)), torch.randint(20_000, (51_200,))):
        logits = left(users(user)) @ right(items(item)).T
        loss = F.cross_entropy(logits, torch.arange(len(user)))
        tables.zero_grad()
        towers.zero_grad()
        loss.backward()
        tables.step()
        towers.step()
        yield len(user)
