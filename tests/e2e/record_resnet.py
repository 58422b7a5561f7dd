"""Trains a small residual network on the CPU and records it with the Python package, with everything that viewers show.

    record_resnet.py LOG_DIR
"""
import sys

import torch
from torch import nn

from stepscope import profile, schedule


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, images):
        inner = torch.relu(self.bn1(self.conv1(images)))
        return torch.relu(images + self.bn2(self.conv2(inner)))


class SmallResNet(nn.Module):
    def __init__(self, width=16, blocks=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        found = self.stem(images)
        for block in self.blocks:
            found = block(found)
        return self.head(found.mean((2, 3)))


def main():
    torch.manual_seed(0)
    model = SmallResNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.utils.data.TensorDataset(torch.randn(96, 3, 32, 32), torch.randint(10, (96,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    with profile(log_dir=sys.argv[1], name="small_resnet", schedule=schedule(wait=2, warmup=2, active=5), print_report=False,
                 profile_memory=True, with_stack=True, with_modules=True) as prof:
        for images, wanted in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), wanted).backward()
            optimizer.step()
            prof.step()


if __name__ == "__main__":
    main()
