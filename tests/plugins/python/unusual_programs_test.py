"""Programs whose habits a recorder may not expect: operators that run inside questions about a tensor, operators that are defined
again, other profilers, forks."""

import json

# What the programs below print: how often each operator is in the trace of a profile, and what was lost.
COUNTS = """
    import json
    def counts(prof, path="trace.json"):
        prof.export_chrome_trace(path)
        counted = {}
        for event in json.load(open(path, encoding="utf-8"))["traceEvents"]:
            if event.get("cat") == "cpu_op":
                counted[event["name"]] = counted.get(event["name"], 0) + 1
        losses = json.loads(prof._texts[-1])["losses"]
        return {"ops": counted, "lost": [loss["name"] for loss in losses if not loss["name"].startswith("cupti")]}
"""


def test_a_subclass_may_run_operators_to_answer_questions_about_its_size(run_program):
    done = run_program(COUNTS + """
    import torch
    from stepscope import profile, schedule
    aten, small = torch.ops.aten, torch.randn(2, 2)
    class Lazy(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            self = torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype,
                                                       dispatch_sizes_strides_policy="sizes")
            self.inner = inner
            return self
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            own = lambda x: x.inner if isinstance(x, Lazy) else x
            if func in (aten.size.default, aten.sym_size.default, aten.stride.default, aten.sym_stride.default):
                torch.sin(small)
                return args[0].inner.shape if "size" in func._opname else args[0].inner.stride()
            if func is aten.dim.default:
                return args[0].inner.dim()
            if func in (aten.numel.default, aten.sym_numel.default):
                return args[0].inner.numel()
            if func in (aten.storage_offset.default, aten.sym_storage_offset.default):
                return 0
            if func is aten.is_contiguous.default:
                return True
            return func(*map(own, args), **{key: own(value) for key, value in (kwargs or {}).items()})
    x = Lazy(torch.randn(8, 8))
    with profile(print_report=False, schedule=schedule(wait=0, warmup=1, active=2)) as prof:
        for _ in range(3):
            for _ in range(30):
                x + 1
                torch.cos(small)
            prof.step()
    print(json.dumps(counts(prof)))
    """)
    found = json.loads(done.stdout)
    assert found["ops"]["aten::cos"] == 60
    assert found["ops"]["aten::add"] >= 60
    assert found["lost"] == []


def test_an_operator_that_is_defined_again_keeps_its_name(run_program):
    done = run_program(COUNTS + """
    import torch
    from stepscope import profile, schedule
    name = "an_operator_with_a_name_longer_than_fifteen_characters"
    x = torch.randn(4)
    with profile(print_report=False, schedule=schedule(wait=0, warmup=1, active=3)) as prof:
        for _ in range(4):
            library = torch.library.Library("mylib", "DEF")
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x.clone(), "CPU")
            getattr(torch.ops.mylib, name)(x)
            library._destroy()
            del library
            junk = ["Z" * 60 + str(i) for i in range(2000)]
            prof.step()
    print(json.dumps(counts(prof)))
    """)
    found = json.loads(done.stdout)
    assert found["ops"] == {"mylib::an_operator_with_a_name_longer_than_fifteen_characters": 3, "aten::clone": 3,
                            "aten::empty_strided": 3, "aten::copy_": 3}


def test_another_profiler_takes_the_memory_events_alone(run_program):
    done = run_program(COUNTS + """
    import torch
    from stepscope import profile, schedule
    outer = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    outer.start()
    for wait in (1, 0):
        with profile(print_report=False, profile_memory=True, schedule=schedule(wait=wait, warmup=1, active=2)) as prof:
            for _ in range(5):
                torch.cos(torch.ones(4))
                prof.step()
        print(json.dumps(counts(prof)))
    outer.stop()
    """)
    for line in done.stdout.splitlines():
        found = json.loads(line)
        assert found["ops"]["aten::cos"] == 2
        assert found["lost"] == ["memory-hook-taken"]


def test_a_stall_is_recorded_without_what_keeps_torch_profiler_from_starting(run_program):
    done = run_program("""
    import time
    import torch
    from stepscope import profile, schedule
    layer = torch.nn.Linear(64, 64)
    with profile(print_report=False, profile_memory=True, schedule=schedule()) as prof:
        for i in range(400):
            time.sleep(0.08 if i % 20 == 19 else 0.002)
            if i > 60:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                    layer(torch.randn(32, 64))
            prof.step()
    print("all steps ran")
    """)
    assert "all steps ran" in done.stdout


def test_a_child_that_is_forked_in_a_window_records_itself(run_program):
    done = run_program(COUNTS + """
    import os
    import torch
    from stepscope import profile, schedule
    def profiled(name, forks):
        with profile(name=name, print_report=False, profile_memory=True, schedule=schedule(wait=0, warmup=1, active=3)) as prof:
            for i in range(4):
                torch.cos(torch.ones(4))
                prof.step()
                if forks and i == 1:
                    if os.fork() == 0:
                        try:
                            profiled("child", False)
                        finally:
                            os._exit(0)
                    os.wait()
        print(json.dumps([name, counts(prof, name + ".json")]), flush=True)
    profiled("parent", True)
    """)
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert found["child"]["ops"]["aten::cos"] == found["parent"]["ops"]["aten::cos"] == 3
    assert found["child"]["lost"] == found["parent"]["lost"] == []


def test_a_profile_that_another_thread_stops_records_no_more(run_program):
    done = run_program("""
    import os, signal, threading
    from stepscope import profile
    prof = profile(on_signal=signal.SIGUSR2, on_file="now", print_report=False)
    prof.start()
    prof.step()
    thread = threading.Thread(target=prof.stop)
    thread.start()
    thread.join()
    os.kill(os.getpid(), signal.SIGUSR2)
    open("now", "w").close()
    for _ in range(10):
        prof.step()
    print(len(prof.reports), os.path.exists("now"))
    """)
    assert done.stdout == "0 True\n"
    assert done.stderr == ""
