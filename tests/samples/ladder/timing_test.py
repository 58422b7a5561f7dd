import math
import random

import pytest
from timing import Comparison, Interval, Length, RunTimes, interleave, median_interval, student_factor


def test_the_interval_of_many_values_stays_within_them():
    low, high = median_interval([1, 2, 3, 3, 4, 100])
    assert 1 <= low <= 2
    assert 4 <= high <= 100


def test_one_value_says_nothing_about_its_spread():
    assert median_interval([7]) == (-math.inf, math.inf)
    assert median_interval([]) == (-math.inf, math.inf)


@pytest.mark.parametrize("values", [[9, 10, 12, 15], list(range(20))])
def test_less_confidence_makes_a_narrower_interval(values):
    wide, narrow = median_interval(values), median_interval(values, confidence=0.9)
    assert wide.low <= narrow.low < narrow.high <= wide.high
    assert narrow != wide


def test_equal_values_leave_no_doubt():
    assert median_interval([2, 2, 2]) == (2, 2)
    assert median_interval([2] * 8) == (2, 2)


# The bootstrap interval of few values is slightly too narrow; an interval inside the range of all values would be far too
# narrow.
@pytest.mark.parametrize("count", [2, 3, 5, 6, 9, 15])
def test_the_interval_holds_the_true_median_about_as_often_as_it_says(count):
    rng, trials, held = random.Random(3), 200, 0
    for _ in range(trials):
        low, high = median_interval([rng.gauss(10, 2) for _ in range(count)], draws=600)
        held += low <= 10 <= high
    assert 0.9 * trials < held < trials


@pytest.mark.parametrize("confidence, freedom, value", [
    (0.95, 1, 12.706), (0.95, 4, 2.776), (0.99, 4, 4.604), (0.95, 30, 2.042), (0.95, 1e6, 1.960)])
def test_students_t_agrees_with_its_table(confidence, freedom, value):
    assert student_factor(confidence, freedom) == pytest.approx(value, rel=0.01)


def test_the_inverse_of_an_interval_turns_its_ends_round():
    assert Interval(0.5, 0.8).inverse() == (1.25, 2)
    assert Interval(-1, 0.5).inverse() == (2, math.inf)


def test_the_median_leaves_out_the_warm_steps():
    run = RunTimes([900, 800, 10, 30, 20], 2, 10)
    assert run.median_ms() == 20
    assert run.rate() == 500


def test_without_other_steps_the_warm_ones_count():
    assert RunTimes([30, 10], 4).median_ms() == 20


def test_a_period_shares_out_what_one_of_its_steps_does():
    run = RunTimes([99, 10, 10, 10, 50, 10, 10, 10, 50, 10, 10, 10, 50, 7], 1)
    assert run.median_ms() == 10
    assert run.median_ms(4) == 20


def test_an_unfinished_period_is_left_out_or_stands_alone():
    assert RunTimes([10, 20, 90]).median_ms(2) == 15
    assert RunTimes([10, 20]).median_ms(4) == 15


def test_reads_what_resnet_writes():
    run = RunTimes.of({"step_ms": [1.5, 2], "warm_steps": 1, "batch": 8, "median_ms": 2}, "x")
    assert run == RunTimes([1.5, 2.0], 1, 8)
    assert RunTimes.of(vars(run), "x") == run


@pytest.mark.parametrize("record", [
    [], {}, {"step_ms": [], "warm_steps": 0, "batch": 1}, {"step_ms": [1], "warm_steps": 0},
    {"step_ms": [1], "warm_steps": -1, "batch": 1}, {"step_ms": [1], "warm_steps": 0, "batch": 0},
    {"step_ms": [0], "warm_steps": 0, "batch": 1}, {"step_ms": ["a"], "warm_steps": 0, "batch": 1}])
def test_what_is_no_run_is_refused_by_name(record):
    with pytest.raises(ValueError, match="the run: no step_ms"):
        RunTimes.of(record, "the run")


def test_variants_run_in_turn_and_never_the_same_one_first_twice():
    order = []

    def run(is_after, pair):
        order.append("ba"[not is_after] + str(pair))
        return RunTimes([10])

    interleave(run, 3)
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_the_first_error_ends_it():
    runs = []

    def run(is_after, pair):
        runs.append(pair)
        if len(runs) == 2:
            raise RuntimeError("no")
        return RunTimes([10])

    with pytest.raises(RuntimeError):
        interleave(run, 3)
    assert len(runs) == 2


def pairs(before, after, batch_after=10):
    return Comparison([RunTimes([ms] * 8, 0, 10) for ms in before], [RunTimes([ms] * 8, 0, batch_after) for ms in after])


def test_says_faster_only_beyond_the_spread():
    assert pairs([10, 11, 10], [9, 9.5, 8.8]).outcome == "faster"
    assert pairs([9, 9.5, 8.8], [10, 11, 10]).outcome == "slower"
    unclear = pairs([10, 11, 10], [9, 12, 9.9])
    assert unclear.outcome == "unclear"
    assert unclear.to_be_kept
    assert not pairs([9, 12, 9.9], [10, 11, 10]).to_be_kept


def test_one_pair_proves_nothing():
    assert pairs([10], [1]).outcome == "unclear"


def test_a_drift_of_the_machine_hits_both_alike():
    drift = pairs([10, 20, 40], [9, 18, 36])
    assert drift.ratio == pytest.approx(0.9)
    assert drift.outcome == "faster"


def test_another_batch_is_compared_per_sample():
    larger = pairs([10, 10, 10], [18, 18, 18], 20)
    assert larger.ratio == pytest.approx(0.9)
    assert (larger.before_ms, larger.after_ms) == (10, 18)
    assert larger.before_rate == 1000
    assert larger.after_rate == pytest.approx(1111, abs=1)
    assert larger.after_interval_ms.low == pytest.approx(18)


def test_the_cost_of_a_change_has_an_interval_of_its_own():
    low, high = pairs([100, 100, 100], [129, 130, 131]).cost_interval_ms
    assert 27 < low < 30 < high < 33


def test_runs_are_made_of_whole_periods():
    assert [Length(36).whole(period).steps for period in (1, 5, 40)] == [36, 4 + 35, 4 + 40]
    assert Length(36).whole(40).warm_steps == 4
