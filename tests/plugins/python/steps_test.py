"""Tests how `stepscope run` finds steps, with a recorder and an optimizer that only note calls."""

import gc
import sys
import types

import pytest

import stepscope
from stepscope import StepscopeError

WANTED = '{"out": "runs/x", "name": "x", "skip": 10, "steps": 4, "pid": 0, "started": 0}'


@pytest.fixture
def arm(monkeypatch):
    monkeypatch.setenv("STEPSCOPE_RUN", WANTED)
    from stepscope import _arm
    return _arm


class Notes:
    """Replaces stepscope.profile."""
    made: list = []
    fails = False
    keeps = True
    job_report = None

    def __init__(self, schedule, **options):
        self.schedule, self.options, self.steps, self.step_num, self.stopped = schedule, options, 0, 0, False
        Notes.made.append(self)

    def start(self):
        if Notes.fails:
            raise OSError("disk full")

    def step(self):
        self.steps += 1

    def stop(self):
        self.stopped = True

    def _last(self, what):
        if what == "trace" and not Notes.keeps:
            raise StepscopeError("the trace of this window was not kept")
        return {"trace": "runs/x/stepscope/x/c0/trace/rank0.json.gz", "text": "the whole report\n"}[what]

    @property
    def report(self):
        if self.steps <= self.schedule["wait"] + self.schedule["warmup"]:
            raise StepscopeError("no window has been recorded")
        return stepscope.Report.from_json('{"version": 2, "steps": {"count": 4, "mean_ms": 12.34}}')


@pytest.fixture
def recording(arm, monkeypatch):
    monkeypatch.setattr(stepscope, "profile", Notes, raising=False)
    monkeypatch.setattr(stepscope, "schedule", lambda **numbers: numbers, raising=False)
    Notes.made, Notes.fails, Notes.keeps = [], False, True
    new = arm.Recording(arm.json.loads(WANTED))
    monkeypatch.setattr(arm, "_recording", new)
    monkeypatch.setattr(arm, "_at_exit", lambda end: None)
    return new


class Owner:
    pass


def steps_of(counter, turns):
    """Returns T for each of the owners in `turns` whose step is a new step of the program, and . for the others."""
    return "".join("T" if counter.count(owner) else "." for owner in turns)


def test_owners_that_take_turns_make_one_step_each_time(arm):
    a, b = Owner(), Owner()
    assert steps_of(arm.StepCounter(), [a, b] * 4) == "T." * 4
    assert steps_of(arm.StepCounter(), [a, a, a, b] * 3) == "TTT." * 3
    assert steps_of(arm.StepCounter(), [a, b, b, b] * 4) == ".".join(["T", "TT"]) + "T..." * 3
    assert steps_of(arm.StepCounter(), [a, b, a, b, b, b, a]) == "T.T...T"


def test_an_owner_that_replaces_another_goes_on_counting(arm):
    counter = arm.StepCounter()
    folds = []
    for _ in range(3):  # all are kept, as in a list of trained models
        folds.append(Owner())
        counter.made(folds[-1])
        assert steps_of(counter, [folds[-1]] * 12) == "T" * 12
    assert counter.steps == 36


def test_an_owner_that_follows_one_that_is_gone_goes_on_counting(arm):
    counter = arm.StepCounter()
    for _ in range(3):
        one = Owner()
        assert steps_of(counter, [one] * 2) == "TT"
        del one
        gc.collect()
    assert counter.steps == 6


def test_an_owner_that_existed_from_the_start_takes_over_with_its_second_step(arm):
    a, b = Owner(), Owner()
    assert steps_of(arm.StepCounter(), [a] * 3 + [b] * 4) == "TTT.TTT"


def test_an_owner_that_returns_between_new_ones_counts_and_they_do_not(arm):
    counter, outer = arm.StepCounter(), Owner()
    counter.made(outer)
    turns = []
    for _ in range(4):
        inner = Owner()
        counter.made(inner)
        turns.append(steps_of(counter, [inner] * 3 + [outer]))
    assert turns[2:] == ["...T"] * 2


def test_an_owner_may_go_on_long_after_the_one_that_counted(arm):
    a, b = Owner(), Owner()
    patience = arm.StepCounter.PATIENCE
    assert steps_of(arm.StepCounter(), [a, b, a] + [b] * (patience + 3)) == "T.T" + "." * patience + "TTT"


def test_the_profile_opens_at_the_first_step_and_has_the_numbers_of_the_program(recording):
    optimizer = Owner()
    for _ in range(20):
        recording.optimizer_stepped(optimizer)
    [profile] = Notes.made
    assert profile.schedule == {"wait": 7, "warmup": 3, "active": 4}  # records steps 10 to 13
    assert (profile.step_num, profile.steps) == (0, 20)
    assert (profile.options["log_dir"], profile.options["name"], profile.options["print_report"]) == ("runs/x", "x", False)
    recording.end()
    assert profile.stopped
    assert recording.summary() == ["recorded 4 steps of 12.3 ms; found nothing to improve",
                                   "the report: stepscope analyze runs/x"]


def test_a_report_that_could_not_be_kept_is_printed(recording, capsys):
    Notes.keeps = False
    optimizer = Owner()
    for _ in range(20):
        recording.optimizer_stepped(optimizer)
    recording.end()
    assert capsys.readouterr().err.splitlines() == [
        "stepscope: recorded 4 steps of 12.3 ms; found nothing to improve",
        "stepscope: no trace could be kept in runs/x; choose another folder with stepscope run --out. The report:",
        "the whole report"]


def test_two_optimizers_make_one_step(recording):
    a, b = Owner(), Owner()
    for _ in range(20):
        recording.optimizer_stepped(a)
        recording.optimizer_stepped(b)
    assert Notes.made[0].steps == 20


@pytest.mark.parametrize(("skip", "wait", "warmup"), [(0, 1, 0), (1, 1, 0), (2, 1, 1), (100, 97, 3)])
def test_few_skipped_steps_leave_less_warm_up(arm, recording, skip, wait, warmup):
    recording.first = arm.Recording({**arm.json.loads(WANTED), "skip": skip}).first
    recording.optimizer_stepped(Owner())
    assert Notes.made[0].schedule == {"wait": wait, "warmup": warmup, "active": 4}


def test_without_an_optimizer_batches_are_steps(recording):
    loader = Owner()
    for _ in range(7):
        recording.batch_arrived(loader)
    assert not Notes.made
    for _ in range(13):  # the eighth batch ends step 6; warm-up starts in step 7
        recording.batch_arrived(loader)
    [profile] = Notes.made
    assert profile.schedule == {"wait": 0, "warmup": 3, "active": 4}
    assert (profile.step_num, profile.steps) == (7, 12)  # records steps 10 to 13


def test_batches_do_not_count_once_there_is_an_optimizer(recording):
    recording.has_optimizer = True
    for _ in range(20):
        recording.batch_arrived(recording)
    assert not Notes.made


def test_an_optimizer_that_comes_after_an_evaluation_is_recorded(recording):
    for _ in range(30):
        recording.batch_arrived(recording)
    optimizer = Owner()
    for _ in range(20):
        recording.optimizer_stepped(optimizer)
    evaluation, training = Notes.made
    assert evaluation.stopped and not training.stopped
    assert training.steps == 20


def test_too_few_steps_are_told(recording):
    optimizer = Owner()
    for _ in range(5):
        recording.optimizer_stepped(optimizer)
    recording.end()
    assert recording.summary() == ["nothing was recorded: the program made only 5 steps, but recording starts after step 10 "
                                   "(change it with stepscope run --skip)"]


def test_an_error_ends_the_recording_and_nothing_else(arm, recording, capsys):
    Notes.fails = True
    step = arm._guarded(recording.optimizer_stepped)
    optimizer = Owner()
    for _ in range(3):
        step(optimizer)
    assert capsys.readouterr().err == "stepscope: the recording ended: OSError: disk full\n"
    assert len(Notes.made) == 1
    assert recording.summary() == []


def test_a_forked_child_says_and_records_nothing(recording, capsys):
    optimizer = Owner()
    recording.optimizer_stepped(optimizer)
    recording.forked()
    recording.optimizer_stepped(optimizer)
    recording.end()
    assert Notes.made[0].steps == 1 and not Notes.made[0].stopped
    assert capsys.readouterr().err == ""


def test_a_child_that_is_forked_before_training_records_itself(recording):
    recording.forked()
    recording.optimizer_stepped(Owner())
    assert len(Notes.made) == 1


class Optimizer:
    """Like torch.optim.Optimizer: a class's step is replaced when its first object is made."""

    def __init__(self):
        self._patch_step_function()

    def _patch_step_function(self):
        pass

    def step(self):
        return "stepped"


class Inner(Optimizer):
    def step(self):
        return "inner"


class Derived(Inner):
    def step(self):
        return super().step() + ", derived"


class Wrapper(Optimizer):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def step(self):
        return self.inner.step()


@pytest.fixture
def counted(arm, monkeypatch):
    """Returns what counts as a step of the classes above."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(compiler=types.SimpleNamespace(disable=lambda hook: hook)))
    seen = []
    recording = types.SimpleNamespace(optimizer_stepped=seen.append,
                                      optimizer_made=lambda optimizer: seen.append(("made", optimizer)))
    monkeypatch.setattr(arm, "_recording", recording)
    for kind in (Optimizer, Inner, Derived, Wrapper):  # the hook changes these classes
        for name, value in list(vars(kind).items()):
            if callable(value):
                monkeypatch.setattr(kind, name, value)
    arm.install_optimizer(types.SimpleNamespace(Optimizer=Optimizer))
    return seen


def test_every_optimizer_is_counted_after_its_step(counted):
    optimizer = Inner()
    assert optimizer.step() == "inner"
    assert counted == [("made", optimizer), optimizer]


def test_a_step_within_a_step_counts_once(counted):
    Inner()
    derived = Derived()
    wrapper = Wrapper(Inner())
    counted.clear()
    assert derived.step() == "inner, derived"
    wrapper.step()
    assert counted == [derived, wrapper]


def test_a_step_that_raises_is_no_step_and_raises_the_same(counted, monkeypatch):
    def step(self):
        raise ValueError("inf")
    monkeypatch.setattr(Inner, "step", step)
    optimizer = Inner()
    counted.clear()
    with pytest.raises(ValueError, match="inf"):
        optimizer.step()
    assert counted == []


def test_batches_of_a_loader_are_counted_by_loader_and_not_beside_an_optimizer(arm, monkeypatch):
    seen = []
    recording = types.SimpleNamespace(batch_arrived=seen.append, has_optimizer=False, off=False)
    monkeypatch.setattr(arm, "_recording", recording)

    class Iterator:
        def __init__(self, sampler):
            self._index_sampler, self.left = sampler, 2

        def __next__(self):
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return "batch"

        def __iter__(self):
            return self

    arm.install_loader(types.SimpleNamespace(_BaseDataLoaderIter=Iterator))
    assert list(Iterator("a")) + list(Iterator("a")) == ["batch"] * 4
    recording.has_optimizer = True
    list(Iterator("b"))
    assert seen == ["a"] * 4
