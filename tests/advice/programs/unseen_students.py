"""Training programs of a university group's projects, each with one inefficiency, and two without."""
import random
import re
import string

import torch
import torch.nn.functional as F
from harness import mlp, program, update
from torch import nn


@program("topic classifier of news texts", "held", expect=("python-between-ops", "work-between-steps"))
def student_news_topics(fixed):
    """The same texts are lowercased, split and looked up word by word in Python again in each epoch, while training
    waits. Fix: encode all texts once before training."""
    random.seed(0)
    words = ["".join(random.choices(string.ascii_letters, k=random.randint(3, 9))) for _ in range(6000)]
    texts = [" ".join(random.choices(words, k=random.randint(95, 130))) + "." for _ in range(96 * 12)]
    vocabulary = {word.lower(): number for number, word in enumerate(words, 1)}
    labels = torch.randint(8, (len(texts),))

    def encode(text, length=96):
        ids = [vocabulary.get(word, 0) for word in re.findall(r"[a-z]+", text.lower())][:length]
        return ids + [0] * (length - len(ids))

    embedding, conv, head = nn.Embedding(6001, 48), nn.Conv1d(48, 64, 3), nn.Linear(64, 8)
    parameters = [*embedding.parameters(), *conv.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    encoded = torch.tensor([encode(text) for text in texts]) if fixed else None
    while True:
        for start in range(0, len(texts), 96):
            if fixed:
                ids = encoded[start:start + 96]
            else:
                ids = torch.tensor([encode(text) for text in texts[start:start + 96]])
            hidden = conv(embedding(ids).transpose(1, 2)).relu().amax(2)
            update(optimizer, F.cross_entropy(head(hidden), labels[start:start + 96]))
            yield len(ids)


@program("image captioning with a GRU decoder", "held", expect=("unbatched-loop",))
def student_captions(fixed):
    """The loss is summed over the time steps in a Python loop; the gradient of each slice is a tensor as large as all
    logits. Fix: one cross entropy over all positions."""
    images, captions = torch.randn(16 * 25, 256), torch.randint(1000, (16 * 25, 41))
    start, embedding, head = nn.Linear(256, 128), nn.Embedding(1000, 96), nn.Linear(128, 1000)
    decoder = nn.GRU(96, 128, batch_first=True)
    parameters = [p for module in (start, embedding, decoder, head) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    while True:
        for image, caption in zip(images.split(16), captions.split(16)):
            hidden, _ = decoder(embedding(caption[:, :-1]), start(image)[None])
            logits, target = head(hidden), caption[:, 1:]
            if fixed:
                loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            else:
                loss = 0
                for t in range(target.shape[1]):
                    loss = loss + F.cross_entropy(logits[:, t], target[:, t])
                loss = loss / target.shape[1]
            update(optimizer, loss)
            yield len(image)


@program("GAN of small images", "held", expect=("unread-gradients", "repeated-backward"))
def student_portrait_gan(fixed):
    """The discriminator's loss is propagated back through the generator, too, whose gradients are then thrown away.
    Fix: detach the generated images in the discriminator's step."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(64, 128, 4), nn.BatchNorm2d(128), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 3, 3, 1, 1), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(3, 24, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(24, 48, 4, 2, 1),
                           nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(48 * 16, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    photos = torch.rand(32 * 20, 3, 16, 16) * 2 - 1
    while True:
        for real in photos.split(32):
            fake = generator(torch.randn(len(real), 64, 1, 1))
            critic.requires_grad_(True)
            optimizer_d.zero_grad()
            loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach() if fixed else fake)).mean()
            loss_d.backward(retain_graph=not fixed)
            optimizer_d.step()
            critic.requires_grad_(False)
            update(optimizer_g, F.softplus(-critic(fake)).mean())
            yield len(real)


@program("classifier of handwritten signs", "held", expect=("unbatched-loop",))
def student_hand_signs(fixed):
    """The confusion matrix of the epoch is counted up in a Python loop over the samples of each batch.
    Fix: one bincount of the pairs of classes per batch."""
    model = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(),
                          nn.Linear(32 * 25, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.rand(256 * 12, 1, 28, 28), torch.randint(20, (256 * 12,))
    while True:
        confusion = torch.zeros(20, 20, dtype=torch.long)
        for image, label in zip(images.split(256), labels.split(256)):
            logits = model(image)
            update(optimizer, F.cross_entropy(logits, label))
            predicted = logits.argmax(1)
            if fixed:
                confusion += torch.bincount(label * 20 + predicted, minlength=400).view(20, 20)
            else:
                for t, p in zip(label, predicted):
                    confusion[t, p] += 1
            yield len(image)
        print("recall:", (confusion.diag() / confusion.sum(1).clamp(min=1)).tolist())


@program("classifier of bird calls in recordings", "held", expect=("late-selection",))
def student_bird_calls(fixed):
    """Noise is added to whole recordings of 3 s and their whole log mel spectrograms are computed, of which a random
    window of 1 s is used. Fix: cut the second out of the waveform first."""
    model = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                          nn.Conv2d(32, 48, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 12))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    recordings, species = 0.1 * torch.randn(16 * 15, 48000), torch.randint(12, (16 * 15,))
    window, mel = torch.hann_window(512), torch.rand(257, 64) / 257

    def log_mel(wave):
        wave = wave * torch.empty(len(wave), 1).uniform_(0.7, 1.3) + 0.01 * torch.randn_like(wave)
        spectrum = torch.stft(wave, 512, 160, window=window, center=False, return_complex=True).abs().square()
        return (spectrum.transpose(1, 2) @ mel).add(1e-6).log()

    while True:
        for wave, label in zip(recordings.split(16), species.split(16)):
            start = int(torch.randint((48000 - 512) // 160 + 1 - 98, ()))
            if fixed:
                features = log_mel(wave[:, 160 * start:160 * (start + 97) + 512])
            else:
                features = log_mel(wave)[:, start:start + 98]
            update(optimizer, F.cross_entropy(model(features[:, None]), label))
            yield len(wave)


@program("regression of wages on survey data", "held", expect=("late-selection",))
def student_wage_survey(fixed):
    """For each batch all 600 000 rows are permuted, to take the first 1536 of them. Fix: draw 1536 row numbers."""
    rows = 600_000
    survey, wage = torch.randn(rows, 40), torch.randn(rows, 1)
    model = mlp(40, 256, 256, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        batch = torch.randint(rows, (1536,)) if fixed else torch.randperm(rows)[:1536]
        update(optimizer, F.huber_loss(model(survey[batch]), wage[batch]))
        yield len(batch)


@program("ensemble of dynamics models of a robot arm", "held", expect=("networks-one-by-one",))
def student_arm_ensemble(fixed):
    """The eight small networks of the ensemble are run one after the other, each with its own small operations.
    Fix: stack their weights, and run all with batched matrix products."""
    members, batch, widths = 8, 96, (24, 96, 96, 96, 36)
    states, changes = torch.randn(20_000, 24), torch.randn(20_000, 18)
    networks = [mlp(*widths) for _ in range(members)]
    parameters = [p for network in networks for p in network.parameters()]
    if fixed:
        parameters = [torch.stack([p.detach() for p in layer]).requires_grad_()
                      for layer in zip(*(network.parameters() for network in networks))]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def loss_of(output, target):
        mean, log_var = output.chunk(2, -1)
        log_var = log_var.clamp(-8, 4)
        return ((mean - target).square() * torch.exp(-log_var) + log_var).mean()

    while True:
        chosen = torch.randint(len(states), (members, batch))
        x, y = states[chosen], changes[chosen]
        if fixed:
            for number in range(0, len(parameters), 2):
                x = torch.baddbmm(parameters[number + 1][:, None], x, parameters[number].transpose(1, 2))
                x = x.relu() if number + 2 < len(parameters) else x
            loss = loss_of(x, y) * members
        else:
            loss = sum(loss_of(network(x[number]), y[number]) for number, network in enumerate(networks))
        update(optimizer, loss)
        yield members * batch


@program("segmentation of cell images", "held", expect=("product-order",))
def student_cell_masks(fixed):
    """The 64 channels are enlarged to the full size and only then mapped to 3 classes by a 1x1 convolution.
    Fix: first the 1x1 convolution, then the bilinear enlargement, of 3 channels, with the same result."""
    encoder = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                            nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())
    classify = nn.Conv2d(64, 3, 1)
    enlarge = nn.Upsample(scale_factor=4, mode="bilinear", align_corners=False)
    head = nn.Sequential(classify, enlarge) if fixed else nn.Sequential(enlarge, classify)
    model = nn.Sequential(encoder, head).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, masks = torch.rand(4 * 20, 1, 96, 96), torch.randint(3, (4 * 20, 96, 96))
    while True:
        for image, mask in zip(images.split(4), masks.split(4)):
            update(optimizer, F.cross_entropy(model(image), mask))
            yield len(image)


@program("travel times of seismic waves from a physics-informed network", "held",
         expect=("repeated-forward", "repeated-backward"))
def student_travel_times(fixed):
    """The derivatives with respect to x, y and z are taken in three backward passes through the network, each with a
    graph of its own. Fix: one call of autograd.grad for the three."""
    layers = [layer for width in (3, 64, 64, 64) for layer in (nn.Linear(width, 64), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        x, y, z = (torch.rand(512, 1, requires_grad=True) for _ in range(3))
        slowness = 1 / (2 + 3 * z.detach())
        distance = (x ** 2 + y ** 2 + z ** 2 + 1e-6).sqrt()
        time = distance * F.softplus(model(torch.cat([x, y, z], 1)))
        if fixed:
            time_x, time_y, time_z = torch.autograd.grad(time.sum(), (x, y, z), create_graph=True)
        else:
            time_x, = torch.autograd.grad(time.sum(), x, create_graph=True)
            time_y, = torch.autograd.grad(time.sum(), y, create_graph=True)
            time_z, = torch.autograd.grad(time.sum(), z, create_graph=True)
        residual = time_x ** 2 + time_y ** 2 + time_z ** 2 - slowness ** 2
        update(optimizer, residual.square().mean())
        yield len(x)


@program("autoencoder of gene expression in single cells", "held", expect=("batches-gathered-from-columns",))
def student_cell_atlas(fixed):
    """The matrix is kept as genes x cells, so that each batch is gathered from scattered single numbers.
    Fix: transpose it once, so that a cell is one contiguous row."""
    genes, cells = 1500, 20_000
    expression = torch.rand(genes, cells)
    if fixed:
        expression = expression.T.contiguous()
    model = mlp(genes, 128, 32, 128, genes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    while True:
        for chosen in torch.randperm(cells).split(250):
            batch = expression[chosen] if fixed else expression[:, chosen].T
            update(optimizer, F.mse_loss(model(batch), batch))
            yield len(batch)


@program("language model of protein sequences: nothing is wrong", "held")
def student_good_proteins(fixed):
    """Nothing is wrong; `fixed` changes nothing."""
    width, length = 128, 96
    embedding, place = nn.Embedding(26, width), nn.Parameter(0.02 * torch.randn(length, width))
    blocks = nn.ModuleList(nn.ModuleDict({"norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width),
                                          "out": nn.Linear(width, width), "norm2": nn.LayerNorm(width),
                                          "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)})
                           for _ in range(2))
    head = nn.Linear(width, 26)
    parameters = [*embedding.parameters(), place, *blocks.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    sequences = torch.randint(26, (16 * 60, length + 1))
    while True:
        for chosen in torch.randperm(len(sequences)).split(16):
            batch = sequences[chosen]
            x = embedding(batch[:, :-1]) + place
            for block in blocks:
                q, k, v = block["qkv"](block["norm1"](x)).unflatten(2, (3, 4, -1)).permute(2, 0, 3, 1, 4)
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + block["out"](mixed.transpose(1, 2).flatten(2))
                x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
            update(optimizer, F.cross_entropy(head(x).flatten(0, 1), batch[:, 1:].flatten()))
            yield len(batch)


@program("classifier of galaxies with augmentation and running metrics: nothing is wrong", "held")
def student_good_galaxies(fixed):
    """Nothing is wrong; `fixed` changes nothing."""
    model = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                          nn.Conv2d(64, 96, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(96, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.rand(32 * 25, 3, 64, 64), torch.randint(5, (32 * 25,))
    while True:
        total, right = torch.zeros(()), torch.zeros((), dtype=torch.long)
        for chosen in torch.randperm(len(images)).split(32):
            image, label = images[chosen], labels[chosen]
            flipped = [axis for axis in (2, 3) if random.random() < 0.5]
            logits = model(image.flip(flipped) if flipped else image)
            loss = F.cross_entropy(logits, label)
            update(optimizer, loss)
            total += loss.detach()
            right += (logits.detach().argmax(1) == label).sum()
            yield len(image)
        print(f"loss {total.item() / 25:.3f}, accuracy {right.item() / len(images):.3f}")
