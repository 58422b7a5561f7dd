"""The parts of a report: frozen dataclasses with the keys of docs/json.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    name: str = ""
    run_id: str = ""
    cycle: int = 0
    host: str = ""
    rank: int = -1
    world_size: int = -1
    producer: str = ""
    source: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    cpu_model: str = ""
    usable_cores: int = -1
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Steps:
    count: int = 0
    steady: int = 0
    mean_ms: float = 0
    median_ms: float = 0
    cov: float = 0
    all_mean_ms: float = 0
    unprofiled_ms: float = 0
    cost_estimated: bool = False
    smallest_gain_ms: float = 0
    step_source: str = ""


@dataclass(frozen=True)
class Replay:
    steps: int = 0
    no_edit_error: float = 0
    limit_error: float = 0
    valid: bool = False
    why_not: str = ""


@dataclass(frozen=True)
class Gain:
    expected: float = 0
    low: float = 0
    high: float = 0
    pairs: int = 0


@dataclass(frozen=True)
class Example:
    step: int = -1
    begin_ns: int = 0
    end_ns: int = 0
    what: str = ""


@dataclass(frozen=True)
class Fix:
    cpp: str = ""
    python: str = ""


@dataclass(frozen=True)
class Finding:
    id: str = ""
    status: str = ""
    severity: str = "note"
    confidence: str = ""
    gain_ms_per_step: Gain = Gain()
    gain_kind: str = "none"
    baseline_ms: float | None = None
    speedup: float = 0
    evidence: str = ""
    examples: tuple[Example, ...] = ()
    where: str = ""
    assumption: str = ""
    fix: Fix = Fix()
    settings: dict[str, Any] = field(default_factory=dict)
    wrong_if: str = ""
    reference: str = ""
    also: tuple[str, ...] = ()

    @property
    def gain_ms(self) -> float:
        """The expected gain: predicted, or at most this (`gain_kind` says which); 0 where none is claimed."""
        return self.gain_ms_per_step.expected

    @property
    def is_note(self) -> bool:
        """Nothing to do: no gain, or too small a one to report."""
        return self.severity == "note" and self.status == "ok"


@dataclass(frozen=True)
class Skipped:
    id: str = ""
    why: str = ""


@dataclass(frozen=True)
class Loss:
    name: str = ""
    severity: str = ""
    count: int = -1
    detail: str = ""


@dataclass(frozen=True)
class Plan:
    ids: tuple[str, ...] = ()
    at_most: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    step_before_ms: float = 0
    step_after_ms: float = 0
    after_each_ms: tuple[float, ...] = ()
    low_ms: float = 0
    high_ms: float = 0
    pairs: int = 0
    assumption: str = ""


@dataclass(frozen=True)
class Coverage:
    cause: str = ""
    ms_per_step: float = 0
    path_ms_per_step: float = 0
    ids: tuple[str, ...] = ()
    looked: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class TopOp:
    name: str = ""
    other_thread: bool = False
    self_ms_per_step: float = 0
    total_ms_per_step: float = 0
    gpu_self_ms_per_step: float = 0
    calls_per_step: float = 0
    fused_ops: tuple[str, ...] = ()  # of a kernel that PyTorch's compiler generated


@dataclass(frozen=True)
class PlaceTime:
    """A module, or a line of the program."""

    name: str = ""
    class_: str = ""  # of a module
    self_ms_per_step: float = 0
    total_ms_per_step: float = 0
    gpu_self_ms_per_step: float = 0
    gpu_total_ms_per_step: float = 0
    calls_per_step: float = 0


@dataclass(frozen=True)
class PathPart:
    category: str = ""
    name: str = ""
    ms_per_step: float = 0


@dataclass(frozen=True)
class StepTime:
    step: int = -1
    kind: str = ""
    ms: float = 0
    why: str = ""
    time_split_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryPeak:
    device: str = ""
    step: int = -1
    peak_bytes: int = 0
    reserved_bytes: int = -1
    op: str = ""
    counted: bool = False


@dataclass(frozen=True)
class RankRow:
    rank: int = -1
    source: str = ""
    step_ms: float = 0
    noise_ms: float = 0
    busy_ms: float = 0
    exposed_ms: float = 0
    waiting_ms: float = 0
    late_ms: float = 0
    host_ms: float = -1
    host_noise_ms: float = 0
    loading_ms: float = 0
    last: int = 0
    clock_offset_us: float = 0
    host: str = ""
    sm_clock_mhz: float = -1
    kernels: float = 0
    stage: int = -1
    time_split_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RankWait:
    rank: int = -1
    waits_for: int = -1
    ms: float = 0


@dataclass(frozen=True)
class RankGroup:
    ranks: tuple[int, ...] = ()
    name: str = ""
    description: str = ""
    size: int = -1
    parallelism: str = ""
    evidence: str = ""
    collectives: float = 0
    total_ms: float = 0
    exposed_ms: float = 0
    waiting_ms: float = 0
    bytes: float = 0
    gb_per_s: float = 0
    last_rank: int = -1
    last: int = 0
    hosts: int = 0
    skewed: int = 0
    late_host: str = ""
    late_host_last: int = 0


@dataclass(frozen=True)
class Machine:
    host: str = ""
    ranks: tuple[int, ...] = ()
    waited_for_ms: float = 0
    skewed: int = 0
    last: int = 0
    recurs: bool = False
    inside_gb_per_s: float = 0
    across_gb_per_s: float = 0


@dataclass(frozen=True)
class PipelineStage:
    rank: int = -1
    busy_ms: float = 0
    waiting_ms: float = 0


@dataclass(frozen=True)
class Pipeline:
    stages: tuple[PipelineStage, ...] = ()
    micro_batches: float = 0
    chunks: int = 1
    bubble_frac: float = 0
    ideal_frac: float = 0


@dataclass(frozen=True)
class Mended:
    why_not: str = ""
    rank: int = -1
    balanced: bool = False
    before_ms: float = 0
    after_ms: float = 0
    low_ms: float = 0
    high_ms: float = 0
    next_rank: int = -1


@dataclass(frozen=True)
class Ranks:
    why_not: str = ""
    collectives: int = 0
    skewed: int = 0
    unmatched: int = 0
    steps: int = 0
    steps_of_other_shapes: int = -1
    clock_residual_us: float = 0
    waiting_ms: float = 0
    waiting_noise_ms: float = 0
    imbalance_ms: float = 0
    rows: tuple[RankRow, ...] = ()
    groups: tuple[RankGroup, ...] = ()
    machines: tuple[Machine, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    mended: Mended | None = None
    waits: tuple[RankWait, ...] = ()


@dataclass(frozen=True)
class Stall:
    rhythm: str = ""
    count: int = 0
    first_step: int = -1
    last_step: int = -1
    period_steps: float = 0
    period_ms: float = 0
    extra_ms: float = 0
    run_frac: float = 0
    cause: str = ""
    cause_step: int = -1


@dataclass(frozen=True)
class WholeRun:
    steps: int = 0
    length_ms: float = 0
    median_ms: float = 0
    p5_ms: float = 0
    p95_ms: float = 0
    max_ms: float = 0
    max_step: int = -1
    stalls: tuple[Stall, ...] = ()
