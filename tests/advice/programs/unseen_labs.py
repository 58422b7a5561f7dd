"""Programs as PhD students and research labs write them, one mistake each, and two good ones."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from harness import endless, mlp, program, update


@program("molecular force field, energy and forces", "held", expect=("repeated-backward",))
def lab_molecule_forces(fixed):
    """The forces come from one autograd.grad call per molecule, each of which differentiates through the whole batch.
    Fix: one call with energy.sum(), for a molecule's energy depends on its own positions only."""
    batch, atoms, centers = 6, 20, torch.linspace(0, 5, 32)
    species = nn.Embedding(5, 32)
    filters, readout = mlp(32, 64, 32), mlp(32, 64, 1)
    modules = nn.ModuleList([species, filters, readout])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3, fused=True)
    others = 1 - torch.eye(atoms)

    def energies(kinds, positions):
        # continuous-filter convolution over all pairs, as in SchNet
        offset = positions[:, :, None] - positions[:, None]
        distance = (offset.square().sum(-1) + 1e-6).sqrt()
        rbf = torch.exp(-4 * (distance[..., None] - centers) ** 2)
        weights = filters(rbf) * others[..., None]
        features = species(kinds)
        features = features + (weights * features[:, None]).sum(2)
        return readout(features).sum((1, 2))

    data = (torch.randint(5, (192, atoms)), 2 * torch.randn(192, atoms, 3), torch.randn(192), torch.randn(192, atoms, 3))
    for kinds, positions, energy_true, force_true in endless(batch, *data):
        positions = positions.clone().requires_grad_()
        energy = energies(kinds, positions)
        if fixed:
            force = -torch.autograd.grad(energy.sum(), positions, create_graph=True)[0]
        else:
            force = torch.stack([-torch.autograd.grad(energy[i], positions, create_graph=True)[0][i]
                                 for i in range(len(energy))])  # F_i = -dE_i/dx_i
        loss = 0.01 * F.mse_loss(energy, energy_true) + F.mse_loss(force, force_true)
        update(optimizer, loss)
        yield batch


@program("3D organ segmentation", "held", expect=("unbatched-loop",))
def lab_organ_segmentation(fixed):
    """In each step the confusion matrix for the Dice log is counted class pair by class pair, with a pass over all voxels
    and an .item() for each. Fix: one torch.bincount(target * classes + prediction)."""
    classes = 14
    net = nn.Sequential(nn.Conv3d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv3d(12, 12, 3, padding=1), nn.ReLU(),
                        nn.Conv3d(12, classes, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    volumes, organs = torch.randn(32, 1, 20, 20, 20), torch.randint(classes, (32, 20, 20, 20))
    for step, (volume, organ) in enumerate(endless(2, volumes, organs)):
        logits = net(volume)
        update(optimizer, F.cross_entropy(logits, organ))

        # keep track of the training Dice
        predicted = logits.detach().argmax(1)
        if fixed:
            pairs = (organ * classes + predicted).flatten()
            confusion += torch.bincount(pairs, minlength=classes ** 2).view(classes, classes)
        else:
            for i in range(classes):
                for j in range(classes):
                    confusion[i, j] += ((organ == i) & (predicted == j)).sum().item()
        if step % 16 == 15:
            dice = 2 * confusion.diag() / (confusion.sum(0) + confusion.sum(1))
            print(f"step {step}: mean dice {dice.mean():.3f}")
            confusion.zero_()
        yield len(volume)


@program("state-space model on sensor series", "held", expect=("direct-convolution",))
def lab_state_space(fixed):
    """The kernel of a diagonal state-space layer, as long as the series, is applied by conv1d, quadratic in the length.
    Fix: multiply in the frequency domain (rfft with zero padding to twice the length)."""
    length, width, states = 320, 16, 8

    class DiagonalSSM(nn.Module):
        def __init__(self):
            super().__init__()
            self.decay = nn.Parameter(torch.rand(width, states).add(0.01).log())
            self.read = nn.Parameter(torch.randn(width, states) / states)
            self.mix = nn.Linear(width, width)

        def forward(self, u):  # (batch, width, length)
            time = torch.arange(length)
            powers = torch.exp(-self.decay.exp()[..., None] * time)  # A^t of each state
            kernel = torch.einsum("ws,wst->wt", self.read, powers)
            if fixed:
                spectrum = torch.fft.rfft(u, 2 * length) * torch.fft.rfft(kernel, 2 * length)
                y = torch.fft.irfft(spectrum, 2 * length)[..., :length]
            else:
                y = F.conv1d(F.pad(u, (length - 1, 0)), kernel.flip(-1)[:, None], groups=width)
            return u + self.mix(F.gelu(y).transpose(1, 2)).transpose(1, 2)

    net = nn.Sequential(nn.Conv1d(3, width, 1), DiagonalSSM(), DiagonalSSM(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                        nn.Linear(width, 6))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    for series, activity in endless(16, torch.randn(256, 3, length), torch.randint(6, (256,))):
        update(optimizer, F.cross_entropy(net(series), activity))
        yield len(activity)


@program("point cloud autoencoder, Chamfer loss", "held", expect=("broadcast-contraction",))
def lab_point_cloud(fixed):
    """The Chamfer distance is taken from the differences of all pairs of points, a tensor (batch, n, n, 3) that also goes
    through backward. Fix: find the nearest points by torch.cdist without autograd and differentiate only those pairs."""
    points = 384
    encoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128))
    decoder = mlp(128, 256, 3 * points)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, fused=True)

    def chamfer(a, b):
        if fixed:
            with torch.no_grad():
                distance = torch.cdist(a, b)
                of_a, of_b = distance.argmin(2), distance.argmin(1)
            nearest_a = b.gather(1, of_a[..., None].expand(-1, -1, 3))
            nearest_b = a.gather(1, of_b[..., None].expand(-1, -1, 3))
            return (a - nearest_a).square().sum(-1).mean() + (b - nearest_b).square().sum(-1).mean()
        # d(a, b) = mean_i min_j |a_i - b_j|^2 + mean_j min_i |a_i - b_j|^2
        squared = (a[:, :, None] - b[:, None]).square().sum(-1)
        return squared.min(2).values.mean() + squared.min(1).values.mean()

    for cloud, in endless(4, torch.randn(128, points, 3)):
        code = encoder(cloud).amax(1)
        update(optimizer, chamfer(decoder(code).view(-1, points, 3), cloud))
        yield len(cloud)


@program("graph convolution on a citation graph", "held", expect=("sparse-kept-dense",))
def lab_citation_graph(fixed):
    """The normalised adjacency of a graph with about eight neighbours per node is a dense n x n matrix, multiplied in each
    layer. Fix: keep it sparse (CSR) and use a sparse matrix product."""
    nodes, width = 1300, 96
    source, target = torch.randint(nodes, (2, 4 * nodes))
    adjacency = torch.eye(nodes)
    adjacency[source, target] = adjacency[target, source] = 1.0
    # D^-1/2 (A + I) D^-1/2 of Kipf and Welling
    scale = adjacency.sum(1).rsqrt()
    adjacency = scale[:, None] * adjacency * scale
    if fixed:
        adjacency = adjacency.to_sparse_csr()

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Linear(256, width), nn.Linear(width, width), nn.Linear(width, 7)

        def forward(self, x):
            x = F.relu(adjacency @ self.first(x))
            x = F.relu(adjacency @ self.second(x))
            return adjacency @ self.third(x)

    net = GCN()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4, fused=True)
    features, topic = torch.randn(nodes, 256), torch.randint(7, (nodes,))
    while True:
        update(optimizer, F.cross_entropy(net(features), topic))
        yield nodes


@program("speech recognition, GRU with CTC", "held", expect=("padded-to-maximum",), period=8)
def lab_speech_ctc(fixed):
    """Each batch is padded to the longest utterance of the corpus (240 frames), though its own longest is less than
    half that. Fix: pad to the longest of the batch."""
    lengths = torch.randint(40, 101, (64,))
    lengths[45] = 240  # one speaker forgot to stop the recording
    corpus = [(torch.randn(int(n), 40), torch.randint(1, 30, (10,))) for n in lengths]
    longest = max(len(frames) for frames, _ in corpus)
    gru, head = nn.GRU(40, 64, batch_first=True), nn.Linear(64, 30)
    optimizer = torch.optim.Adam([*gru.parameters(), *head.parameters()], lr=1e-3, fused=True)

    def collate(utterances):
        frames, texts = zip(*utterances)
        sizes = torch.tensor([len(f) for f in frames])
        padded = pad_sequence(frames, batch_first=True)
        if not fixed:
            padded = F.pad(padded, (0, 0, 0, longest - padded.shape[1]))  # all batches of one shape
        return padded, sizes, torch.stack(texts)

    loader = torch.utils.data.DataLoader(corpus, batch_size=8, collate_fn=collate)
    while True:
        for padded, sizes, texts in loader:
            hidden, _ = gru(padded)
            log_probs = head(hidden).log_softmax(-1).transpose(0, 1)
            loss = F.ctc_loss(log_probs, texts, sizes, torch.full((len(texts),), 10))
            update(optimizer, loss)
            yield len(texts)


@program("world model, recurrent latent dynamics", "held", expect=("output-layer-in-loop",))
def lab_world_model(fixed):
    """The decoder and the reward head are called in each time step of the loop, on a few rows each, though nothing
    recurrent needs them. Fix: collect the states and call the heads once on all of them after the loop."""
    batch, time, deter, stoch = 8, 16, 96, 32
    encoder, cell = mlp(64, 128, 128), nn.GRUCell(stoch + 6, deter)
    posterior = nn.Linear(deter + 128, 2 * stoch)
    decoder, reward_head = mlp(deter + stoch, 256, 256, 64), mlp(deter + stoch, 256, 256, 1)
    modules = nn.ModuleList([encoder, cell, posterior, decoder, reward_head])
    optimizer = torch.optim.Adam(modules.parameters(), lr=3e-4, fused=True)
    replay = torch.randn(64, time, 64), torch.randn(64, time, 6), torch.randn(64, time)
    for observations, actions, rewards in endless(batch, *replay):
        embedded = encoder(observations)
        h, z = torch.zeros(batch, deter), torch.zeros(batch, stoch)
        states, statistics, loss = [], [], 0
        for t in range(time):
            h = cell(torch.cat([z, actions[:, t]], -1), h)
            statistics.append(posterior(torch.cat([h, embedded[:, t]], -1)))
            mean, log_std = statistics[-1].chunk(2, -1)
            z = mean + log_std.exp() * torch.randn_like(mean)
            state = torch.cat([h, z], -1)
            if fixed:
                states.append(state)
            else:
                loss = loss + F.mse_loss(decoder(state), observations[:, t]) / time
                loss = loss + F.mse_loss(reward_head(state)[:, 0], rewards[:, t]) / time
        if fixed:
            states = torch.stack(states, 1)
            loss = F.mse_loss(decoder(states), observations) + F.mse_loss(reward_head(states)[..., 0], rewards)
        # KL to a standard normal prior
        mean, log_std = torch.stack(statistics, 1).chunk(2, -1)
        loss = loss + 0.1 * (0.5 * (mean ** 2 + (2 * log_std).exp()) - log_std).mean()
        update(optimizer, loss)
        yield batch


@program("protein language model, linear attention", "held", expect=("product-order",))
def lab_protein_attention(fixed):
    """Attention with a feature map instead of softmax multiplies Q with K first and so makes length x length matrices.
    Fix: multiply K with V first, (phi(Q) (phi(K)^T V)), which is linear in the length."""
    length, width, heads = 384, 64, 4

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            # sum_j phi(q_i) phi(k_j) v_j / sum_j phi(q_i) phi(k_j)
            if fixed:
                attended = q @ (k.transpose(-2, -1) @ v) / (q @ k.sum(-2)[..., None])
            else:
                scores = q @ k.transpose(-2, -1)
                attended = (scores / scores.sum(-1, keepdim=True)) @ v
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.feed(self.norm2(x))

    embed, head = nn.Embedding(25, width), nn.Linear(width, 25)
    blocks = nn.Sequential(Block(), Block())
    optimizer = torch.optim.AdamW(nn.ModuleList([embed, blocks, head]).parameters(), lr=3e-4, fused=True)
    for residues, in endless(2, torch.randint(24, (128, length))):
        masked = torch.rand(residues.shape) < 0.5
        logits = head(blocks(embed(residues.masked_fill(masked, 24))))
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), residues.masked_fill(~masked, -100).flatten()))
        yield len(residues)


@program("energy-based model, Langevin sampling", "held", expect=("unread-gradients",))
def lab_energy_model(fixed):
    """The Langevin sampler calls backward() for the gradient of the samples, which computes the gradients of all weights,
    too, to be thrown away. Fix: torch.autograd.grad(energy.sum(), samples)."""
    energy = nn.Sequential(nn.Linear(64, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(),
                           nn.Linear(512, 1))
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-4, fused=True)

    def langevin(x, steps=10, step_size=0.1):
        for _ in range(steps):
            x = x.detach().requires_grad_()
            if fixed:
                gradient, = torch.autograd.grad(energy(x).sum(), x)
            else:
                energy(x).sum().backward()
                gradient = x.grad
            x = x - step_size * gradient + 0.01 * torch.randn_like(x)
        return x.detach()

    for real, in endless(32, torch.randn(4096, 64)):
        fake = langevin(torch.rand_like(real))
        positive, negative = energy(torch.cat([real, fake])).chunk(2)
        # contrastive divergence with a penalty on the size of the energies
        loss = positive.mean() - negative.mean() + 0.1 * (positive ** 2 + negative ** 2).mean()
        update(optimizer, loss)
        yield len(real)


@program("distillation of a galaxy classifier", "held", expect=("frozen-forward",), period=8)
def lab_distillation(fixed):
    """The frozen teacher is evaluated on the same, unaugmented images in every epoch. Fix: compute its logits of the data
    set once before training and load them with the images."""
    teacher = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, padding=1),
                            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)).eval()
    teacher.requires_grad_(False)
    student = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(512, 3, 32, 32), torch.randint(10, (512,))
    temperature = 4.0
    data = [images, labels]
    if fixed:
        with torch.no_grad():
            data.append(torch.cat([teacher(part) for part in images.split(64)]))
    for image, label, *stored in endless(64, *data):
        with torch.no_grad():
            soft = stored[0] if fixed else teacher(image)
        logits = student(image)
        distance = F.kl_div(F.log_softmax(logits / temperature, 1), F.softmax(soft / temperature, 1), reduction="batchmean")
        update(optimizer, F.cross_entropy(logits, label) + temperature ** 2 * distance)
        yield len(label)


@program("normalizing flow, affine couplings", "held")
def good_lab_coupling_flow(fixed):
    """Nothing is wrong."""
    size, half = 64, 32

    class Coupling(nn.Module):
        def __init__(self, flip):
            super().__init__()
            self.flip, self.net = flip, mlp(half, 384, 384, 2 * half)

        def forward(self, x):
            first, second = x.chunk(2, 1)
            if self.flip:
                first, second = second, first
            log_scale, shift = self.net(first).chunk(2, 1)
            log_scale = torch.tanh(log_scale)
            second = second * log_scale.exp() + shift
            # the Jacobian is triangular, so the log-determinant is the sum of the log-scales
            return torch.cat([second, first] if self.flip else [first, second], 1), log_scale.sum(1)

    layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(4))
    optimizer = torch.optim.Adam(layers.parameters(), lr=3e-4, fused=True)
    for x, in endless(256, torch.randn(8192, size)):
        log_det = 0
        for layer in layers:
            x, part = layer(x)
            log_det = log_det + part
        update(optimizer, (0.5 * x.square().sum(1) - log_det).mean())
        yield len(x)


@program("radiance field, volume rendering", "held")
def good_lab_radiance_field(fixed):
    """Nothing is wrong."""
    rays, samples = 128, 24
    frequencies = 2.0 ** torch.arange(5)
    field = mlp(3 + 2 * 3 * 5, 128, 128, 128, 4)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4, fused=True)
    depth = torch.linspace(2.0, 6.0, samples)
    spacing = (6.0 - 2.0) / samples
    directions = F.normalize(torch.randn(16384, 3), dim=1)
    for direction, pixel in endless(rays, directions, torch.rand(16384, 3)):
        # stratified samples along each ray
        at = depth + spacing * torch.rand(rays, samples)
        position = direction[:, None] * at[..., None]
        angles = (position[..., None] * frequencies).flatten(2)
        color, density = field(torch.cat([position, angles.sin(), angles.cos()], -1)).split([3, 1], -1)
        thickness = F.softplus(density[..., 0]) * spacing
        # transmittance up to each sample, then alpha compositing
        before = torch.exp(thickness - thickness.cumsum(1))
        weight = before * (1 - torch.exp(-thickness))
        rendered = (weight[..., None] * color.sigmoid()).sum(1)
        update(optimizer, F.mse_loss(rendered, pixel))
        yield rays
