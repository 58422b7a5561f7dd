"""Tests that `profile` and what takes its arguments refuse wrong ones at the call."""

import enum
import pathlib
import signal

import pytest

from stepscope import profile, schedule
from stepscope._training import ProfiledTraining


class Activity(enum.Enum):
    """Like torch.profiler.ProfilerActivity."""
    CPU = 0
    CUDA = 2


@pytest.mark.parametrize(("argument", "value", "error", "says"), [
    ("log_dir", 123, TypeError, "log_dir is 123, but must be a path"),
    ("log_dir", None, TypeError, "log_dir is None, but must be a path"),
    ("log_dir", b"runs", TypeError, "log_dir is b'runs', but must be a path"),
    ("name", 5, TypeError, "name is 5, but must be a str"),
    ("only_inside", True, TypeError, "only_inside is True, but must be a str"),
    ("record_shapes", "yes", TypeError, "record_shapes is 'yes', but must be True or False"),
    ("profile_memory", 2, TypeError, "profile_memory is 2, but must be True or False"),
    ("with_stack", 1.5, TypeError, "with_stack is 1.5, but must be True or False"),
    ("with_flops", [], TypeError, "with_flops is"), ("with_modules", "", TypeError, "with_modules is"),
    ("print_report", "no", TypeError, "print_report is"), ("write_step_times", -1, TypeError, "write_step_times is"),
    ("on_trace_ready", 5, TypeError, "on_trace_ready is 5, but must be a function"),
    ("activities", "CPU", TypeError, "activities is 'CPU', but must be a list of"),
    ("activities", 5, TypeError, "activities is 5"), ("activities", ["cpu"], TypeError, "activities is"),
    ("activities", [], ValueError, r"activities is \[\], but must be a list with at least one"),
    ("every", "3", TypeError, "every is '3', but must be a whole number of at least 6"),
    ("every", 100.0, TypeError, "every is 100.0"), ("every", 5, ValueError, "every is 5"),
    ("on_signal", "USR2", ValueError, "on_signal is 'USR2', but must be a signal that a program can handle"),
    ("on_signal", signal.SIGKILL, ValueError, "must be a signal that a program can handle"),
    ("on_file", 5, TypeError, "on_file is 5, but must be a path"),
    ("max_buffer_bytes", 1e9, TypeError, "max_buffer_bytes is 1000000000.0, but must be a whole number"),
    ("max_buffer_bytes", 1000, ValueError, "max_buffer_bytes is 1000, but must be a whole number of at least 65536"),
    ("stop_timeout", "10", TypeError, "stop_timeout is '10', but must be a number of seconds"),
    ("rank_timeout", None, TypeError, "rank_timeout is None"),
    ("signal_grace", -1, ValueError, "signal_grace is -1, but must be a number of seconds that is not negative"),
    ("status_every", float("nan"), ValueError, "status_every is nan"),
    ("stop_timeout", float("inf"), ValueError, "stop_timeout is inf"),
    ("schedule", 3, ValueError, "schedule is 3, but must be"),
    ("on_report", 5, TypeError, "unexpected keyword argument 'on_report'")])
def test_a_wrong_argument_is_refused_at_the_call(argument, value, error, says):
    with pytest.raises(error, match=says):
        profile(**{argument: value})
    with pytest.raises(error, match=says):
        ProfiledTraining(**{argument: value})


@pytest.mark.parametrize("wrong", [{"wait": "3"}, {"active": 2.5}, {"active": 0}, {"repeat": True}])
def test_a_wrong_schedule_is_refused_at_the_call(wrong):
    (name, value), = wrong.items()
    with pytest.raises(ValueError, match=f"schedule: {name} is {value!r}, but must be a whole number"):
        schedule(**wrong)


@pytest.mark.parametrize("right", [
    {"log_dir": pathlib.Path("runs/x"), "name": "x", "every": 6}, {"activities": [Activity.CPU, Activity.CUDA]},
    {"activities": {"CPU"}}, {"on_signal": signal.SIGUSR2, "on_file": pathlib.Path("go")},
    {"record_shapes": 1, "profile_memory": 0, "with_stack": None}, {"stop_timeout": 0, "signal_grace": 2.5}, {"max_buffer_bytes": 1 << 16}, {"experimental_config": None}])
def test_right_arguments_are_taken(right):
    profile(**right)
