"""Ranks of a job under stepscope: job.py LOG_DIR [--only-rank-0] [--destroy-first] [--die STEP]; LOG_DIR "-" means none."""
import argparse
import contextlib
import os
import signal
import sys

import torch
import torch.distributed as dist

import stepscope


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("log_dir")
    parser.add_argument("--only-rank-0", action="store_true")
    parser.add_argument("--destroy-first", action="store_true")
    parser.add_argument("--die", type=int)
    parser.add_argument("--rank-timeout", type=float, default=60)
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    profile = contextlib.nullcontext() if args.only_rank_0 and rank > 0 else stepscope.profile(
        log_dir="" if args.log_dir == "-" else args.log_dir, name="job", rank_timeout=args.rank_timeout,
        schedule=stepscope.schedule(wait=1, warmup=1, active=4))
    with profile as prof:
        for step in range(8):
            if rank == 1 and step == args.die:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(16, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if prof is not None:
                prof.step()
        if args.destroy_first:
            dist.destroy_process_group()
    if prof is not None:
        print(f"rank {rank}: job report {'of ' + str(len(prof.job_report.ranks.rows)) if prof.job_report else 'none'}", file=sys.stderr)
    if not args.destroy_first:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
