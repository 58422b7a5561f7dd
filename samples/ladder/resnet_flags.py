"""The flags of resnet: as settings of a run, what they do for a finding, and the bad habits they can switch on."""

import itertools
import math

from report import Failed


class UsageError(Failed):
    """A sentence for the user about what was asked for."""
    exit_status = 2


class Settings(dict):
    """Flags of one run, {"--batch": "64", "--bf16": ""}; a flag without a value has "". Order makes no difference."""

    @staticmethod
    def of(words):
        """Reads a text, or words as a shell parts them: --batch 64, --batch=64, --bf16. Raises UsageError."""
        settings, waiting = Settings(), ""  # the flag that may still get a value
        for word in words.split() if isinstance(words, str) else words:
            if len(word) > 2 and word.startswith("--") and word[2] != "=":
                flag, equals, value = word.partition("=")
                settings[flag], waiting = value, "" if equals else flag
            elif waiting:
                settings[waiting], waiting = word, ""
            else:
                raise UsageError(f"'{word}' is neither a flag nor the value of one (flags begin with --)")
        return settings

    def number(self, flag, absent):
        return int(self[flag]) if self.get(flag, "").isdecimal() else absent

    def plus(self, over):  # whose flags win
        return Settings({**self, **over})

    def without(self, *flags):
        return Settings({flag: value for flag, value in self.items() if flag not in flags})

    def arguments(self):
        return [f"{flag}={value}" if value else flag for flag, value in sorted(self.items())]

    def text(self):  # as a person would type it
        return " ".join(argument.replace("=", " ", 1) for argument in self.arguments()) or "(defaults)"


def difference(a, b):
    """What must change to get from `a` to `b`: "--threads 2, without --bf16"."""
    changed = [Settings({flag: value}).text() for flag, value in sorted(b.items()) if a.get(flag) != value]
    return ", ".join(changed + [f"without {flag}" for flag in sorted(a) if flag not in b])


# What resnet does where a flag that a climb changes is not given, and how often it reads the loss.
DEFAULTS, LOG_EVERY = Settings.of("--batch 32 --workers 0 --threads 1 --set-to-none 1 --sgd loop"), 5


def spelled(settings):
    """`settings` as text, with resnet's defaults written out: settings that do the same have the same text."""
    return DEFAULTS.plus(settings).text()


def period_of(settings):
    """After how many steps a run repeats what it does. N workers hand out N batches at once; on a GPU the host waits
    where it reads the loss."""
    parts = [settings.number(flag, 1) for flag in ("--validate-every", "--checkpoint-every", "--workers")]
    if settings.get("--device") == "cuda":
        parts.append(settings.number("--log-every", LOG_EVERY))
    return math.lcm(*(max(1, part) for part in parts))


class Factor:
    """A flag and the values it takes in a sweep; of a flag without a value "off" and "on"."""

    def __init__(self, flag, *values):
        self.flag, self.values = flag, values

    def at(self, level, settings):
        value = {"on": ""}.get(self.values[level], self.values[level])
        return settings.without(self.flag) if value == "off" else settings.plus({self.flag: value})

    def text(self, level):  # "--threads 2", "--bf16", "without --bf16"
        return f"without {self.flag}" if self.values[level] == "off" else self.at(level, Settings()).text()


def cross(factors, base):
    """{levels: Settings} of all combinations, the last factor changing fastest."""
    points = {}
    for levels in itertools.product(*(range(len(factor.values)) for factor in factors)):
        points[levels] = base
        for factor, level in zip(factors, levels):
            points[levels] = factor.at(level, points[levels])
    return points


# The keys of a report's `settings` and the flag that each one is. Where two values follow, only the first value of the
# key has a flag: at the second value; None drops the flag.
NAMED = {"workers": ("--workers",), "intra_op_threads": ("--threads",), "batch_size": ("--batch",),
         "batch_factor": ("--batch",), "memory_format": ("--channels-last", "channels_last", ""),
         "set_to_none": ("--set-to-none", "true", "1"), "optimizer_step": ("--sgd", "fused", "fused"),
         "conv_bias": ("--conv-bias", "false", None), "anomaly_mode": ("--anomaly-mode", "false", None),
         "validation_gradients": ("--validate-grad", "false", None)}


def follow_settings(named, settings):
    """`settings` with what a report sets by its own keys; unchanged if no flag of resnet is one of them."""
    for key, (flag, *only) in NAMED.items():
        if key not in named or (only and named[key] != only[0]):
            continue
        value = only[1] if only else named[key]
        if key == "batch_factor":
            value = str(math.floor(float(value) * DEFAULTS.plus(settings).number("--batch", 0) + 0.5))
        settings = settings.without(flag) if value is None else settings.plus({flag: value})
    return settings


class Habit:
    """Something that costs time for nothing, as flags."""

    def __init__(self, name, on, off="", needs="", gpu=False):
        self.name, self.gpu = name, gpu  # gpu: its cost shows on a GPU only
        # What switches it on, what a program without it has instead, and what it takes to show, habit or not.
        self.on, self.off, self.needs = Settings.of(on), Settings.of(off), Settings.of(needs)

    def is_in(self, settings):
        return settings.plus(self.on) == settings

    def added_to(self, settings):
        return settings.without(*self.off).plus(self.needs).plus(self.on)

    def dropped_from(self, settings):
        return settings.without(*self.on).plus(self.off)


HABITS = {habit.name: habit for habit in [
    Habit("item", "--item-every-step"), Habit("print", "--print-tensor"), Habit("anomaly", "--anomaly-mode"),
    Habit("clip-sync", "--clip-sync", off="--clip"), Habit("checkpoint", "--checkpoint-every 1"),
    Habit("validate-grad", "--validate-grad", needs="--validate-every 1 --validate-batches 1"),
    Habit("zero-gradients", "--set-to-none 0"), Habit("conv-bias", "--conv-bias"),
    # New sizes cost cuDNN's trials; on a CPU only the larger pictures cost.
    Habit("variable-sizes", "--variable-sizes", gpu=True), Habit("host-tensors", "--host-tensors", gpu=True)]}
CPU_HABITS = [habit for habit in HABITS.values() if not habit.gpu]

# The habits that cause a finding, in order; "print?printing": only if the finding says "printing".
CAUSES = {
    "debug-api-on": "anomaly", "grad-in-validation": "validate-grad", "grad-clip-sync": "clip-sync",
    "logging-checkpoint-stall": "checkpoint?checkpoint print checkpoint item",
    "host-sync": "print?print item print clip-sync", "bias-before-norm": "conv-bias",
    "host-created-tensor": "host-tensors", "conv-retuning": "variable-sizes", "allocator-churn": "variable-sizes",
    "variable-shapes": "variable-sizes", "zero-grad-kernels": "zero-gradients"}

# The flag that does what a finding without settings asks for.
REMEDIES = {
    "unfused-optimizer": "--sgd fused", "layout-transpose": "--channels-last", "channels-last-off": "--channels-last",
    "tf32-off": "--tf32", "cudnn-benchmark-off": "--cudnn-benchmark", "tensor-cores-idle": "--bf16",
    "h2d-pageable": "--pinned", "h2d-fp32-input": "--uint8", "launch-bound": "--cuda-graph", "h2d-blocking": "--pinned"}


def follow(finding, report, settings):
    """`settings` as `finding` wants them; the same (see spelled()) if no flag of resnet does that, or it is so already.
    One remedy at a time: a finding that several flags cause is followed by dropping the first of them."""
    after = follow_settings(finding.settings, settings)
    if spelled(after) != spelled(settings):
        return after
    for cause in CAUSES.get(finding.id, "").split():
        name, _, text = cause.partition("?")
        if text in finding.text and HABITS[name].is_in(settings):
            return HABITS[name].dropped_from(settings)
    after = settings.plus(Settings.of(REMEDIES.get(finding.id, "")))
    # More workers have no first batch ready either.
    if spelled(after) != spelled(settings) or "no batch ready" in finding.text:
        return after
    # A finding that names no number: the least that it can mean.
    now = DEFAULTS.plus(settings)
    workers, threads, batch = (now.number(flag, 0) for flag in ("--workers", "--threads", "--batch"))
    if finding.id in ("sync-data-loading", "loader-bound"):
        return settings.plus({"--workers": str(workers + 1)})
    if finding.id == "cores-idle" and report.usable_cores - workers > threads:
        return settings.plus({"--threads": str(report.usable_cores - workers)})
    return settings.plus({"--batch": str(2 * batch)}) if finding.id == "small-batch" else settings
