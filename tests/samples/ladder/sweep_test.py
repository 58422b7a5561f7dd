import json
import math
import random
import statistics

import pytest
import sweep
from bench import Failed, ProgramFailed
from fake_programs import finding
from resnet_flags import Factor, Settings, UsageError, cross
from sweep import AS_PRODUCT, Cube, Ratio, predict, to_record, to_text, verdict

of = Settings.of
THREE = [Factor("--a", "0", "1"), Factor("--b", "off", "on"), Factor("--c", "0", "1", "2")]


def simulate(truth, noise, rounds, seed=1, factors=THREE):
    """Returns a Cube with the rates truth(levels). `noise` is the standard deviation of the logarithm of a run's rate. Rounds
    drift."""
    rng = random.Random(seed)
    return Cube(factors, {levels: [truth(levels) * (1 + 0.1 * i) * math.exp(rng.gauss(0, noise)) for i in range(rounds)]
                          for levels in cross(factors, Settings())})


def product(levels):
    """Effects that only multiply."""
    return 100 * (1, 1.5)[levels[0]] * (1, 0.8)[levels[1]] * (1, 1, 1.2)[levels[2]]


def joint(a, b, both, noise=0.01):
    """Returns the name for the pair --a and --b, given the samples/s that each alone and both together make of 100.

    This is the most frequent verdict of five cubes, because in one of 20 cubes the interval of a flag alone misses the truth.
    """
    rates = {(0, 0): 100, (1, 0): a, (0, 1): b, (1, 1): both}
    cubes = [simulate(lambda levels: rates[levels[:2]], noise, 5, seed) for seed in range(5)]
    return statistics.mode(verdict(*cube.pairs()[(0, 1), (1, 1)].values()) for cube in cubes)


def test_effects_lie_within_their_intervals_as_often_as_those_say():
    truth, held, looked = {(0, 1): 1.5, (1, 1): 0.8, (2, 1): 1, (2, 2): 1.2}, 0, 0
    for seed in range(40):
        effects = simulate(product, 0.03, 5, seed).effects()
        assert effects.keys() == truth.keys()
        for change, ratios in effects.items():
            for ratio in ratios:
                assert ratio.ratio == pytest.approx(truth[change], abs=0.12)
                held += ratio.low <= truth[change] <= ratio.high
                looked += 1
    assert 0.90 * looked < held < 0.99 * looked


def test_an_average_is_known_better_than_a_single_place():
    for at_baseline, on_average in simulate(product, 0.03, 5).effects().values():
        assert on_average.high / on_average.low < at_baseline.high / at_baseline.low


def test_products_are_not_named():
    named = sum(any(verdict(*ratios.values()) != AS_PRODUCT for ratios in simulate(product, 0.03, 4, seed).pairs().values())
                for seed in range(40))
    assert named <= 6  # one cube in 20 may name a pair by chance


def test_every_pair_of_changes_is_looked_at_once():
    assert len(simulate(product, 0.01, 3).pairs()) == 1 + 2 + 2


def test_what_helps_only_together_is_named_and_comes_first():
    assert joint(100, 100, 130, 0.02) == "help only together"
    pairs = simulate(lambda levels: 130 if levels[:2] == (1, 1) else 100, 0.02, 5).pairs()
    first, ratios = next(iter(pairs.items()))
    assert first == ((0, 1), (1, 1))
    assert ratios["both"].ratio == pytest.approx(1.3, abs=0.05)
    assert ratios["both_over_product"].low < 1.3 < ratios["both_over_product"].high
    assert verdict(*pairs[(0, 1), (2, 1)].values()) == AS_PRODUCT


# Two ways to use the same idle core: one is enough.
def test_what_cancels_is_named():
    assert joint(140, 130, 135, 0.02) == "cancel: no more than the better one alone"


@pytest.mark.parametrize("a, b, both, called", [
    (120, 120, 170, "help each other"), (120, 120, 144, AS_PRODUCT), (120, 120, 130, "less than the product"),
    # The same time is lost once, not twice.
    (80, 80, 80, "cost less together than the product of their single costs"),
    (80, 90, 78, "cost less together than the product of their single costs"), (80, 80, 64, AS_PRODUCT),
    (80, 80, 50, "cost more together than the product of their single costs"), (100, 100, 75, "cost only together"),
    (120, 120, 90, "cost only together"),  # each alone helps, and both together cost
    (150, 80, 140, "one helps, one costs: together more than the product"),
    (150, 80, 160, "one helps, one costs: together more than the product"), (150, 80, 120, AS_PRODUCT),
    # No more than the better one, but because of the other one's cost.
    (150, 80, 100, "one helps, one costs: together less than the product"),
    (80, 150, 70, "one helps, one costs: together less than the product"), (90, 90, 120, "help only together"),
    # By the medians, both would cost, or help; the noise leaves it open.
    (99.9, 80, 95, "more than the product"), (99.9, 80, 70, "less than the product"),
    (140, 100.1, 130, "less than the product"), (140, 100.1, 160, "help each other")])
def test_what_two_flags_do_together_has_a_name(a, b, both, called):
    assert joint(a, b, both) == called


def test_noise_that_is_larger_than_the_effect_names_nothing():
    pairs = simulate(lambda levels: 104 if levels[:2] == (1, 1) else 100, 0.1, 3).pairs()
    assert {verdict(*ratios.values()) for ratios in pairs.values()} == {AS_PRODUCT}


def test_what_is_hardly_off_the_product_is_not_worth_a_name():
    assert verdict(*(Ratio(1, 0.99, 1.01),) * 3, Ratio(1.009, 1.008, 1.010)) == AS_PRODUCT


def test_combinations_that_are_not_there_are_left_out_of_the_comparison():
    cube = simulate(product, 0.01, 4)
    del cube.rates[0, 1, 2]  # the baseline for --c 2 with --b
    cube = Cube(THREE, cube.rates)
    assert cube.pairs()[(1, 1), (2, 2)]["both"].ratio == pytest.approx(0.8 * 1.2, abs=0.03)
    assert cube.effects()[2, 2][1].ratio == pytest.approx(1.2, abs=0.03)


def test_a_value_that_never_stands_alone_has_no_effect_at_the_baseline():
    cube = simulate(product, 0.01, 4)
    cube = Cube(THREE, {levels: runs for levels, runs in cube.rates.items() if levels != (1, 0, 0)})
    at_baseline, on_average = cube.effects()[0, 1]
    assert at_baseline is None
    assert on_average.ratio == pytest.approx(1.5, abs=0.03)


def test_one_point_has_no_effects():
    cube = Cube(THREE, {(0, 0, 0): [100, 101]})
    assert cube.pairs() == cube.effects() == {}


def ask(bench, flags, always=""):
    """Returns the replay's predictions for all combinations, by the settings' text."""
    factors = [Factor(flag, *value.split(",")) for flag, value in flags.items()]
    points = cross(factors, of(always))
    predicted, unknown = predict(bench, bench.profile(points[(0,) * len(factors)], "baseline"), factors, points)
    return {points[levels].text(): ratio for levels, ratio in predicted.items()}, unknown


def test_every_point_of_flags_that_replay_knows_is_predicted(make_bench):
    predicted, unknown = ask(make_bench(), {"--threads": "1,2", "--workers": "0,1"})
    assert unknown == {}
    assert predicted["--threads 1 --workers 0"] == (1, 1, 1)
    ratio, low, high = predicted["--threads 2 --workers 0"]
    assert ratio == pytest.approx(116 / 74)
    assert (low, high) == (pytest.approx(116 / 74 / 1.1), pytest.approx(116 / 74 / 0.9))
    assert predicted["--threads 2 --workers 1"].ratio == pytest.approx(116 / 84)  # predicted together, not as a product


def test_a_setting_that_what_if_refuses_is_not_predicted(make_bench):
    predicted, unknown = ask(make_bench(), {"--conv-bias": "on,off", "--batch": "32,64"})
    assert unknown == {"without --conv-bias": "the replay cannot model conv_bias"}
    assert predicted.keys() == {"--batch 32 --conv-bias", "--batch 64 --conv-bias"}


def test_what_if_is_asked_once_for_the_same_changes(make_bench):
    asked = []
    bench = make_bench()
    real = bench.stepscope
    bench.stepscope = lambda *words: asked.append(words) or real(*words)
    ask(bench, {"--threads": "1,2", "--workers": "0,1"})
    assert len(asked) == len(set(asked)) == 1 + 3


def test_points_with_a_value_that_replay_cannot_express_are_not_predicted(make_bench):
    predicted, unknown = ask(make_bench(), {"--pinned": "off,on", "--set-to-none": "1,0", "--threads": "1,2"})
    assert list(unknown) == ["--pinned", "--set-to-none 0"]
    assert predicted.keys() == {"--set-to-none 1 --threads 1", "--set-to-none 1 --threads 2"}


def test_a_value_that_is_the_default_changes_nothing(make_bench):
    assert ask(make_bench(), {"--sgd": "off,loop"}, "--threads 1")[0]["--sgd loop --threads 1"] == (1, 1, 1)


# For a GPU run, the finding that asks for a flag predicts its effect.
def test_a_finding_predicts_what_no_setting_says(make_bench):
    advise = json.dumps([finding("h2d-pageable", 16), finding("unfused-optimizer", 6, {"optimizer_step": "fused"})])
    predicted, unknown = ask(make_bench(f"--gpu\t--advise={advise}"),
                                {"--pinned": "off,on", "--sgd": "loop,fused", "--tf32": "off,on"})
    assert list(unknown) == ["--tf32"]
    assert predicted["--pinned --sgd loop"].ratio == pytest.approx(1.16)
    assert predicted["--sgd fused"].ratio == pytest.approx(116 / 110)  # GPU runs have no such setting, but a finding
    assert predicted["--pinned --sgd fused"].ratio == pytest.approx(116 / 94)


def test_a_finding_that_two_flags_cause_is_not_the_first_ones(make_bench):
    advise = json.dumps([finding("host-sync", 13)])
    for always, known in (("--print-tensor", False), ("", True)):
        predicted, _ = ask(make_bench(f"--gpu\t--advise={advise}"), {"--item-every-step": "on,off"}, always)
        assert ((always or "(defaults)") in predicted) == known


def test_a_bound_is_no_prediction(make_bench):
    advise = json.dumps([finding("h2d-pageable", 16, gain_kind="bound")])
    assert ask(make_bench(f"--gpu\t--advise={advise}"), {"--pinned": "off,on"})[1] == {
        "--pinned": "the replay cannot model h2d-pageable"}


def test_a_gain_of_the_whole_step_is_no_prediction(make_bench):
    advise = json.dumps([finding("h2d-pageable", 116)])
    assert ask(make_bench(f"--gpu\t--advise={advise}"), {"--pinned": "off,on"})[1] == {
        "--pinned": "a gain of the whole step is no prediction"}


def test_why_nothing_is_predicted_is_said(make_bench, monkeypatch):
    bench = make_bench()
    report = bench.profile(Settings(), "p")

    def fail(*words):
        raise Failed("no such trace")

    monkeypatch.setattr(bench, "stepscope", fail)
    factors = [Factor("--threads", "1", "2")]
    assert predict(bench, report, factors, cross(factors, Settings())) == (
        {(0,): (1, 1, 1)}, {"--threads 2": "no such trace"})


def cancelling():
    """Two flags that cancel, and --c, which does nothing and which the replay cannot express."""
    factors = [Factor("--a", "0", "1"), Factor("--b", "0", "1"), Factor("--c", "off", "on")]
    rates, predicted = {}, {}
    for levels in cross(factors, Settings()):
        rate = {(0, 0): 100, (0, 1): 130, (1, 0): 150, (1, 1): 150}[levels[:2]]
        rates[levels] = [rate, 1.004 * rate, 0.998 * rate]
        ratio = {(0, 0): 1, (0, 1): 1.25, (1, 0): 1.5, (1, 1): 1.7}[levels[:2]]
        if levels[2] == 0:
            predicted[levels] = Ratio(ratio, 0.9 * ratio, 1.1 * ratio)
    return {**to_record(Cube(factors, rates), predicted, {"--c": "who knows"}), "left_out": []}


def squeezed(record):
    return [" ".join(line.split()) for line in to_text(record).splitlines()]


def test_predicted_stands_beside_measured():
    lines = squeezed(cancelling())
    assert "| --a 1 --b 1 | 150.0 | 0.2% | ×1.50 | ×1.70 |" in lines
    assert "| --a 1 --b 1 --c | 150.0 | 0.2% | ×1.50 | - |" in lines
    assert "nothing is predicted where --c is set: who knows" in lines
    [effect] = [line for line in lines if line.startswith("| --b 1 | ×1.30 (")]
    assert "| ×1.25 (×1.12 to ×1.38) | +4.0% (" in effect
    [pair] = [line for line in lines if line.startswith("| --a 1 with --b 1 |")]
    assert pair.startswith("| --a 1 with --b 1 | ×1.50 | ×1.30 | ×1.50 (")
    assert pair.endswith("| ×1.70 | ×0.91 | cancel: no more than the better one alone |")


def test_every_pair_has_a_line():
    lines = squeezed(cancelling())
    assert "1 of 3 pairs are not the product of both, beyond the noise:" in lines
    for flag in ("--a 1", "--b 1"):
        [line] = [line for line in lines if line.startswith(f"| {flag} with --c |")]
        assert "| ×1.00 (" in line and line.endswith("| - | - | as the product |")


def test_the_record_holds_the_prediction_too():
    record = cancelling()
    assert record["not_predictable"] == {"--c": "who knows"}
    points = {point["flags"]: point for point in record["points"]}
    assert points["--a 1 --b 1"]["predicted"] == 1.7
    assert "predicted" not in points["--a 1 --b 1 --c"]
    effects = {effect["change"]: effect for effect in record["effects"]}
    assert effects["--a 1"]["predicted"] == 1.5 and "predicted" not in effects["--c"]
    # The predicted step divided by the measured one: 1.3 / 1.25 - 1.
    assert effects["--b 1"]["error"] == pytest.approx(0.04)
    assert effects["--b 1"]["error_interval"]["low"] < 0.04 < effects["--b 1"]["error_interval"]["high"]
    pairs = {(pair["first"], pair["second"]): pair for pair in record["pairs"]}
    assert pairs["--a 1", "--b 1"]["beyond_noise"] and not pairs["--a 1", "--c"]["beyond_noise"]
    assert pairs["--a 1", "--b 1"]["predicted"]["both"] == pytest.approx(1.7)
    assert pairs["--a 1", "--b 1"]["predicted"]["both_over_product"] == pytest.approx(1.7 / 1.875)
    assert "predicted" not in pairs["--a 1", "--c"]
    json.dumps(record)


# Two threads gain much, and so do workers, but both together gain no more than the threads alone.
def test_the_pair_that_cancels_is_named(make_bench):
    record = sweep.sweep(make_bench(), of("--threads 1,2 --workers 0,1 --batch 32,64 --side 64"), 3, 13)
    assert record["baseline"] == "--batch 32 --side 64 --threads 1 --workers 0"
    assert len(record["points"]) == 8 and record["not_predictable"] == {}
    [pair] = [pair for pair in record["pairs"] if (pair["first"], pair["second"]) == ("--threads 2", "--workers 1")]
    assert pair["beyond_noise"] and pair["verdict"].startswith("cancel")
    assert pair["predicted"]["both_over_product"] == pytest.approx(pair["both_over_product"], rel=0.01)
    [effect] = [one for one in record["effects"] if one["change"] == "--threads 2"]
    assert effect["at_baseline"] == pytest.approx(116 / 74, rel=0.001)
    assert effect["error"] == pytest.approx(0, abs=1e-3)


def test_a_flag_alone_stands_beside_its_prediction(make_bench):
    bench = make_bench()
    record = sweep.sweep(bench, of("--threads 1,2 --channels-last off,on --batch 32,64,128"), 3, 13, alone=True)
    assert [point["flags"] for point in record["points"]] == [
        "--batch 32 --threads 1", "--batch 32 --threads 2", "--batch 32 --channels-last --threads 1",
        "--batch 64 --threads 1", "--batch 128 --threads 1"]
    assert record["pairs"] == []
    errors = {one["change"]: one["error"] for one in record["effects"]}
    # what-if predicts no change for channels_last, which costs 8.4 of 116 ms.
    assert errors["--channels-last"] == pytest.approx(116 / 124.4 - 1, abs=1e-3)
    assert errors["--threads 2"] == pytest.approx(0, abs=1e-3)


def test_the_middle_one_of_three_recordings_counts(make_bench):
    bench, asked = make_bench(), []
    profile, stepscope = bench.profile, bench.stepscope
    times = {"baseline.0": 90, "baseline.1": 200, "baseline.2": 116}

    def disturbed(settings, name):
        report = profile(settings, name)
        report.step_ms = times[name]
        return report

    bench.profile = disturbed
    bench.stepscope = lambda *words: asked.append(words) or stepscope(*words)
    sweep.sweep(bench, of("--threads 1,2"), 3, 13)
    assert {words[1][-10:] for words in asked if words[0] == "what-if"} == {"baseline.2"}


def test_rounds_go_up_and_down_the_list(make_bench, monkeypatch):
    bench, order = make_bench(), []
    real = bench.time

    def note(settings, length, purpose, number, partner=None):
        order.append(settings.get("--threads"))
        return real(settings, length, purpose, number, partner)

    monkeypatch.setattr(bench, "time", note)
    sweep.sweep(bench, of("--threads 1,2,4"), 3, 13)
    assert order == ["1", "2", "4", "4", "2", "1", "1", "2", "4"]


def test_combinations_that_are_refused_are_left_out_and_said(make_bench):
    record = sweep.sweep(make_bench(), of("--threads 1,2 --workers 0,1,7"), 3, 13)
    assert len(record["points"]) == 4
    assert record["left_out"] == [{"flags": f"--threads {threads} --workers 7", "why": "resnet: --workers must be at most 4"}
                                  for threads in (1, 2)]
    assert "left out: --threads 1 --workers 7: resnet: --workers must be at most 4" in to_text(record)


# Otherwise all points would be compared with a point that is not the baseline.
def test_without_its_baseline_nothing_is_measured(make_bench):
    bench = make_bench()
    with pytest.raises(ProgramFailed, match="--workers must be at most 4"):
        sweep.sweep(bench, of("--threads 1,2 --workers 7,0,1"), 3, 13)
    assert bench.journal.runs == {}


@pytest.mark.parametrize("flags", ["--workers 1", "--workers 0,,1"])
def test_what_makes_no_sense_is_refused(make_bench, flags):
    with pytest.raises(UsageError, match="flags with several values"):
        sweep.sweep(make_bench(), of(flags), 3, 13)


def test_too_many_combinations_are_refused(make_bench):
    many = ",".join(map(str, range(50)))
    with pytest.raises(UsageError, match="2000 combinations; these are 2500"):
        sweep.sweep(make_bench(), of(f"--a {many} --b {many}"), 3, 13)


def test_one_combination_alone_is_no_sweep(make_bench):
    with pytest.raises(UsageError, match="fewer than two.*at most 4"):
        sweep.sweep(make_bench(), of("--workers 0,7"), 3, 13)


def test_a_run_that_fails_ends_the_sweep_with_its_words(make_bench):
    with pytest.raises(ProgramFailed, match="no such weather"):
        sweep.sweep(make_bench(), of("--threads 1,2 --fail off,on"), 3, 13)
