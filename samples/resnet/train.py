#!/usr/bin/env python3
"""ResNet-18 on FakeCIFAR in plain PyTorch: the workload of a published case study, intentionally slow.

    python samples/resnet/train.py                          trains; about a minute on two cores
    python samples/resnet/train.py --log-dir runs/base      the same under stepscope, which says what to change
    stepscope run samples/resnet/train.py                   the same, without a line about stepscope in the program

Each rung of the case study is a flag: --workers 8, --pinned, --batch 512, --uint8, --set-to-none 1, --fp16, --compile. Flags
shared with the C++ program `resnet` have the same names and meanings.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

MEAN, STD = 0.5, 0.5


def resnet18(classes):
    """Returns torchvision's network, or an equivalent one if torchvision is missing."""
    try:
        from torchvision.models import resnet18 as of_torchvision
        return of_torchvision(num_classes=classes)
    except ImportError:
        widths = ((64, 1), (128, 2), (256, 2), (512, 2))
        blocks, inputs = [], 64
        for width, stride in widths:
            blocks += [Block(inputs, width, stride), Block(width, width, 1)]
            inputs = width
        return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                             *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x), inplace=True)


class FakeCIFAR(torch.utils.data.Dataset):
    """10,000 random 32x32 images in 10 classes, resized by a transform."""

    def __init__(self, side, as_bytes, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(0, 256, (10000, 3, 32, 32), dtype=torch.uint8, generator=generator)
        self.classes = torch.randint(0, 10, (10000,), generator=generator)
        self.side, self.as_bytes = side, as_bytes

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), self.classes[index]

    def transform(self, picture):
        picture = F.interpolate(picture[None], size=(self.side, self.side), mode="bilinear", antialias=True)[0]
        return picture if self.as_bytes else (picture.float() / 255 - MEAN) / STD


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    add("--batch", type=int, default=32, metavar="N", help="pictures per step (32)")
    add("--side", type=int, metavar="N", help="side of the pictures the network sees (224 on a GPU, 64 on a CPU)")
    add("--workers", type=int, default=0, metavar="N", help="loader processes; with 0 the training thread loads (0)")
    add("--pinned", action="store_true", help="collate into pinned memory and copy with non_blocking")
    add("--uint8", action="store_true", help="copy bytes to the device, and normalise there")
    add("--set-to-none", type=int, default=0, choices=(0, 1), help="let zero_grad drop the gradients instead of filling them (0)")
    add("--sgd", default="loop", choices=("loop", "foreach", "fused"), help="how the optimizer updates (loop)")
    add("--bf16", action="store_true", help="autocast to bfloat16")
    add("--fp16", action="store_true", help="autocast to float16, with a scaled loss")
    add("--channels-last", action="store_true", help="keep pictures and weights as NHWC")
    add("--compile", action="store_true", help="torch.compile the model")
    add("--cudnn-benchmark", action="store_true", help="let cuDNN try its algorithms")
    add("--tf32", action="store_true", help="allow TF32 in float32 convolutions and matrix products")
    add("--item-every-step", action="store_true", help="a habit that costs time: read the loss back in every step")
    add("--threads", type=int, default=0, metavar="N", help="intra-op threads; 0 leaves torch's choice (0)")
    add("--steps", type=int, metavar="N", help="training steps (those of the profile, and 3 more)")
    add("--seed", type=int, default=1)
    add("--log-every", type=int, default=5, metavar="N", help="steps between two looks at the loss (5)")
    add("--log-dir", metavar="DIR", help="profile with stepscope, and write its files there")
    add("--no-profile", action="store_true", help="train without it all the same")
    for flag, default in (("skip-first", 0), ("wait", 3), ("warmup", 3), ("active", 6), ("repeat", 1)):
        add(f"--{flag}", type=int, default=default, metavar="N", help=f"of the profile's schedule ({default})")
    add("--shapes", type=int, default=1, choices=(0, 1), help="record the shapes of operators' inputs (1)")
    add("--memory", type=int, default=1, choices=(0, 1), help="record allocations (1)")
    add("--stack", type=int, default=1, choices=(0, 1), help="record source lines (1)")
    add("--json", metavar="FILE", help="write the time of every step and the median to FILE")
    add("--warm-steps", type=int, default=3, metavar="N", help="steps the median leaves out at the start (3)")
    args = parser.parse_args()
    args.side = args.side or (224 if args.device == "cuda" else 64)
    args.steps = args.steps or args.skip_first + (args.wait + args.warmup + args.active) * max(args.repeat, 1) + 3
    return args


def profiler(args):
    """Returns the context manager for `with`: a profile, or one that does nothing."""
    if args.log_dir is None or args.no_profile:
        return contextlib.nullcontext()
    from stepscope import profile, schedule
    when = schedule(skip_first=args.skip_first, wait=args.wait, warmup=args.warmup, active=args.active, repeat=args.repeat)
    return profile(log_dir=args.log_dir, name="resnet18", schedule=when, record_shapes=bool(args.shapes),
                   profile_memory=bool(args.memory), with_stack=bool(args.stack))


def batches(loader, steps):
    """Yields `steps` batches, from as many epochs as needed."""
    while steps > 0:
        for batch in loader:
            yield batch
            steps -= 1
            if steps == 0:
                return


def train(args):
    """Returns the length of each step in ms, and the last loss."""
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    data = FakeCIFAR(args.side, args.uint8, args.seed)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True, num_workers=args.workers,
                                         pin_memory=args.pinned and args.device == "cuda", persistent_workers=args.workers > 0)
    model = resnet18(classes=10).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if args.compile:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=args.sgd == "foreach", fused=args.sgd == "fused")
    scaler = torch.amp.GradScaler(args.device, enabled=args.fp16)
    half = torch.float16 if args.fp16 else torch.bfloat16
    model.train()
    times, loss = [], None
    with profiler(args) as prof:
        begin = time.perf_counter()
        for step, (pictures, classes) in enumerate(batches(loader, args.steps)):
            pictures = pictures.to(device, non_blocking=args.pinned)
            classes = classes.to(device, non_blocking=args.pinned)
            if args.uint8:
                pictures = (pictures.float() / 255 - MEAN) / STD
            if args.channels_last:
                pictures = pictures.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=bool(args.set_to_none))
            with torch.autocast(args.device, dtype=half, enabled=args.fp16 or args.bf16):
                loss = F.cross_entropy(model(pictures), classes)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if args.item_every_step or step % args.log_every == 0:
                print(f"step {step}  loss {loss.item():.4f}", flush=True)
            if prof is not None:
                prof.step()
            times.append(1000 * (time.perf_counter() - begin))
            begin = time.perf_counter()
    return times, loss.item()


def main():
    args = parse()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.tf32
    times, loss = train(args)
    median = statistics.median(times[args.warm_steps:] or times)
    print(f"{len(times)} steps, median {median:.1f} ms, {1000 * args.batch / median:.1f} samples/s")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"step_ms": times, "warm_steps": args.warm_steps, "batch": args.batch, "median_ms": median,
                       "samples_per_s": 1000 * args.batch / median, "loss": loss}, file)


if __name__ == "__main__":
    main()
