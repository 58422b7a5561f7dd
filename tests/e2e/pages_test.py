"""Opens TensorBoard's pages for a GPU run in headless Chromium and reads their text.

    pytest tests/e2e/pages_test.py

The run is a simulated job of two ranks, so that every view has something to show. Needs tests/e2e/requirements.txt and
chromium on the PATH; nothing is downloaded (see screenshot.py). Environment variables:
    STEPSCOPE_MAKE_LOGDIR   the make_logdir binary; default: build/default/bin's
    STEPSCOPE_PAGES         a folder for screenshots; default: a temporary folder
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
MAKE_LOGDIR = pathlib.Path(os.environ.get("STEPSCOPE_MAKE_LOGDIR") or HERE.parents[1] / "build/default/bin/make_logdir")

# Text that each page must contain.
PAGES = {
    "xprof_overview": ["Average Step Time", "sync-data-loading", "Nvidia GPU (Hopper)"],
    "xprof_input": ["26.8% of the total step time sampled is waiting for input", "Host-side analysis details"],
    "xprof_trace_viewer": ["Steps", "stepscope: input wait", "Stream #7(Kernel,MemcpyH2D)", "allocated memory (MB)",
                           "findings", "modules"],
    "xprof_memory": ["GPU0"],
    "xprof_op_stats": ["Conv2D"],
    "xprof_kernel_stats": ["sm90_xmma_fprop_implicit_gemm_f16f16 [hmma]", "ncclDevKernel_AllReduce"],
    "xprof_op_profile": ["Overall GPU FLOPS utilization is 0."],
    "xprof_hlo_stats": ["Conv2DBackpropInput"],
    "xprof_roofline": ["Peak FLOP Rate per GPU: 1070.53 TFLOP/s"],
    "pytorch_overview": ["GPU Utilization", "Est. SM Efficiency", "Est. Achieved Occupancy", "NVIDIA H200",
                         "Kernel Time using Tensor", "Step Time Breakdown"],
    "pytorch_operator": ["aten::cudnn_convolution"],
    "pytorch_kernel": ["Using Tensor Cores", "sm90_xmma_fprop_implicit_gemm_f16f16 [hmma]"],
    "pytorch_trace": ["stream 7", "GPU 0 Utilization", "GPU 0 Est. SM Efficiency", "findings"],
    "pytorch_distributed": ["nccl:all_reduce", "Synchronizing/Communication Overview"],
    "pytorch_memory": ["GPU0", "Allocated", "aten::cudnn_convolution"],
    "pytorch_module": ["BasicBlock_0", "Module View"],
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    if not MAKE_LOGDIR.exists():
        pytest.skip(f"{MAKE_LOGDIR} is not built; set STEPSCOPE_MAKE_LOGDIR")
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("no chromium on the PATH")
    folder = tmp_path_factory.mktemp("pages")
    subprocess.run([MAKE_LOGDIR, folder], check=True, stdout=subprocess.DEVNULL)
    out = pathlib.Path(os.environ.get("STEPSCOPE_PAGES") or folder / "pages")
    done = subprocess.run([sys.executable, HERE / "screenshot.py", folder / "ranks", out],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("page", PAGES)
def test_page_shows(pages, page):
    text = (pages / f"{page}.txt").read_text()
    flat = " ".join(text.split())
    missing = [words for words in PAGES[page] if " ".join(words.split()) not in flat]
    assert not missing, f"{page} lacks {missing}: {flat[:3000]}"
    assert (pages / f"{page}.png").stat().st_size > 10_000
