"""Compares what stepscope reads from names of compiled kernels with what the installed torch puts into them.

    STEPSCOPE_PYTHON=... pytest tests/plugins/python/compiled_names_test.py

torch's own functions generate the names, in this test and in a program that torch.compile compiles for the CPU.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
STEPSCOPE = pathlib.Path(os.environ.get("STEPSCOPE_BIN") or ROOT / "build/default/bin") / "stepscope"

# Prints [[name of the kernel, operators in it], ...], and the operators that Inductor knows.
NAMES = """
    import json
    import random
    from types import SimpleNamespace

    import torch
    from torch._inductor import decomposition, lowering
    from torch._inductor.utils import get_fused_kernel_name
    from torch._inductor.wrapper_benchmark import _kernel_category_choices


    class Node(SimpleNamespace):
        __hash__ = object.__hash__


    def kernel(operators, category, number):
        origins = torch.utils._ordered_set.OrderedSet(
            Node(op="call_function", name="node", meta={"original_aten": operator}) for operator in operators)
        nodes = [SimpleNamespace(node=SimpleNamespace(origins=origins))]
        fused = get_fused_kernel_name(nodes, "original_aten")
        # As define_kernel() of torch/_inductor/codegen/triton.py puts it together; it needs a device.
        name = "_".join(["triton", category[:3], fused, str(number)])
        return [name, sorted({operator._overloadpacket.__name__ for operator in operators})]


    known = {operator._overloadpacket.__name__: operator
             for table in (lowering.lowerings, decomposition.decompositions) for operator in table
             if isinstance(operator, torch._ops.OpOverload) and operator.namespace in ("aten", "prims")}
    names = sorted(known)
    kernels = [kernel([known[name]], "pointwise", 0) for name in names]
    random.seed(1)
    for number in range(400):
        some = random.sample(names, random.randrange(2, 9))
        kernels.append(kernel([known[name] for name in some], random.choice(_kernel_category_choices), number))
    aten = torch.ops.aten
    for some in ([aten.add.Tensor, aten.relu.default], [aten._softmax.default, aten._to_copy.default],
                 [aten.native_layer_norm.default, aten.native_layer_norm_backward.default, aten.add.Tensor],
                 [aten._native_batch_norm_legit_functional.default, aten.relu.default, aten.add.Tensor],
                 [aten.convolution.default, aten.native_batch_norm.default, aten.max_pool2d_with_indices.default],
                 [aten._log_softmax.default, aten.nll_loss_forward.default, aten.view.default],
                 [aten.embedding.default, aten.arange.start, aten.add.Tensor, aten.native_layer_norm.default],
                 [aten._log_softmax_backward_data.default, aten.nll_loss_backward.default],
                 [aten.threshold_backward.default, aten.native_batch_norm_backward.default],
                 [aten._scaled_dot_product_flash_attention.default, aten.clone.default, aten.transpose.int],
                 [aten.gelu.default, aten.gelu_backward.default, aten.mul.Tensor], [aten.copy_.default, aten.add.Tensor],
                 [aten._unsafe_view.default, aten.mul.Tensor, aten.silu.default], [aten.masked_fill.Scalar, aten.where.self],
                 [aten.sum.dim_IntList, aten.mean.dim, aten.var_mean.correction, aten.rsqrt.default]):
        kernels.append(kernel(some, "reduction", 7) + ["exact"])
    print(json.dumps({"kernels": kernels, "known": names}))
"""


def fused_ops(folder, names):
    """Returns the operators that `stepscope top` finds in each name."""
    events = [{"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10 * index, "dur": 5,
               "args": {"device": 0, "stream": 7, "correlation": index}} for index, name in enumerate(names)]
    path = folder / "names.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    printed = subprocess.run([STEPSCOPE, "top", "--limit", "0", "--table", "kernels", "--format", "json", str(path)],
                             capture_output=True, text=True, check=True, timeout=60).stdout
    return {row["name"]: row.get("fused_ops") for row in json.loads(printed)["kernels"]["rows"]}


def test_names_of_torch_are_read(run_program, tmp_path):
    made = json.loads(run_program(NAMES).stdout)
    kernels = made["kernels"]
    known = set(made["known"])
    assert len(known) > 500 and len(kernels) > 900
    found = fused_ops(tmp_path, [kernel[0] for kernel in kernels])
    exact = 0
    for name, operators, *more in kernels:
        read = found[name]
        assert read is not None, name
        # Nothing is lost: the parts joined give the name again.
        assert "_".join(read) == "_".join(operators), name
        if len(operators) == 1 or more:
            assert read == operators, name
        # Two operators may be read as one longer operator, but never the other way round.
        assert len(read) <= len(operators), (name, read)
        for operator in set(read) - set(operators):
            assert operator.rstrip("_") in known or operator in known, (name, read)
        exact += read == operators
    assert exact >= 0.95 * len(kernels), f"{exact} of {len(kernels)}"


def test_other_configurations(run_program, tmp_path):
    made = json.loads(run_program("""
        import json
        from types import SimpleNamespace

        import torch
        from torch._inductor.utils import get_fused_kernel_name

        class Node(SimpleNamespace):
            __hash__ = object.__hash__

        def node(name, function):
            return Node(op="call_function", name=name, meta={"source_fn_stack": [("", function)]})

        origins = torch.utils._ordered_set.OrderedSet(
            [node("relu", torch.relu), node("add", torch.add), node("relu_1", torch.relu), node("batch_norm_3", torch.batch_norm)])
        nodes = [SimpleNamespace(node=SimpleNamespace(origins=origins))]
        print(json.dumps(["_".join(["triton", "poi", get_fused_kernel_name(nodes, how), "12"])
                          for how in ("torch", "inductor_node")]))
    """).stdout)
    found = fused_ops(tmp_path, made)
    assert found[made[0]] == ["add", "batch_norm", "relu"], made[0]
    assert found[made[1]] == ["relu", "add", "batch_norm"], made[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_kernels_of_a_compiled_program(run_program, tmp_path):
    """Tests the C++ kernels that torch.compile generates from a small model, in a torch.profiler trace."""
    run_program("""
        import torch
        from torch._inductor import config

        config.cpp.enable_kernel_profile = True
        config.compile_threads = 1

        @torch.compile
        def model(x, weight, bias):
            return torch.softmax(torch.relu(torch.nn.functional.layer_norm(x, (64,), weight, bias) + 1), dim=-1)

        tensors = [torch.randn(32, 64), torch.randn(64), torch.randn(64)]
        model(*tensors)
        with torch.profiler.profile() as profile:
            model(*tensors)
        profile.export_chrome_trace("compiled.pt.trace.json")
    """, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    printed = subprocess.run([STEPSCOPE, "top", "--table", "ops", "--format", "json", str(tmp_path / "compiled.pt.trace.json")],
                             capture_output=True, text=True, check=True, timeout=60).stdout
    compiled = [row for row in json.loads(printed)["ops"]["rows"] if "fused_ops" in row]
    assert compiled, printed
    operators = {operator for row in compiled for operator in row["fused_ops"]}
    assert {"_softmax", "native_layer_norm", "relu"} <= operators, operators
    assert all("cpp_fused" in row["name"] for row in compiled), compiled
