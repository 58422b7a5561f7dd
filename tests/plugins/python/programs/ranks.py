"""DistributedDataParallel on two processes with gloo, either under torchrun or started with spawn (ranks.py spawn).

Under torchrun: `ranks.py FILE` makes FILE.<rank> after 12 steps and then trains until it is ended; with `ranks.py raise`, rank
1 raises in step 12.
"""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing


def train(rank, world_size, mark="", fails=False):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10_000 if mark else 20):
        if step == 12 and mark:
            pathlib.Path(f"{mark}.{rank}").touch()
        if step == 12 and fails and rank == 1:
            raise RuntimeError("the loss is not finite")
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if mark:
            time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["spawn"]:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ.update(MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")
        torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
        print("done")
    else:
        fails = sys.argv[1:] == ["raise"]
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "" if fails else "".join(sys.argv[1:]), fails)
        print("done\n", end="")  # in one write, because torchrun's ranks share an unbuffered pipe
