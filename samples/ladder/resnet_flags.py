"""resnet's flags: as settings of a run, as remedies of findings, and as bad habits that they can switch on."""

import itertools
import math

from report import Failed


class UsageError(Failed):
    """An error in the user's request, as a sentence."""
    exit_status = 2


class Settings(dict):
    """Flags of one run, for example {"--batch": "64", "--bf16": ""}; a flag without a value has "". Order does not matter."""

    @staticmethod
    def of(words):
        """Parses a text, or words split by a shell: --batch 64, --batch=64, --bf16. Raises UsageError."""
        settings, waiting = Settings(), ""  # the flag that may still take a value
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

    def plus(self, over):  # flags of `over` take precedence
        return Settings({**self, **over})

    def without(self, *flags):
        return Settings({flag: value for flag, value in self.items() if flag not in flags})

    def arguments(self):
        return [f"{flag}={value}" if value else flag for flag, value in sorted(self.items())]

    def text(self):  # as a user would type it
        return " ".join(argument.replace("=", " ", 1) for argument in self.arguments()) or "(defaults)"


def difference(a, b):
    """Returns the difference between `a` and `b`, for example "--threads 2, without --bf16"."""
    changed = [Settings({flag: value}).text() for flag, value in sorted(b.items()) if a.get(flag) != value]
    return ", ".join(changed + [f"without {flag}" for flag in sorted(a) if flag not in b])


# resnet's defaults for flags that a climb changes, and how often it reads the loss.
DEFAULTS, LOG_EVERY = Settings.of("--batch 32 --workers 0 --threads 1 --set-to-none 1 --sgd loop"), 5


def spelled(settings):
    """Returns `settings` with resnet's defaults as text, so that equivalent settings have the same text."""
    return DEFAULTS.plus(settings).text()


def period_of(settings):
    """Returns the number of steps after which a run repeats itself. N workers deliver N batches at once, and on a GPU the host
    waits when it reads the loss."""
    parts = [settings.number(flag, 1) for flag in ("--validate-every", "--checkpoint-every", "--workers")]
    if settings.get("--device") == "cuda":
        parts.append(settings.number("--log-every", LOG_EVERY))
    return math.lcm(*(max(1, part) for part in parts))


class Factor:
    """A flag and its values in a sweep. A flag without a value has "off" and "on"."""

    def __init__(self, flag, *values):
        self.flag, self.values = flag, values

    def at(self, level, settings):
        value = {"on": ""}.get(self.values[level], self.values[level])
        return settings.without(self.flag) if value == "off" else settings.plus({self.flag: value})

    def text(self, level):  # "--threads 2", "--bf16", "without --bf16"
        return f"without {self.flag}" if self.values[level] == "off" else self.at(level, Settings()).text()


def cross(factors, base):
    """Returns {levels: Settings} for all combinations; the last factor changes fastest."""
    points = {}
    for levels in itertools.product(*(range(len(factor.values)) for factor in factors)):
        points[levels] = base
        for factor, level in zip(factors, levels):
            points[levels] = factor.at(level, points[levels])
    return points


# The keys of a report's `settings` and the flag for each. If two values follow, only the first one has a flag; the second is
# the flag's value, and None removes the flag.
NAMED = {"workers": ("--workers",), "intra_op_threads": ("--threads",), "batch_size": ("--batch",),
         "batch_factor": ("--batch",), "memory_format": ("--channels-last", "channels_last", ""),
         "set_to_none": ("--set-to-none", "true", "1"), "optimizer_step": ("--sgd", "fused", "fused"),
         "conv_bias": ("--conv-bias", "false", None), "anomaly_mode": ("--anomaly-mode", "false", None),
         "validation_gradients": ("--validate-grad", "false", None)}


def follow_settings(named, settings):
    """Returns `settings` with what a report sets through its keys; unchanged if no flag of resnet matches."""
    for key, (flag, *only) in NAMED.items():
        if key not in named or (only and named[key] != only[0]):
            continue
        value = only[1] if only else named[key]
        if key == "batch_factor":
            value = str(math.floor(float(value) * DEFAULTS.plus(settings).number("--batch", 0) + 0.5))
        settings = settings.without(flag) if value is None else settings.plus({flag: value})
    return settings


class Habit:
    """Something that costs time without benefit, as flags."""

    def __init__(self, name, on, off="", needs="", gpu=False):
        self.name, self.gpu = name, gpu  # gpu: costs time only on a GPU
        # Flags that switch it on, flags of a program without it, and flags that both need for the habit to show.
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
    # New sizes make cuDNN try algorithms; on a CPU, only larger images cost time.
    Habit("variable-sizes", "--variable-sizes", gpu=True), Habit("host-tensors", "--host-tensors", gpu=True)]}
CPU_HABITS = [habit for habit in HABITS.values() if not habit.gpu]

# The habits that can cause each finding, in order. "print?printing": only if the finding's text contains "printing".
CAUSES = {
    "debug-api-on": "anomaly", "grad-in-validation": "validate-grad", "grad-clip-sync": "clip-sync",
    "logging-checkpoint-stall": "checkpoint?checkpoint print checkpoint item",
    "host-sync": "print?print item print clip-sync", "bias-before-norm": "conv-bias",
    "host-created-tensor": "host-tensors", "conv-retuning": "variable-sizes", "allocator-churn": "variable-sizes",
    "variable-shapes": "variable-sizes", "zero-grad-kernels": "zero-gradients"}

# The flag that follows a finding without settings.
REMEDIES = {
    "unfused-optimizer": "--sgd fused", "layout-transpose": "--channels-last", "channels-last-off": "--channels-last",
    "tf32-off": "--tf32", "cudnn-benchmark-off": "--cudnn-benchmark", "tensor-cores-idle": "--bf16",
    "h2d-pageable": "--pinned", "h2d-fp32-input": "--uint8", "launch-bound": "--cuda-graph", "h2d-blocking": "--pinned"}


def follow(finding, report, settings):
    """Returns `settings` as `finding` wants them; unchanged (see spelled()) if no flag of resnet does that, or it is already
    so. Applies one remedy at a time: if several flags cause a finding, the first one is removed."""
    after = follow_settings(finding.settings, settings)
    if spelled(after) != spelled(settings):
        return after
    for cause in CAUSES.get(finding.id, "").split():
        name, _, text = cause.partition("?")
        if text in finding.text and HABITS[name].is_in(settings):
            return HABITS[name].dropped_from(settings)
    after = settings.plus(Settings.of(REMEDIES.get(finding.id, "")))
    # More workers would not have a first batch ready either.
    if spelled(after) != spelled(settings) or "no batch ready" in finding.text:
        return after
    # The finding names no number, so use the smallest change that it can mean.
    now = DEFAULTS.plus(settings)
    workers, threads, batch = (now.number(flag, 0) for flag in ("--workers", "--threads", "--batch"))
    if finding.id in ("sync-data-loading", "loader-bound"):
        return settings.plus({"--workers": str(workers + 1)})
    if finding.id == "cores-idle" and report.usable_cores - workers > threads:
        return settings.plus({"--threads": str(report.usable_cores - workers)})
    return settings.plus({"--batch": str(2 * batch)}) if finding.id == "small-batch" else settings
