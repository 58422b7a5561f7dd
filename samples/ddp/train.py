#!/usr/bin/env python3
"""ResNet-18 under DistributedDataParallel or FSDP2: efficient by default, with one flag for each way to lose time.

    torchrun --nproc-per-node 2 samples/ddp/train.py                      trains on two ranks
    torchrun --nproc-per-node 2 samples/ddp/train.py --log-dir runs/ddp   the same under stepscope: rank 0 reports on both

Uses NCCL on GPUs and gloo on a CPU. README.md shows what the report says about each flag.
"""

import argparse
import contextlib
import json
import os
import pathlib
import runpy
import signal
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RESNET = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[1] / "resnet/train.py"))


class WithAuxiliaryHead(nn.Module):
    """ResNet-18 with a second head, whose parameters no loss uses."""

    def __init__(self):
        super().__init__()
        self.network, self.auxiliary = RESNET["resnet18"](10), nn.Linear(512, 1000)

    def forward(self, pictures):
        return self.network(pictures)


class Slowed(torch.utils.data.Dataset):
    """`data` with samples that take `ms` longer to load."""

    def __init__(self, data, ms):
        self.data, self.ms = data, ms

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        time.sleep(self.ms * 1e-3)  # like a slow disk or network: uses no core
        return self.data[index]


class ByHand(nn.Module):
    """Data parallelism in its simplest form: gradients are averaged one by one after backward, without any overlap."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)

    def forward(self, pictures):
        return self.module(pictures)

    def average_gradients(self):
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--batch", type=int, default=8, metavar="N", help="pictures per rank and step (8)")
    add("--side", type=int, default=64, metavar="N", help="side of the pictures (64)")
    add("--steps", type=int, metavar="N", help="training steps (those of the profile, and 2 more)")
    add("--log-dir", metavar="DIR", help="profile with stepscope, and write its files there")
    add("--active", type=int, default=6, metavar="N", help="recorded steps, after 2 idle ones and 2 of warm-up (6)")
    add("--fsdp", action="store_true", help="shard parameters, gradients and momentum (FSDP2) instead of replicating them")
    add("--rank-timeout", type=float, default=10, metavar="S", help="how long rank 0 waits for the others' windows (10)")
    add("--json", metavar="FILE", help="rank 0 writes the time of every step to FILE")
    variants = parser.add_argument_group("ways to lose time")
    add = variants.add_argument
    add("--bucket-mb", type=float, default=25, metavar="MB",
        help="gradients per all-reduce: 1000 is one huge bucket, 0.01 nearly one per parameter (25)")
    add("--by-hand", action="store_true", help="average each gradient after backward, without overlap")
    add("--accumulate", type=int, default=1, metavar="N", help="micro-batches per step, under no_sync but for the last (1)")
    add("--sync-always", action="store_true", help="with --accumulate: leave no_sync out")
    add("--slow-loader", type=float, default=0, metavar="MS", help="one rank takes so much longer to load a sample")
    add("--slow-host", type=float, default=0, metavar="MS", help="one rank spends so much more in Python in every step")
    add("--slow-rank", type=int, default=1, metavar="R", help="which (1)")
    add("--uneven", type=int, default=1, metavar="N", help="batches of N times the size, on another rank each step")
    add("--join", action="store_true", help="the last rank has 2 batches less; the others go on under join()")
    add("--unused", action="store_true", help="a head that no loss uses, with find_unused_parameters")
    add("--one-unit", action="store_true", help="with --fsdp: shard the network as a whole instead of block by block")
    add("--keep-gathered", action="store_true", help="with --fsdp: keep parameters gathered from forward to backward")
    add("--die", type=int, metavar="STEP", help="the slow rank is killed in this step")
    args = parser.parse_args()
    if args.fsdp and (args.by_hand or args.join or args.unused):
        parser.error("--by-hand, --join and --unused are for DistributedDataParallel: leave --fsdp out")
    if not args.fsdp and (args.one_unit or args.keep_gathered):
        parser.error("--one-unit and --keep-gathered need --fsdp")
    args.steps = args.steps or 4 + args.active + 2
    return args


def profiler(args):
    """Returns the context manager for `with`: a profile, or one that does nothing."""
    if args.log_dir is None:
        return contextlib.nullcontext()
    from stepscope import profile, schedule
    return profile(log_dir=args.log_dir, name="ddp", schedule=schedule(wait=2, warmup=2, active=args.active),
                   rank_timeout=args.rank_timeout)


def loader_of(args, rank, is_slow):
    data = RESNET["FakeCIFAR"](args.side, as_bytes=False, seed=1 + rank)
    if is_slow and args.slow_loader:
        data = Slowed(data, args.slow_loader)
    return torch.utils.data.DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)


def model_of(args, device):
    torch.manual_seed(1)
    network = WithAuxiliaryHead() if args.unused else RESNET["resnet18"](10)
    network = network.to(device)
    if args.by_hand:
        return ByHand(network)
    if args.fsdp:
        return sharded(network, args)
    return DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None, bucket_cap_mb=args.bucket_mb,
                                   find_unused_parameters=args.unused, gradient_as_bucket_view=True)


def sharded(network, args):
    """Shards block by block, so that the next block's parameters are gathered while this block computes."""
    from torch.distributed.fsdp import fully_shard
    if not args.one_unit:
        for block in [module for module in network.modules() if hasattr(module, "conv2")]:  # residual blocks
            fully_shard(block, reshard_after_forward=not args.keep_gathered)
    return fully_shard(network, reshard_after_forward=not args.keep_gathered)


def spin(ms):
    """Runs Python code that overlaps with nothing, like a slow metric or log."""
    end = time.perf_counter() + ms * 1e-3
    while time.perf_counter() < end:
        pass


def train_step(args, model, optimizer, batches, device):
    optimizer.zero_grad()
    for micro in range(args.accumulate):
        pictures, classes = (tensor.to(device) for tensor in next(batches))
        is_last = micro + 1 == args.accumulate
        skips = not is_last and not args.sync_always
        if args.fsdp:
            model.set_requires_gradient_sync(not skips)
        with model.no_sync() if skips and isinstance(model, DistributedDataParallel) else contextlib.nullcontext():
            F.cross_entropy(model(pictures), classes).backward()
    if args.by_hand:
        model.average_gradients()
    optimizer.step()


def enlarged(batches, times, rank):
    """Makes every second batch `times` as large; the rank decides which ones."""
    for step, (pictures, classes) in enumerate(batches):
        if (step + rank) % 2 == 0:
            pictures, classes = pictures.repeat(times, 1, 1, 1), classes.repeat(times)
        yield pictures, classes


def train(args, rank, device):
    """Returns the length of each step in ms."""
    is_slow = rank == args.slow_rank
    model = model_of(args, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps = args.steps - (2 if args.join and rank == dist.get_world_size() - 1 else 0)
    times = []
    with profiler(args) as prof, model.join() if args.join else contextlib.nullcontext():
        batches = iter(loader_of(args, rank, is_slow))
        if args.uneven > 1:
            batches = enlarged(batches, args.uneven, rank)
        begin = time.perf_counter()
        for step in range(steps):
            if is_slow and step == args.die:
                os.kill(os.getpid(), signal.SIGKILL)
            if is_slow and args.slow_host:
                spin(args.slow_host)
            train_step(args, model, optimizer, batches, device)
            if prof is not None:
                prof.step()
            times.append(1000 * (time.perf_counter() - begin))
            begin = time.perf_counter()
    return times


def main():
    args = parse()
    on_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpus else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpus else "gloo")
    rank = dist.get_rank()
    times = train(args, rank, device)
    if rank == 0:
        late = sorted(times[4:] or times)
        print(f"{len(times)} steps, median {late[len(late) // 2]:.1f} ms", flush=True)
    if rank == 0 and args.json:
        pathlib.Path(args.json).write_text(json.dumps({"step_ms": times}), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
