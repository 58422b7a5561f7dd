"""A program without an optimizer: batches of a loader in two epochs."""
import torch

model = torch.nn.Linear(4, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(48, 4)), batch_size=4)
with torch.no_grad():
    for epoch in range(2):
        for (batch,) in loader:
            model(batch)
print("done")
