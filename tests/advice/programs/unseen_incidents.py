"""Performance incidents of training pipelines, as engineers found and mended them, and two runs that were suspected wrongly."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal

from harness import endless, mlp, program, update


@program("speech, keyword spotting CNN", "held", expect=("direct-convolution",))
def incident_reverb_augmentation_by_direct_convolution(fixed):
    """The new reverberation augmentation convolves each wave with a room response of 800 taps directly, by conv1d, which
    costs more than the network. Fix: multiply the spectra (FFT convolution)."""
    taps, length = 800, 8000
    rooms = torch.randn(64, taps) * torch.linspace(0, -7, taps).exp()
    mel, window = torch.rand(129, 40) / 129, torch.hann_window(256)
    net = nn.Sequential(nn.Conv1d(40, 96, 5, padding=2), nn.ReLU(), nn.Conv1d(96, 96, 5, stride=2), nn.ReLU(),
                        nn.Conv1d(96, 96, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 12))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for waves, words in endless(16, torch.randn(480, length), torch.randint(12, (480,))):
        room = rooms[torch.randint(64, ())]
        if fixed:
            size = 9000  # at least length + taps - 1, and quick to transform
            wet = torch.fft.irfft(torch.fft.rfft(waves, size) * torch.fft.rfft(room, size), size)[:, :length]
        else:
            wet = F.conv1d(F.pad(waves, (taps - 1, 0))[:, None], room.flip(0)[None, None])[:, 0]
        spectrum = torch.stft(wet, 256, 128, window=window, return_complex=True).abs()
        features = (spectrum.transpose(1, 2) @ mel + 1e-3).log().transpose(1, 2)
        loss = F.cross_entropy(net(features), words)
        update(optimizer, loss)
        yield len(words)


@program("transformer encoder, masked language model", "held", expect=("ignored-labels", "late-selection"))
def incident_vocabulary_head_on_unmasked_tokens(fixed):
    """The new pretraining head computes the logits of all tokens, of which cross_entropy ignores the 85 % that were not
    masked (label -100). Fix: select the masked positions before the head."""
    vocabulary, width = 5000, 128
    embed, place = nn.Embedding(vocabulary, width), nn.Parameter(0.02 * torch.randn(64, width))
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, vocabulary)
    parameters = [*embed.parameters(), place, *encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, fused=True)
    for tokens, in endless(8, torch.randint(1, vocabulary, (512, 64))):
        masked = torch.rand(tokens.shape) < 0.15
        labels = tokens.masked_fill(~masked, -100)
        hidden = encoder(embed(tokens.masked_fill(masked, 0)) + place)
        if fixed:
            hidden, labels = hidden[masked], labels[masked]
        loss = F.cross_entropy(head(hidden).flatten(0, -2), labels.flatten(), ignore_index=-100)
        update(optimizer, loss)
        yield len(tokens)


class AdditiveAttention(nn.Module):
    """Bahdanau's attention over the regions of an image."""
    def __init__(self, regions, width):
        super().__init__()
        self.key, self.query, self.score = nn.Linear(regions, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, query, regions, keys=None):
        keys = self.key(regions) if keys is None else keys
        weights = self.score(torch.tanh(keys + self.query(query)[:, None])).softmax(1)
        return (weights.transpose(1, 2) @ regions)[:, 0]


@program("RNN, image captioning with attention", "held", expect=("invariant-in-loop",))
def incident_attention_keys_projected_per_decoder_step(fixed):
    """Since attention became a module of its own it projects all regions of the image again for each word, though they stay
    the same for the whole caption. Fix: project them once before the decoder's loop."""
    seen, width, vocabulary = 384, 128, 500
    embed, begin, cell = nn.Embedding(vocabulary, width), nn.Linear(seen, width), nn.GRUCell(width + seen, width)
    attention, head = AdditiveAttention(seen, width), nn.Linear(width, vocabulary)
    modules = nn.ModuleList([embed, begin, cell, attention, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.05)
    for regions, caption in endless(16, torch.randn(320, 49, seen), torch.randint(vocabulary, (320, 13))):
        hidden, outputs = torch.tanh(begin(regions.mean(1))), []
        keys = attention.key(regions) if fixed else None
        for word in embed(caption[:, :-1]).unbind(1):
            hidden = cell(torch.cat([word, attention(hidden, regions, keys)], 1), hidden)
            outputs.append(hidden)
        loss = F.cross_entropy(head(torch.stack(outputs, 1)).flatten(0, 1), caption[:, 1:].flatten())
        update(optimizer, loss)
        yield len(caption)


@program("recommender, two towers with sampled negatives", "held", expect=("weighted-draw",), also=("product-order",))
def incident_popularity_sampler_with_one_row_per_user(fixed):
    """The new popularity-based negative sampler gives multinomial the weights of all items once per user of the batch, so it
    sums up batch x items weights for a handful of draws. Fix: draw all negatives of the batch from one row of weights."""
    items, width, negatives = 20_000, 48, 4
    popularity = 1 / torch.arange(1, items + 1) ** 0.75
    user_table, item_table = nn.Embedding(10_000, width, sparse=True), nn.Embedding(items, width, sparse=True)
    user_tower, item_tower = mlp(width, 192, 64), mlp(width, 192, 64)
    towers = nn.ModuleList([user_table, item_table, user_tower, item_tower])
    optimizer = torch.optim.SGD(towers.parameters(), lr=0.05)
    for users, liked in endless(256, torch.randint(10_000, (25_600,)), torch.randint(items, (25_600,))):
        if fixed:
            others = torch.multinomial(popularity, len(users) * negatives, replacement=True).view(-1, negatives)
        else:
            others = torch.multinomial(popularity.expand(len(users), -1), negatives, replacement=True)
        candidates = torch.cat([liked[:, None], others], 1)
        queries, answers = user_tower(user_table(users)), item_tower(item_table(candidates))
        scores = (answers @ queries[:, :, None])[:, :, 0]
        loss = F.cross_entropy(scores, torch.zeros_like(users))
        update(optimizer, loss)
        yield len(users)


@program("RL, PPO with continuous actions", "held", expect=("diagonal-covariance",))
def incident_diagonal_policy_as_full_covariance(fixed):
    """A copied PPO snippet builds the policy as MultivariateNormal of a diagonal matrix, so that each step factorises, checks
    and solves one matrix per sample. Fix: Independent(Normal(mean, std), 1)."""
    seen, done = 64, 20
    actor, critic, log_std = mlp(seen, 256, 256, done), mlp(seen, 256, 256, 1), nn.Parameter(torch.full((done,), -0.5))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], lr=3e-4, fused=True)
    states, actions = torch.randn(8192, seen), torch.randn(8192, done)
    rollout = states, actions, Normal(0.0, 1.0).log_prob(actions).sum(1), torch.randn(8192), torch.randn(8192)
    for state, action, old, advantage, returns in endless(512, *rollout):
        mean = actor(state)
        if fixed:
            policy = Independent(Normal(mean, log_std.exp()), 1)
        else:
            policy = MultivariateNormal(mean, torch.diag_embed((2 * log_std).exp().expand_as(mean)))
        ratio = (policy.log_prob(action) - old).clamp(-5, 5).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        value = F.mse_loss(critic(state)[:, 0], returns)
        loss = 0.5 * value - surrogate.mean() - 0.01 * policy.entropy().mean()
        update(optimizer, loss)
        yield len(state)


@program("multi-task, wearable sensors", "held", expect=("repeated-backward",))
def incident_each_task_propagates_alone(fixed):
    """Since tasks come from a registry each of the five runs its own backward with retain_graph, so the backward of the shared
    trunk runs five times. Fix: add up the losses and propagate once; the gradients are the same."""
    classes = {"activity": 12, "position": 5, "terrain": 4, "device": 8, "gait": 3}
    trunk = nn.Sequential(nn.Conv1d(6, 64, 7, stride=2), nn.ReLU(), nn.Conv1d(64, 96, 5, stride=2), nn.ReLU(),
                          nn.Conv1d(96, 96, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    heads = nn.ModuleDict({task: mlp(96, 64, count) for task, count in classes.items()})
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.02, momentum=0.9)
    labels = [torch.randint(count, (960,)) for count in classes.values()]
    for signals, *truths in endless(32, torch.randn(960, 6, 128), *labels):
        optimizer.zero_grad()
        shared = trunk(signals)
        losses = [F.cross_entropy(heads[task](shared), truth) for task, truth in zip(classes, truths)]
        if fixed:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
        optimizer.step()
        yield len(signals)


@program("image restoration CNN, perceptual loss", "held", expect=("unread-gradients",))
def incident_perceptual_loss_trains_its_frozen_network(fixed):
    """The new auxiliary loss compares features of a pretrained network that no optimizer holds, but whose weights, and whose
    pass over the clean images, still get gradients. Fix: requires_grad_(False) and no_grad for the clean images."""
    net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(24, 3, 3, padding=1))
    judge = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                          nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).eval()
    net, judge = net.to(memory_format=torch.channels_last), judge.to(memory_format=torch.channels_last)
    if fixed:
        judge.requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for clean, in endless(4, torch.rand(128, 3, 48, 48).contiguous(memory_format=torch.channels_last)):
        noisy = clean + 0.1 * torch.randn_like(clean)
        restored = noisy + net(noisy)
        with torch.set_grad_enabled(not fixed):
            wanted = judge(clean)
        loss = F.l1_loss(restored, clean) + 0.5 * F.mse_loss(judge(restored), wanted)
        update(optimizer, loss)
        yield len(clean)


@program("tabular MLP, divergence guard", "held", expect=("work-between-steps", "logging-checkpoint-stall"))
def incident_rollback_callback_copies_state_every_step(fixed):
    """After a run had ended in NaN, a callback deep-copies the weights and Adam's state before each step, to return to them.
    Fix: no copy; look at the loss before the step and skip the step if the loss is not finite."""
    net = mlp(90, 1024, 1024, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    for rows, prices in endless(64, torch.randn(6400, 90), torch.randn(6400, 1)):
        if not fixed:
            good = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
        loss = F.huber_loss(net(rows), prices)
        if math.isfinite(loss.item()):
            update(optimizer, loss)
        elif not fixed:
            net.load_state_dict(good[0])
            optimizer.load_state_dict(good[1])
        yield len(rows)


@program("GNN, GraphSAGE with sampled neighbours", "held")
def good_incident_graph_sage_two_hops(fixed):
    """Nothing is wrong: reported as slow after the change to two hops, but gathering the neighbours is what two hops cost."""
    nodes, fan, width = 20_000, 10, 128
    features, neighbours = torch.randn(nodes, 64), torch.randint(nodes, (nodes, fan))
    first, second, head = nn.Linear(2 * 64, width), nn.Linear(2 * width, width), nn.Linear(width, 30)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *head.parameters()], lr=1e-3, fused=True)
    for seeds, labels in endless(192, torch.randperm(nodes)[:19_200], torch.randint(30, (19_200,))):
        reached = torch.cat([seeds[:, None], neighbours[seeds]], 1).flatten()
        around = F.embedding_bag(neighbours[reached], features, mode="mean")
        hidden = F.relu(first(torch.cat([features[reached], around], 1))).view(len(seeds), fan + 1, width)
        hidden = F.relu(second(torch.cat([hidden[:, 0], hidden[:, 1:].mean(1)], 1)))
        loss = F.cross_entropy(head(hidden), labels)
        update(optimizer, loss)
        yield len(seeds)


@program("diffusion in a latent space", "held")
def good_incident_latent_diffusion_with_average(fixed):
    """Nothing is wrong: the moving average, the clipping and the logged loss were suspected, but cost little here."""
    net = mlp(64 + 32, 512, 512, 512, 64)
    average = [weight.detach().clone() for weight in net.parameters()]
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)[:, None]
    angles = torch.arange(1000)[:, None] * (-math.log(1e4) * torch.arange(16) / 16).exp()
    times, logged = torch.cat([angles.sin(), angles.cos()], 1), 0.0
    for latents, in endless(512, torch.randn(10_240, 64)):
        time, noise = torch.randint(1000, (len(latents),)), torch.randn_like(latents)
        mixed = kept[time].sqrt() * latents + (1 - kept[time]).sqrt() * noise
        loss = F.mse_loss(net(torch.cat([mixed, times[time]], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, list(net.parameters()), 0.001)
        logged = 0.99 * logged + 0.01 * loss.item()
        yield len(latents)
