"""Two optimizers, one step each per iteration; the discriminator's loader has two workers."""
import torch

generator, discriminator = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
of_generator = torch.optim.Adam(generator.parameters())
of_discriminator = torch.optim.Adam(discriminator.parameters())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 4)), batch_size=8, num_workers=2)
for (real,) in loader:
    fake = generator(torch.randn(8, 4))
    (discriminator(fake.detach()).mean() - discriminator(real).mean()).backward()
    of_discriminator.step()
    of_discriminator.zero_grad()
    (-discriminator(fake).mean()).backward()
    of_generator.step()
    of_generator.zero_grad()
print("done")
