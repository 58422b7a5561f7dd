"""DistributedDataParallel on two processes with gloo: under torchrun, or by itself with spawn (ranks.py spawn)."""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing


def train(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ.update(MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")
        torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
        print("done")
    else:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        print("done")
