"""Accelerate: with accelerator.profile(StepscopeKwargs(log_dir="runs/x")) as prof: ..."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import ProfileKwargs

from . import profile, schedule


@dataclass
class StepscopeKwargs(ProfileKwargs):
    """Lets Accelerator.profile() record with stepscope.

    It is an argument of that method; Accelerator's `kwargs_handlers` does not accept subclasses of Accelerate's own classes.
    The fields of ProfileKwargs keep their meaning; record_shapes is on. Files go to `log_dir`, and `options` are passed to
    stepscope.profile.
    """

    record_shapes: bool = True
    log_dir: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Any:
        chosen: dict[str, Any] = dict(self.options)
        if self.schedule_option is not None:
            chosen["schedule"] = schedule(**{"repeat": 0, **self.schedule_option})  # as in torch.profiler
        if self.activities is not None:
            chosen["activities"] = [self._get_profiler_activity(name) for name in self.activities]
        return profile(log_dir=self.log_dir, on_trace_ready=self.on_trace_ready, record_shapes=self.record_shapes,
                       profile_memory=self.profile_memory, with_stack=self.with_stack, with_flops=self.with_flops,
                       with_modules=self.with_modules, **chosen)
