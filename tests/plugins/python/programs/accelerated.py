"""Accelerate's own profile(), with stepscope as its profiler: accelerated.py LOG_DIR"""
import sys

import accelerate
import torch

from stepscope.accelerate import StepscopeKwargs

options = StepscopeKwargs(schedule_option={"wait": 2, "warmup": 1, "active": 4, "repeat": 1}, log_dir=sys.argv[1],
                          options={"print_report": False})
accelerator = accelerate.Accelerator(cpu=True)
model = torch.nn.Linear(8, 8)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
with accelerator.profile(options) as prof:
    for _ in range(10):
        accelerator.backward(model(torch.ones(4, 8)).sum())
        optimizer.step()
        optimizer.zero_grad()
        prof.step()
print([step.step for step in prof.report.step_times])
