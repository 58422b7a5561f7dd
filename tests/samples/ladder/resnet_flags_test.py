import pytest
from report import Finding, Report
from resnet_flags import (HABITS, Factor, Settings, UsageError, cross, difference, follow, follow_settings, period_of,
                          spelled)

of = Settings.of


def test_a_flag_takes_the_word_behind_it_unless_that_is_a_flag():
    assert of("--workers 1 --bf16 --batch=64 --lr -0.5") == {
        "--workers": "1", "--bf16": "", "--batch": "64", "--lr": "-0.5"}


def test_the_last_of_two_values_counts():
    assert of("--batch 32 --batch=64") == of("--batch 64")


def test_the_order_of_flags_makes_no_difference():
    assert of("--b 1 --a") == of("--a --b 1")
    assert of("--b 1 --a").text() == of("--a --b 1").text()


@pytest.mark.parametrize("text", ["workers 1", "--batch=64 32", "--a 1 2", "-- 1"])
def test_a_word_that_belongs_to_nothing_is_refused(text):
    with pytest.raises(UsageError, match="neither a flag nor"):
        of(text)


def test_arguments_and_text_say_the_same():
    settings = of("--batch 64 --bf16")
    assert settings.arguments() == ["--batch=64", "--bf16"]
    assert settings.text() == "--batch 64 --bf16"
    assert Settings().text() == "(defaults)"
    assert of(settings.text()) == settings


def test_words_of_a_shell_may_hold_blanks():
    settings = Settings.of(["--json", "my file", "--data=a b=c"])
    assert settings == {"--json": "my file", "--data": "a b=c"}
    assert settings.text() == "--data a b=c --json my file"


def test_numbers_are_whole_or_not_there():
    settings = of("--a 12 --b 12x --c")
    assert [settings.number(flag, 7) for flag in ("--a", "--b", "--c", "--e")] == [12, 7, 7, 7]


def test_what_is_laid_over_wins():
    assert of("--a 1 --b 2").plus(of("--b 3 --c")) == of("--a 1 --b 3 --c")


def test_a_difference_names_what_is_set_and_what_goes():
    assert difference(of("--a 1 --b --c 2"), of("--a 2 --c 2 --d")) == "--a 2, --d, without --b"
    assert difference(of("--a 1"), of("--a 1")) == ""


def test_settings_that_do_the_same_are_spelled_alike():
    assert spelled(of("--workers 0 --batch 32")) == spelled(Settings())
    assert spelled(of("--workers 1")) != spelled(Settings())


@pytest.mark.parametrize("flags, period", [
    ("--batch 4", 1), ("--validate-every 4 --checkpoint-every 6", 12), ("--validate-every 0", 1),
    ("--checkpoint-every 20", 20), ("--checkpoint-every 3 --workers 2", 6), ("--device cuda", 5),
    ("--device cuda --log-every 4 --workers 8", 8), ("--device cpu --log-every 4", 1)])
def test_a_period_is_the_least_common_multiple_of_what_happens_every_n_steps(flags, period):
    assert period_of(of(flags)) == period


def test_a_grid_has_every_combination_once():
    factors = [Factor("--workers", "0", "1", "2"), Factor("--bf16", "off", "on")]
    points = cross(factors, of("--side 32 --bf16"))
    assert list(points) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert len({settings.text() for settings in points.values()}) == 6
    assert points[0, 0] == of("--side 32 --workers 0")
    assert points[2, 1] == of("--side 32 --workers 2 --bf16")
    assert [factors[0].text(1), factors[1].text(1), factors[1].text(0)] == ["--workers 1", "--bf16", "without --bf16"]


def after(settings, id="x", named=None, cores=2, text=""):
    return follow(Finding(id, settings=named or {}, text=text), Report(1, usable_cores=cores), of(settings))


@pytest.mark.parametrize("key, value, before, wanted", [
    ("batch_size", "128", "", "--batch 128"), ("batch_factor", "2", "", "--batch 64"),
    ("batch_factor", "1.5", "--batch 16", "--batch 24"), ("memory_format", "channels_last", "", "--channels-last"),
    ("optimizer_step", "fused", "", "--sgd fused"), ("set_to_none", "true", "--set-to-none 0", "--set-to-none 1"),
    ("conv_bias", "false", "--conv-bias", ""), ("anomaly_mode", "false", "--anomaly-mode", ""),
    ("validation_gradients", "false", "--validate-grad", "")])
def test_what_the_report_sets_is_set(key, value, before, wanted):
    assert after(before, named={key: value}) == of(wanted)


def test_all_settings_of_a_finding_are_set_together():
    assert after("--threads 2", named={"workers": "2", "intra_op_threads": "1"}) == of("--workers 2 --threads 1")
    assert follow_settings({"workers": "1", "batch_factor": "4"}, of("--batch 16 --bf16")) == of(
        "--batch 64 --bf16 --workers 1")


@pytest.mark.parametrize("named", [{"phase_of_moon": "1"}, {"compiled": "true"}, {"memory_format": "contiguous"}, {}])
def test_what_no_flag_knows_changes_nothing(named):
    assert after("--a", named=named) == of("--a")


@pytest.mark.parametrize("id, before, wanted", [
    ("sync-data-loading", "", "--workers 1"), ("loader-bound", "--workers 2", "--workers 3"),
    ("small-batch", "--batch 16", "--batch 32"), ("small-batch", "", "--batch 64"),
    ("cpu-oversubscription", "--threads 2 --workers 1", "--threads 2 --workers 1")])
def test_without_numbers_the_least_that_a_finding_means_is_done(id, before, wanted):
    assert after(before, id) == of(wanted)


def test_cores_that_workers_use_are_not_idle():
    assert after("--workers 1", "cores-idle", cores=4) == of("--workers 1 --threads 3")
    assert after("--workers 1", "cores-idle", cores=2) == of("--workers 1")


def test_more_workers_have_no_first_batch_ready_either():
    text = "5 steps of 5 begin validation with no batch ready, which costs 37 ms"
    assert after("--workers 2", "loader-bound", text=text) == of("--workers 2")


def test_a_default_that_does_it_already_is_no_change():
    assert after("", "zero-grad-kernels") == Settings()
    assert after("--set-to-none 0", "zero-grad-kernels") == Settings()
    assert after("", "unfused-optimizer") == of("--sgd fused")
    assert after("--sgd fused", "unfused-optimizer") == of("--sgd fused")


def test_one_habit_goes_at_a_time():
    both = "--item-every-step --print-tensor"
    assert after(both, "host-sync") == of("--print-tensor")
    assert after(both, "host-sync", text="while printing") == of("--item-every-step")
    assert after("--item-every-step", "host-sync") == Settings()


def test_clipping_stays_without_its_sync():
    assert after("--clip-sync", "grad-clip-sync") == of("--clip")


@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
def test_a_habit_comes_and_goes_without_a_trace(habit):
    start = of("--side 32")
    with_it = habit.added_to(start)
    without = habit.dropped_from(with_it)
    assert habit.is_in(with_it) and not habit.is_in(start) and not habit.is_in(without)
    assert without == start.plus(habit.needs).plus(habit.off)
    assert habit.added_to(without) == with_it
