"""Which steps of a loop are recorded, and the conversion of other packages' schedules."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

if typing.TYPE_CHECKING:
    from torch.profiler import ProfilerAction

WHOLE_LOOP = 1_000_000_000  # as `active`: until the loop ends (schedule.h)
_ACTIONS = {"NONE": "N", "WARMUP": "W", "RECORD": "R", "RECORD_AND_SAVE": "S"}
_FIRST_PROBE = 4096
_LAST_PROBE = 1 << 20


@dataclasses.dataclass(frozen=True)
class schedule:  # noqa: N801 - torch.profiler's name
    """After `skip_first` steps, `repeat` cycles of `wait` + `warmup` + `active` steps, as in torch.profiler.schedule.

    In `wait` steps everything is off, and only their time is measured. In `warmup` steps everything is on, but nothing is kept.
    `active` steps are recorded. The default is one cycle; 0 repeats for as long as the loop runs.
    """

    wait: int = 3
    warmup: int = 3
    active: int = 3
    repeat: int = 1
    skip_first: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name == "active" else 0
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= WHOLE_LOOP:
                raise ValueError(f"schedule: {field.name} is {value!r}, but must be a whole number from {least} to {WHOLE_LOOP}")

    @property
    def is_whole_loop(self) -> bool:
        return self.active == WHOLE_LOOP

    def is_over(self, step: int) -> bool:
        """Returns True if neither `step` nor a later one belongs to a cycle."""
        return bool(self.repeat) and step >= self.skip_first + self.repeat * (self.wait + self.warmup + self.active)

    def phase(self, step: int) -> str:
        """Returns N (nothing), W (warm-up), R (recorded) or S (recorded, the last of its window)."""
        if step < self.skip_first or self.is_over(step):
            return "N"
        at = (step - self.skip_first) % (self.wait + self.warmup + self.active)
        if at < self.wait:
            return "N"
        if at < self.wait + self.warmup:
            return "W"
        return "S" if at == self.wait + self.warmup + self.active - 1 else "R"

    def __call__(self, step: int) -> ProfilerAction:
        """Returns what torch.profiler must do in this step, so that this object is also a schedule for torch.profiler."""
        from torch.profiler import ProfilerAction

        names = {letter: name for name, letter in _ACTIONS.items()}
        action: ProfilerAction = getattr(ProfilerAction, names[self.phase(step)])
        return action

    def numbers(self) -> dict[str, int]:
        return dataclasses.asdict(self)


def fitted(asked: Callable[[int], Any]) -> schedule:
    """Returns the schedule that does the same as `asked` in every step. Raises ValueError if there is none."""
    if isinstance(asked, schedule):
        return asked
    if not callable(asked):
        raise ValueError(f"schedule is {asked!r}, but must be stepscope.schedule(...), torch.profiler.schedule(...)"
                         " or None for the whole loop")
    letters, probe = "", _FIRST_PROBE
    while True:
        letters += "".join(_letter(asked, step) for step in range(len(letters), probe))
        found = _fit(letters)
        # Nothing is known about steps after the probe. Two windows show the period of a periodic schedule.
        if found is not None or probe >= _LAST_PROBE:
            break
        probe *= 8
    if found is None:
        first = letters.find("R") if "S" not in letters else letters.find("S")
        if first < 0:
            raise ValueError(f"the schedule records none of its first {len(letters)} steps")
        raise ValueError("the schedule is not of the form skip_first, then repeated wait + warmup + active steps; its first steps"
                         f" are {letters[:min(first + 24, len(letters))]} (N nothing, W warm-up, R recorded, S recorded and saved)."
                         " Use stepscope.schedule(...)")
    return found


def _letter(asked: Callable[[int], Any], step: int) -> str:
    action = asked(step)
    letter = _ACTIONS.get(getattr(action, "name", ""))
    if letter is None:
        raise ValueError(f"the schedule returned {action!r} for step {step}; it must return a torch.profiler.ProfilerAction")
    return letter


def _fit(letters: str) -> schedule | None:
    windows = _windows(letters)
    if not windows:
        return None
    begin, warm, active = windows[0]
    if begin + warm + active >= len(letters):  # the window may be longer than the probe
        return None
    wait, repeat, skip_first = 0, 1, begin
    if len(windows) > 1:
        wait = windows[1][0] - (begin + warm + active)
        skip_first = begin - wait
        period = wait + warm + active
        ends_early = windows[-1][0] + warm + active + period < len(letters)
        repeat = len(windows) if ends_early else 0
    if skip_first < 0:
        return None
    found = schedule(wait=wait, warmup=warm, active=active, repeat=repeat, skip_first=skip_first)
    same = all(found.phase(step) == letter for step, letter in enumerate(_saving(letters)))
    return found if same else None


def _saving(letters: str) -> str:
    """Marks the end of windows where recording stops without RECORD_AND_SAVE."""
    return letters.replace("RN", "SN").replace("RW", "SW")


def _windows(letters: str) -> list[tuple[int, int, int]]:
    """Returns (begin, warm-up steps, recorded steps) of each window that ends."""
    found = []
    begin = warm = active = 0
    for step, letter in enumerate(_saving(letters)):
        if letter == "N":
            warm = active = 0
            continue
        if not warm and not active:
            begin = step
        warm += letter == "W"
        active += letter in "RS"
        if letter == "S":
            found.append((begin, warm, active))
            warm = active = 0
    return found
