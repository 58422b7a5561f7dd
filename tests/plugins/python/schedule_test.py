"""Tests schedules, and fitting other packages' schedules by probing."""

import enum

import pytest

from stepscope import _schedule
from stepscope._schedule import schedule


class ProfilerAction(enum.Enum):
    """As in torch.profiler."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


LETTERS = {"N": ProfilerAction.NONE, "W": ProfilerAction.WARMUP, "R": ProfilerAction.RECORD, "S": ProfilerAction.RECORD_AND_SAVE}


def foreign(told):
    """Returns a function with torch.profiler.schedule's answers that does not reveal its numbers."""
    return lambda step: LETTERS[told.phase(step)]


def letters(told, steps):
    return "".join(told.phase(step) for step in range(steps))


@pytest.mark.parametrize("told, expected", [
    (schedule(), "NNNWWWRRSNNN"),
    (schedule(wait=1, warmup=1, active=2, repeat=0), "NWRSNWRSNWRS"),
    (schedule(wait=0, warmup=0, active=1, repeat=2, skip_first=2), "NNSSNN"),
    (schedule(wait=0, warmup=1, active=1, repeat=2), "WSWSNN"),
])
def test_phases(told, expected):
    assert letters(told, len(expected)) == expected
    over = len(expected.rstrip("N"))
    assert [told.is_over(over - 1), told.is_over(over)] == [False, told.repeat > 0]


@pytest.mark.parametrize("told", [
    schedule(),
    schedule(wait=1, warmup=1, active=2, repeat=0),
    schedule(wait=5, warmup=0, active=3, repeat=4, skip_first=10),
    schedule(wait=0, warmup=2, active=1, repeat=0, skip_first=7),
    schedule(wait=50, warmup=3, active=3, repeat=0, skip_first=6000),
    schedule(wait=2, warmup=2, active=5000, repeat=1),
])
def test_a_foreign_schedule_is_fitted(told):
    found = _schedule.fitted(foreign(told))
    assert letters(found, 30000) == letters(told, 30000)


def test_our_own_is_taken_as_it_is():
    told = schedule(wait=9)
    assert _schedule.fitted(told) is told


def test_windows_that_end_without_saving_are_windows():
    assert _schedule.fitted(lambda step: LETTERS["NNWRRN"[step] if step < 6 else "N"]).numbers() == {
        "wait": 0, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 2}


@pytest.mark.parametrize("asked, message", [
    (lambda step: ProfilerAction.NONE, "records none of its first"),
    (lambda step: LETTERS["S" if step in (3, 9, 10, 30) else "N"], "not of the form"),
    (lambda step: LETTERS["S" if (step & (step - 1)) == 0 else "N"], "not of the form"),
    (lambda step: step, "returned 0 for step 0"),
    (7, "must be stepscope.schedule"),
])
def test_what_fits_none_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        _schedule.fitted(asked)


@pytest.mark.parametrize("numbers", [{"wait": -1}, {"active": 0}, {"repeat": True}, {"warmup": 1.5}, {"active": 2_000_000_000}])
def test_wrong_numbers_are_refused(numbers):
    with pytest.raises(ValueError, match=next(iter(numbers))):
        schedule(**numbers)
