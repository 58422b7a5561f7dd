import json
from types import SimpleNamespace

import climb
import pytest
from bench import ProgramFailed, TimeOver
from climb import EVERYTHING, ascend, decide, find_best, judge_habits, price_habits
from fake_programs import finding
from report import Finding, Report
from resnet_flags import Factor, Settings, cross, spelled

of = Settings.of


def options(**more):
    return SimpleNamespace(**{"pairs": 3, "profiles": 1, "max_changes": 16, "steps": 14, "start": Settings(),
                              "bad_habits": False, "sweep": False, "sweep_steps": 8, **more})


def go(bench, start="", **more):
    return ascend(bench, of(start), options(**more), lambda text: None)[0]


def advise(*findings):
    return "--advise\t" + json.dumps(findings)


def report(*ids):
    return Report(100, findings=[Finding(id, gain_ms=10, settings={"workers": "1"}) for id in ids])


def test_the_middle_report_counts():
    _, chosen, after, _ = decide([report(), report("loader-bound"), report()], Settings(), set())
    assert (chosen.id, after) == ("loader-bound", of("--workers 1"))


def test_where_it_is_silent_most_of_them_count():
    assert decide([report("loader-bound"), report(), report()], Settings(), set())[1] is None
    two = [report("loader-bound"), report(), report("loader-bound")]
    assert decide(two, Settings(), set())[1].id == "loader-bound"
    assert decide(two, Settings(), {spelled(of("--workers 1"))})[1] is None


def test_follows_the_report_until_it_has_nothing_to_say(make_bench):
    record = go(make_bench())
    assert [step["id"] for step in record["steps"]] == ["cores-idle", "small-batch"]
    assert of(record["end"]) == of("--threads 2 --batch 64")
    assert record["healthy"] and record["left"] == []
    for step in record["steps"]:
        assert step["kept"] and step["outcome"] == "faster"
        assert (step["error"], step["ratio_error"]) == (pytest.approx(0, abs=1e-3), pytest.approx(0, abs=1e-3))


# 74 ms for 32 samples become 138 ms for 64.
def test_a_larger_batch_is_promised_as_its_own_step(make_bench):
    [step] = go(make_bench(), "--threads 2")["steps"]
    assert step["recorded_ms"] == pytest.approx(74)
    assert step["predicted_ms"] == pytest.approx(138)
    assert step["predicted_ms_interval"]["low"] < 138 < step["predicted_ms_interval"]["high"]
    assert step["measured_ms"] == pytest.approx(138)
    assert step["measured_ratio"] == pytest.approx(69 / 74, abs=1e-3)


def test_a_fix_that_makes_it_slower_is_taken_back_and_counts_against_its_rule(make_bench):
    record = go(make_bench(advise(finding("layout", 30, {"memory_format": "channels_last"}))))
    [step] = record["steps"]
    assert (step["id"], step["kept"], step["outcome"], record["end"]) == ("layout", False, "slower", "(defaults)")
    assert step["error"] == pytest.approx(86 / 124.4 - 1, abs=1e-3)  # 86 ms predicted, from 116
    assert not record["healthy"]
    assert [left["why"] for left in record["left"]] == ["tried before: --channels-last"]


def test_a_fix_that_makes_the_program_fail_is_taken_back_too(make_bench):
    record = go(make_bench("--fail-if --threads".replace(" ", "=")))
    first = record["steps"][0]
    assert (first["id"], first["kept"], first["outcome"]) == ("cores-idle", False, "failed")
    assert "no such weather" in first["failed"] and "measured_ms" not in first
    assert of(record["end"]) == of("--workers 1 --batch 64")


def test_a_run_that_fails_without_a_change_ends_it(make_bench):
    with pytest.raises(ProgramFailed):
        go(make_bench("--fail"))


def test_a_fix_is_not_blamed_where_the_program_fails_without_it_too(make_bench, monkeypatch):
    bench = make_bench()
    resnet = bench.run

    def only_profiles(command, limit_s=600):
        if "--no-profile" in command:
            raise ProgramFailed("the disk is full", 1)
        return resnet(command)

    bench.run = only_profiles
    with pytest.raises(ProgramFailed, match="disk is full"):
        go(bench)


def test_what_the_noise_hides_is_kept_if_it_is_the_faster_one(make_bench, monkeypatch):
    bench = make_bench(advise(finding("cores-idle", 30, {"intra_op_threads": 2})))
    noise = iter([1.0, 1.6, 1.0, 0.9, 1.9, 1.0])  # order: before, after, after, before, before, after
    real = bench.time

    def noisy(settings, length, purpose, number, partner=None):
        run = real(settings, length, purpose, number, partner)
        return run if partner is None else type(run)([ms * factor for factor in [next(noise)] for ms in run.step_ms],
                                                     run.warm_steps, run.batch)

    monkeypatch.setattr(bench, "time", noisy)
    [step] = go(bench)["steps"]
    assert (step["outcome"], step["kept"]) == ("unclear", True)


def test_what_is_held_back_is_recorded_at_length(make_bench):
    record = go(make_bench("--hold-back=15"))
    assert [step["id"] for step in record["steps"]] == ["cores-idle", "small-batch"]
    assert record["healthy"]


def test_what_stays_held_back_is_not_called_healthy(make_bench):
    record = go(make_bench("--hold-back=1000"))
    assert record["steps"] == [] and not record["healthy"]
    assert [left["id"] for left in record["left"]] == ["cores-idle"]
    assert "held back" in record["left"][0]["why"]


def test_what_no_flag_does_is_left_and_said(make_bench):
    record = go(make_bench(advise(finding("moon-phase", 30))))
    assert record["steps"] == [] and not record["healthy"]
    assert record["left"] == [{"id": "moon-phase", "why": "no flag of resnet does that"}]


def test_notes_are_not_left_over(make_bench):
    record = go(make_bench(advise(finding("moon-phase", 30, severity="note"))))
    assert record["left"] == [] and record["healthy"]


def test_gives_up_after_enough_changes(make_bench):
    record = go(make_bench(), max_changes=1)
    assert len(record["steps"]) == 1
    assert [left["id"] for left in record["left"]] == ["small-batch"]


def test_what_was_measured_is_not_measured_again(make_bench):
    bench = make_bench()
    first = go(bench)
    runs = bench.runs
    assert go(bench) == first
    assert bench.runs == runs > 0


def test_a_time_that_is_over_is_said(make_bench):
    with pytest.raises(TimeOver):
        go(make_bench(limit_s=0))


# Printing costs 8 ms, reading the loss 5 ms, and anomaly mode nothing.
def test_each_habit_gets_its_price(make_bench):
    prices = price_habits(make_bench(), of("--print-tensor --item-every-step --anomaly-mode"), options(), "at the start")
    assert {name: price["beyond_noise"] for name, price in prices.items()} == {
        "item": True, "print": True, "anomaly": False}
    assert prices["item"]["cost_ms"] == pytest.approx(5, abs=0.01)
    assert prices["print"]["cost_ms"] == pytest.approx(8, abs=0.01)


def test_bad_habits_go_dearest_first_and_what_stays_is_priced_again(make_bench):
    record = climb.climb(make_bench(), options(bad_habits=True), lambda text: None)
    at = {habit["name"]: habit["removed_at_step"] for habit in record["habits"]}
    assert 0 < at["print"] < at["item"]
    assert at["anomaly"] == at["conv-bias"] == 0
    for habit in record["habits"]:
        assert habit["beyond_noise"] == (habit["name"] in ("print", "item")), habit
        assert ("at_end" in habit) == (habit["removed_at_step"] == 0), habit
    assert record["complaints"] == []
    assert "--print-tensor" not in record["end"] and "--anomaly-mode" in record["end"]


def habit(cost, noise=1):
    return {"cost_ms": cost, "cost_ms_interval": {"low": cost - noise, "high": cost + noise}, "beyond_noise": cost > noise}


def dropping(*names):
    return [{"kept": True, "habits_dropped": [name]} for name in names]


def test_a_habit_that_stays_and_is_dear_at_the_end_is_wrong():
    assert judge_habits([], {"item": habit(30)}, {"item": habit(20)})["complaints"] == [
        "item stays, and costs more than the noise at the end"]
    assert judge_habits([], {"item": habit(30)}, {"item": habit(0)})["complaints"] == []


def test_a_cheap_habit_that_goes_before_a_dear_one_is_wrong():
    prices = {"item": habit(10), "print": habit(30)}
    assert judge_habits(dropping("item", "print"), prices, {})["complaints"] == [
        "item goes before print, which costs more"]
    assert judge_habits(dropping("print", "item"), prices, {})["complaints"] == []


def test_habits_of_the_same_price_may_go_in_any_order():
    assert judge_habits(dropping("item", "print"), {"item": habit(29.5), "print": habit(30)}, {})["complaints"] == []


def test_a_habit_that_comes_back_is_not_gone():
    steps = [{"kept": False, "habits_dropped": ["item"]}]
    assert judge_habits(steps, {"item": habit(9)}, {"item": habit(0)})["habits"][0]["removed_at_step"] == 0


def test_the_sweep_has_144_points():
    assert len(cross(EVERYTHING, of("--side 32"))) == 144


# The best point has two threads, no workers, the largest batch and NCHW. Better points run more often: 144 + 48 + 16 runs, then
# the best 6 twice.
def test_the_best_of_all_is_found(make_bench):
    bench = make_bench()
    points = find_best(bench, EVERYTHING, Settings(), 8, 2)
    best, rates = points[0]
    assert (best["--threads"], best["--workers"], best["--batch"]) == ("2", "0", "64") and "--channels-last" not in best
    assert rates == [pytest.approx(64 / 0.138, rel=0.01)] * 5
    assert len(points) == 144 and len(points[-1][1]) == 1
    assert bench.runs == 144 + 48 + 16 + 2 * 6


def test_small_batches_get_more_steps(make_bench):
    bench = make_bench()
    find_best(bench, [Factor("--batch", "16", "32", "64")], Settings(), 8, 1)
    lengths = {run.batch: len(run.step_ms) for run in bench.journal.runs.values()}
    assert lengths == {16: 2 + 16, 32: 2 + 8, 64: 2 + 8}


def test_few_points_are_all_run_in_every_round(make_bench):
    points = find_best(make_bench(), [Factor("--threads", "1", "2")], Settings(), 8, 3)
    assert [(settings, len(rates)) for settings, rates in points] == [(of("--threads 2"), 3), (of("--threads 1"), 3)]


def test_the_end_is_measured_against_the_start_and_the_best_of_the_sweep(make_bench):
    record = climb.climb(make_bench(), options(sweep=True), lambda text: None)
    assert record["version"] == 2
    assert record["samples_per_s"] == pytest.approx(64 / 0.138, rel=0.01)
    assert record["sweep_best_samples_per_s"] / record["samples_per_s"] == pytest.approx(1, rel=0.01)
    assert record["of_sweep_best"] == pytest.approx(1, rel=0.01)
    assert record["start_samples_per_s"] == pytest.approx(32 / 0.116, rel=0.01)
    assert record["speedup"] == pytest.approx(2 * 116 / 138, rel=0.01)
    assert len(record["sweep"]) == 144
    for step in record["steps"]:
        assert step["predicted_ms"] / step["measured_ms"] == pytest.approx(1, rel=0.01)
    text = climb.to_text(record)
    assert "| cores-idle: `--threads 2` " in text
    assert "116.0 to 74.0 ms" in text and "116.0 to 74.0 (74.0 to 74.0) ms, faster, kept" in text
    assert "predictions: 2 of 2 within 15% of the measured step" in text
    assert "the climb's end against the best, interleaved: 463.8 against 463.8 samples/s, 100.0%" in text


def test_a_climb_that_ends_below_the_best_says_by_how_much(make_bench):
    record = climb.climb(make_bench(advise()), options(sweep=True), lambda text: None)
    assert record["end"] == record["start"] == "(defaults)"
    assert record["speedup"] == pytest.approx(1)
    assert record["of_sweep_best"] == pytest.approx(138 / 2 / 116, rel=0.01)
    assert record["sweep_best_samples_per_s"] == pytest.approx(64 / 0.138, rel=0.01)


def test_bounds_are_not_counted_as_predictions_and_failures_are_told_in_their_words(make_bench):
    slower = finding("layout", 30, {"memory_format": "channels_last"}, gain_kind="bound")
    record = climb.climb(make_bench(advise(slower)), options(), lambda text: None)
    text = climb.to_text(record)
    assert "116.0 to at best 86.0 ms" in text and "slower, taken back" in text
    assert "predictions: 0 of 0" in text
    assert "changes that made it slower or fail: 1" in text
    told = []
    climb.climb(make_bench("--fail-if=--threads"), options(), told.append)
    assert told[0].startswith("1  cores-idle: --threads 2: failed, taken back: ") and "no such weather" in told[0]
