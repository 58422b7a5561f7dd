"""Training steps of ten teams, with a mistake each, and two in which nothing is wrong."""

import zlib

import torch
import torch.nn.functional as F
from torch import nn

from harness import endless, mlp, program, update


@program("hospital: findings in X-ray images, head on a pretrained encoder", "held",
         expect=("unread-gradients",))
def hospital_xray_findings_head(fixed):
    """Only the head is trained (the optimizer has only its parameters), but the pretrained encoder still requires
    gradients: each step goes backward through all its convolutions, and nobody uses what comes out.
    Fix: encoder.requires_grad_(False), or run the encoder under torch.no_grad()."""
    encoder = nn.Sequential(nn.Conv2d(1, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
                            nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.BatchNorm2d(48), nn.ReLU(),
                            nn.Conv2d(48, 96, 3, stride=2, padding=1), nn.BatchNorm2d(96), nn.ReLU(),
                            nn.Conv2d(96, 96, 3, padding=1), nn.BatchNorm2d(96), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    head = mlp(96, 64, 14)
    if fixed:
        encoder.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=True)
    data = torch.randn(512, 1, 72, 72), torch.rand(512, 14).lt(0.1).float()
    for images, findings in endless(12, *data):
        images = images * (0.9 + 0.2 * torch.rand(len(images), 1, 1, 1))  # contrast
        update(optimizer, F.binary_cross_entropy_with_logits(head(encoder(images)), findings))
        yield len(images)


@program("quant fund: temporal convolutions over factor windows, correlation with returns", "held",
         expect=("fp64-compute",))
def quant_return_forecast(fixed):
    """The factors come out of a data frame as float64, and to make the types match the net was turned into double,
    too. Fix: make the data float32 and leave the net in float32."""
    factors, returns = torch.randn(4096, 16, 40, dtype=torch.float64), torch.randn(4096, dtype=torch.float64)
    net = nn.Sequential(nn.Conv1d(16, 48, 3), nn.ReLU(), nn.Conv1d(48, 48, 3, dilation=2), nn.ReLU(),
                        nn.Conv1d(48, 48, 3, dilation=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                        nn.Linear(48, 1))
    if fixed:
        factors, returns = factors.float(), returns.float()
    else:
        net = net.double()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for windows, targets in endless(64, factors, returns):  # the stocks of a day
        signal = net(windows).squeeze(1)
        update(optimizer, -F.cosine_similarity(signal - signal.mean(), targets - targets.mean(), dim=0))
        yield len(windows)


@program("game studio: PPO of a bot, small MLP, advantages of a rollout", "held",
         expect=("unbatched-loop",))
def games_ppo_bot(fixed):
    """Generalised advantage estimation walks back through the 512 frames of the rollout with a dozen tensor operations
    on eight numbers at each. Fix: what needs no recursion for all frames at once, and the recursion as a scan that
    doubles its reach (or in plain Python numbers, or as a matrix product)."""
    frames, envs, gamma, lam = 512, 8, 0.99, 0.95
    net = mlp(32, 64, 64, 6 + 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    while True:
        seen = torch.randn(frames + 1, envs, 32)  # what the game servers sent
        acts, rewards = torch.randint(6, (frames, envs)), torch.randn(frames, envs)
        alive = torch.rand(frames, envs).gt(0.01).float()
        with torch.no_grad():
            out = net(seen)
        values, before = out[..., -1], F.log_softmax(out[:-1, :, :-1], -1).gather(-1, acts[..., None]).flatten()
        if fixed:
            advantages = rewards + gamma * values[1:] * alive - values[:-1]
            keep, reach = gamma * lam * alive, 1
            while reach < frames:
                advantages = advantages + F.pad(keep[:-reach] * advantages[reach:], (0, 0, 0, reach))
                keep, reach = F.pad(keep[:-reach] * keep[reach:], (0, 0, 0, reach)), 2 * reach
        else:
            advantages, last = torch.zeros(frames, envs), torch.zeros(envs)
            for t in reversed(range(frames)):
                delta = rewards[t] + gamma * values[t + 1] * alive[t] - values[t]
                last = delta + gamma * lam * alive[t] * last
                advantages[t] = last
        goals, gains = (advantages + values[:-1]).flatten(), advantages.flatten()
        gains = (gains - gains.mean()) / gains.std()
        rollout = seen[:-1].flatten(0, 1), acts.flatten(), before, gains, goals
        for x, a, old, gain, goal in zip(*(part.split(1024) for part in rollout)):
            out = net(x)
            ratio = (F.log_softmax(out[:, :-1], 1).gather(1, a[:, None]).squeeze(1) - old).exp()
            policy = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            update(optimizer, 0.5 * F.mse_loss(out[:, -1], goal) - policy)
        yield frames * envs


@program("speech: commands recognised with GRU and CTC", "held", expect=("padded-to-maximum",))
def speech_ctc_commands(fixed):
    """Every batch is padded to the 160 frames that the longest allowed recording has, though no utterance of the batch
    has more than about 65: the GRU runs through silence that the loss ignores, more than half of its steps.
    Fix: cut the batch to its longest utterance."""
    gru, letters = nn.GRU(40, 64, batch_first=True), nn.Linear(64, 30)
    optimizer = torch.optim.Adam([*gru.parameters(), *letters.parameters()], lr=1e-3, fused=True)
    lengths = torch.randint(30, 66, (512,))
    mels = torch.randn(512, 160, 40) * (torch.arange(160) < lengths[:, None])[..., None]
    texts = torch.randint(1, 30, (512, 12))
    for sounds, frames, text in endless(16, mels, lengths, texts):
        if fixed:
            sounds = sounds[:, :frames.max()]
        scores = F.log_softmax(letters(gru(sounds)[0]), -1).transpose(0, 1)
        update(optimizer, F.ctc_loss(scores, text, frames, torch.full((len(text),), 12)))
        yield len(text)


@program("drug discovery: message passing over pockets with ligands, affinity", "held",
         expect=("product-order", "repeated-rows"))
def drugs_pocket_message_passing(fixed):
    """A message is act(W [h_from, h_to]), and W is applied after gathering both ends, once per edge: but it is linear,
    and there are 16 times as many edges as atoms. Fix: multiply the atoms by the two halves of W, then gather and
    add."""
    graphs, atoms, near, width = 8, 40, 16, 64
    embed, read = nn.Linear(20, width), nn.Linear(width, 1)
    messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
    changes = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
    parts = nn.ModuleList([embed, read, messages, changes])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-3, fused=True)
    count = graphs * atoms
    into = torch.arange(count).repeat_interleave(near)
    while True:
        kinds, affinity = torch.randn(count, 20), torch.randn(graphs)
        out_of = torch.randint(atoms, (count * near,)) + into // atoms * atoms  # within the same complex
        h = embed(kinds)
        for message, change in zip(messages, changes):
            if fixed:
                left, right = message.weight.split(width, 1)
                sent = F.linear(h, left).index_select(0, out_of)
                sent = sent + F.linear(h, right, message.bias).index_select(0, into)
            else:
                sent = message(torch.cat([h.index_select(0, out_of), h.index_select(0, into)], 1))
            received = torch.zeros_like(h).index_add(0, into, F.silu(sent)) / near
            h = h + F.silu(change(received))
        update(optimizer, F.mse_loss(read(h.view(graphs, atoms, width).mean(1)).squeeze(1), affinity))
        yield graphs


@program("shop: click-through with user and item vectors, Adagrad", "held", expect=("dense-embedding-gradient",), also=("unfused-optimizer",))
def shop_click_through(fixed):
    """A batch touches a thousand rows of the tables of users and items, but their gradient is dense: each step fills
    four million zeros and the optimizer goes over all of them. Fix: sparse=True at the embeddings (Adagrad can, and the
    rows without gradient stay as they are in either case)."""
    users, items = nn.Embedding(90_000, 32, sparse=fixed), nn.Embedding(40_000, 32, sparse=fixed)
    score = mlp(64 + 16, 128, 64, 1)
    optimizer = torch.optim.Adagrad([*users.parameters(), *items.parameters(), *score.parameters()], lr=0.02)
    data = (torch.randint(90_000, (65536,)), torch.randint(40_000, (65536,)), torch.randn(65536, 16),
            torch.rand(65536).lt(0.1).float())
    for who, what, context, clicked in endless(512, *data):
        logits = score(torch.cat([users(who), items(what), context], 1)).squeeze(1)
        update(optimizer, F.binary_cross_entropy_with_logits(logits, clicked))
        yield len(who)


@program("university NLP: masked language model, small transformer", "held",
         expect=("ignored-labels", "late-selection"))
def nlp_masked_language_model(fixed):
    """The scores of all 4000 words are computed at every position, and the loss then ignores the 85 % of positions that
    are not masked. Fix: pick the masked positions before the output layer."""
    width, words = 96, 4000
    embed, places = nn.Embedding(words, width), nn.Parameter(0.02 * torch.randn(48, width))
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    encoder, decoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, words)
    optimizer = torch.optim.AdamW([places, *embed.parameters(), *encoder.parameters(), *decoder.parameters()],
                                  lr=1e-4, fused=True)
    for (text,) in endless(8, torch.randint(2, words, (1024, 48))):
        masked = torch.rand(text.shape) < 0.15
        labels = text.masked_fill(~masked, -100)
        states = encoder(embed(text.masked_fill(masked, 1)) + places)
        if fixed:
            states, labels = states[masked], labels[masked]
        update(optimizer, F.cross_entropy(decoder(states).flatten(0, -2), labels.flatten(), ignore_index=-100))
        yield len(text)


@program("robotics: behaviour cloning from a camera, arm and gripper heads", "held",
         expect=("repeated-forward",), also=("layout-transpose",))
def robots_clone_arm_and_gripper(fixed):
    """Either head of the policy calls the encoder that they share, with the same images: it goes forward and backward
    twice per step. Fix: encode once and give the features to both heads."""
    eyes = nn.Sequential(nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 48, 3, stride=2), nn.ReLU(),
                         nn.Conv2d(48, 64, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 36, 128), nn.ReLU())
    arm_head, gripper_head = mlp(128, 64, 7), mlp(128, 64, 2)

    def arm(images, features=None):
        return arm_head(eyes(images) if features is None else features)

    def gripper(images, features=None):
        return gripper_head(eyes(images) if features is None else features)

    optimizer = torch.optim.Adam(nn.ModuleList([eyes, arm_head, gripper_head]).parameters(), lr=3e-4, fused=True)
    data = torch.rand(512, 3, 64, 64), torch.randn(512, 7), torch.randint(2, (512,))
    for images, joints, closed in endless(16, *data):
        features = eyes(images) if fixed else None
        loss = F.mse_loss(arm(images, features), joints) + F.cross_entropy(gripper(images, features), closed)
        update(optimizer, loss)
        yield len(images)


@program("weather: next hour's fields, convolutions on a periodic grid, packed archive", "held",
         expect=("sync-data-loading", "python-between-ops"))
def weather_next_hour(fixed):
    """The archive is compressed in chunks of a day, and samples are hours drawn at random: for each hour a whole day is
    unpacked and 23 hours of it are thrown away. Fix: chunks of an hour (or keep unpacked what fits in memory)."""
    hours, shape, chunk = 480, (6, 32, 64), 1 if fixed else 24
    fields = 40 * torch.randn(hours, *shape).cumsum(-1)
    packed, archive = bytearray(2 * fields[:chunk].numel()), []
    for part in fields.split(chunk):
        torch.frombuffer(packed, dtype=torch.int16).copy_(part.flatten())  # scaled integers, as in netCDF
        archive.append(zlib.compress(packed, 1))

    def read(hour):
        day = torch.frombuffer(bytearray(zlib.decompress(archive[hour // chunk])), dtype=torch.int16)
        return day.view(chunk, *shape)[hour % chunk] / 300

    net = nn.Sequential(nn.Conv2d(6, 32, 3, padding=1, padding_mode="circular"), nn.GELU(),
                        nn.Conv2d(32, 32, 3, padding=1, padding_mode="circular"), nn.GELU(),
                        nn.Conv2d(32, 6, 3, padding=1, padding_mode="circular"))
    area = torch.linspace(-1.5, 1.5, 32).cos()[:, None]
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    while True:
        starts = torch.randint(hours - 1, (2,)).tolist()
        now, then = torch.stack([read(t) for t in starts]), torch.stack([read(t + 1) for t in starts])
        update(optimizer, ((now + net(now) - then).square() * area).mean())
        yield len(starts)


@program("fraud detection: rare frauds drawn more often, MLP over transactions", "held",
         expect=("weighted-draw",))
def fraud_balanced_batches(fixed):
    """Each batch is drawn with torch.multinomial, which sums up the weights of two million transactions for 256 draws.
    Fix: sum the weights up once and search in the sums (or draw the indices of many batches at once)."""
    count = 2_000_000
    features, fraud = torch.randn(count, 16), torch.rand(count).lt(0.01)
    weights = torch.where(fraud, 50.0, 0.5).double()
    sums = weights.cumsum(0)
    net = mlp(16, 256, 256, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    while True:
        if fixed:
            drawn = torch.searchsorted(sums, sums[-1] * torch.rand(256, dtype=torch.float64)).clamp(max=count - 1)
        else:
            drawn = torch.multinomial(weights, 256, replacement=True)
        logits = net(features.index_select(0, drawn)).squeeze(1)
        update(optimizer, F.binary_cross_entropy_with_logits(logits, fraud[drawn].float()))
        yield len(drawn)


@program("game studio: big policy distilled into a small one", "held")
def good_policy_distillation(fixed):
    """Nothing is wrong: the teacher runs without gradients, and on noisy states, so that its answers cannot be kept."""
    teacher, student = mlp(64, 384, 384, 12).requires_grad_(False), mlp(64, 256, 256, 12)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3, fused=True)
    for (states,) in endless(512, torch.randn(16384, 64)):
        states = states + 0.1 * torch.randn_like(states)
        goal = F.log_softmax(teacher(states), 1)
        update(optimizer, F.kl_div(F.log_softmax(student(states), 1), goal, log_target=True, reduction="batchmean"))
        yield len(states)


@program("university NLP: tagger, small transformer, sentences of about the same length together", "held")
def good_sentence_tagger(fixed):
    """Nothing is wrong: the batches are cut to the length that all their sentences have."""
    width = 96
    embed, tag = nn.Embedding(4000, width), nn.Linear(width, 17)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW([*embed.parameters(), *encoder.parameters(), *tag.parameters()], lr=3e-4, fused=True)
    for sentences, tags in endless(16, torch.randint(4000, (1024, 32)), torch.randint(17, (1024, 32))):
        update(optimizer, F.cross_entropy(tag(encoder(embed(sentences))).flatten(0, 1), tags.flatten()))
        yield len(sentences)
