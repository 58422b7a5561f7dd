#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/compare.h>

#include <string>

#include "support/trace_text.h"

namespace stepscope::time_by_place_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Four steps of 10 ms: two convolutions in a block, called from one line; the
// backward pass of the first one; and an operator of the program. With `gpu`,
// each convolution launches a kernel of 1 ms.
std::string Training(bool gpu, bool modules, bool stacks) {
  std::string text;
  int correlation = 0;
  for (int64_t step = 0; step < 4; ++step) {
    const auto at = [&](int64_t begin_us, int64_t end_us, int thread = 0) {
      return std::to_string((step * 10000 + begin_us) * 1000) + ".." +
             std::to_string((step * 10000 + end_us) * 1000) +
             " thread=" + std::to_string(thread) + " ";
    };
    const auto stack = [&](const char* line) {
      return stacks ? "stack=(\"torch/nn/conv.py(1): forward\",\"" +
                          std::string(line) + "\") "
                    : std::string();
    };
    const std::string number = std::to_string(step);
    text += "step " + at(0, 10000) + "number=" + number + "\n";
    if (modules) {
      text += "range " + at(1000, 5000) + "kind=module detail=Block block\n";
      text += "range " + at(1000, 3000) + "kind=module detail=Conv2d block.a\n";
      text += "range " + at(3000, 5000) + "kind=module detail=Conv2d block.b\n";
    }
    text += "op " + at(1000, 3000) + "sequence=" + std::to_string(2 * step) +
            " " + stack("net.py(7): forward") + "aten::conv2d\n";
    text += "op " + at(1500, 2500) + "aten::mkldnn_convolution\n";
    text +=
        "op " + at(3000, 5000) + stack("net.py(8): forward") + "aten::conv2d\n";
    text +=
        "op " + at(5000, 6000) + stack("train.py(31): step") + "aten::mul\n";
    text +=
        "op " + at(6000, 9000) +
        "kind=backward forward_thread=0 sequence=" + std::to_string(2 * step) +
        " ConvolutionBackward0\n";
    text += "op " + at(6000, 8000) + stack("train.py(32): step") +
            "aten::convolution_backward\n";
    if (!gpu) continue;
    for (int64_t launch : {1600, 3100}) {
      const std::string id = " correlation=" + std::to_string(++correlation);
      text += "runtime_call " + at(launch, launch + 10) + id +
              " cudaLaunchKernel\n";
      const int64_t begin = (step * 10000 + launch + 20) * 1000;
      text += "kernel " + std::to_string(begin) + ".." +
              std::to_string(begin + 1'000'000) + id + " stream=7 conv\n";
    }
  }
  return text;
}

Report ReportOn(bool gpu, bool modules = true, bool stacks = true) {
  return Analyze(TraceFromText(Training(gpu, modules, stacks)));
}

const PlaceTime* Named(const std::vector<PlaceTime>& places,
                       const std::string& name) {
  for (const PlaceTime& place : places) {
    if (place.name == name) return &place;
  }
  return nullptr;
}

TEST(TimeByPlaceTest, SumsModulesWithTheirBackwardPass) {
  const Report report = ReportOn(false);
  ASSERT_EQ(report.modules.size(), 3u);
  EXPECT_EQ(report.modules[0].name, "block.a");
  EXPECT_EQ(report.modules[0].class_name, "Conv2d");
  // 2 ms forward and 3 ms backward.
  EXPECT_DOUBLE_EQ(report.modules[0].self_ms_per_step, 5);
  EXPECT_DOUBLE_EQ(report.modules[0].calls_per_step, 1);
  const PlaceTime* block = Named(report.modules, "block");
  ASSERT_NE(block, nullptr);
  EXPECT_DOUBLE_EQ(block->self_ms_per_step, 0);
  EXPECT_DOUBLE_EQ(block->total_ms_per_step, 7);
}

TEST(TimeByPlaceTest, CountsDeviceWorkToTheModuleThatLaunchesIt) {
  const Report report = ReportOn(true);
  const PlaceTime* first = Named(report.modules, "block.a");
  ASSERT_NE(first, nullptr);
  EXPECT_DOUBLE_EQ(first->gpu_self_ms_per_step, 1);
  EXPECT_DOUBLE_EQ(Named(report.modules, "block")->gpu_total_ms_per_step, 2);
  EXPECT_DOUBLE_EQ(
      Named(report.lines, "net.py:7 in forward")->gpu_self_ms_per_step, 1);
}

// During a replay, no module runs. The graph's kernels count for the modules
// and the operators of the capture.
TEST(TimeByPlaceTest, CountsGraphKernelsToTheModuleThatWasCaptured) {
  std::string text;
  for (int64_t step = 0; step < 4; ++step) {
    const auto at = [&](int64_t begin_us, int64_t end_us) {
      return std::to_string((step * 10000 + begin_us) * 1000) + ".." +
             std::to_string((step * 10000 + end_us) * 1000) + " ";
    };
    const std::string id = "correlation=" + std::to_string(step + 1) + " ";
    text += "step " + at(0, 10000) + "thread=0 number=" + std::to_string(step) +
            "\n";
    text += "range " + at(1, 900) + "thread=0 kind=module detail=Net net\n";
    text += "op " + at(10, 800) + "thread=0 replay\n";
    text +=
        "runtime_call " + at(20, 30) + "thread=0 " + id + "cudaGraphLaunch\n";
    text += "kernel " + at(1000, 4000) +
            "device=0 stream=7 graph=1 graph_node=1 " + id +
            "captured_ops=(\"aten::addmm\") captured_module=net.fc gemm\n";
    text += "kernel " + at(4000, 5000) +
            "device=0 stream=7 graph=1 graph_node=2 " + id +
            "captured_ops=(\"aten::relu\") captured_module=net.fc.act relu\n";
    text += "kernel " + at(5000, 5500) +
            "device=0 stream=7 graph=1 graph_node=3 " + id + "unknown\n";
  }
  const Report report = Analyze(TraceFromText(text));
  const PlaceTime* fc = Named(report.modules, "net.fc");
  ASSERT_NE(fc, nullptr);
  EXPECT_NEAR(fc->gpu_self_ms_per_step, 3, 1e-9);
  EXPECT_NEAR(fc->gpu_total_ms_per_step, 4, 1e-9);
  EXPECT_EQ(fc->calls_per_step, 0);
  const PlaceTime* net = Named(report.modules, "net");
  ASSERT_NE(net, nullptr);
  EXPECT_NEAR(net->gpu_self_ms_per_step, 0.5, 1e-9);
  EXPECT_NEAR(net->gpu_total_ms_per_step, 4.5, 1e-9);
  double addmm = 0;
  double replay = 0;
  for (const TopOp& op : report.top_ops) {
    if (op.name == "aten::addmm") addmm = op.gpu_self_ms_per_step;
    if (op.name == "replay") replay = op.gpu_self_ms_per_step;
  }
  EXPECT_NEAR(addmm, 3, 1e-9);
  EXPECT_NEAR(replay, 0.5, 1e-9);
}

TEST(TimeByPlaceTest, CountsTheBackwardPassToTheLineOfTheForwardPass) {
  const Report report = ReportOn(false);
  ASSERT_EQ(report.lines.size(), 3u);
  EXPECT_EQ(report.lines[0].name, "net.py:7 in forward");
  EXPECT_DOUBLE_EQ(report.lines[0].self_ms_per_step, 5);
  EXPECT_DOUBLE_EQ(report.lines[0].calls_per_step, 1);
  EXPECT_DOUBLE_EQ(Named(report.lines, "train.py:31 in step")->self_ms_per_step,
                   1);
}

// torch.profiler records Python frames instead of stacks of operators. 0.8 ms
// of each step are the program's own code in augment().
TEST(TimeByPlaceTest, FindsLinesByPythonFrames) {
  std::string text = Training(false, false, false);
  for (int64_t step = 0; step < 4; ++step) {
    const auto frame = [&](int64_t begin_us, int64_t end_us, const char* name) {
      text += "python_frame " +
              std::to_string((step * 10000 + begin_us) * 1000) + ".." +
              std::to_string((step * 10000 + end_us) * 1000) + " thread=0 " +
              name + "\n";
    };
    frame(0, 10000, "/home/me/train.py(31): step");
    frame(100, 900, "/home/me/data/images.py(5): augment");
    frame(950, 3000, "torch/nn/modules/module.py(1): _call_impl");
    frame(960, 3000, "/home/me/net.py(7): forward");
    frame(970, 3000, "torch/nn/modules/conv.py(9): forward");
    frame(6000, 9000, "torch/autograd/__init__.py(3): backward");
  }
  const Report report = Analyze(TraceFromText(text));
  ASSERT_EQ(report.lines.size(), 2u);
  EXPECT_EQ(report.lines[0].name, "net.py:7 in forward");
  EXPECT_DOUBLE_EQ(report.lines[0].self_ms_per_step, 5);
  EXPECT_DOUBLE_EQ(report.lines[0].calls_per_step, 1);
  EXPECT_EQ(report.lines[1].name, "train.py:31 in step");
  EXPECT_DOUBLE_EQ(report.lines[1].self_ms_per_step, 3);
  double augmenting = 0;
  for (const PathPart& part : report.critical_path) {
    if (part.name == "data/images.py:5 in augment") {
      EXPECT_EQ(part.category, "host_code");
      augmenting = part.ms_per_step;
    }
  }
  EXPECT_NEAR(augmenting, 0.8, 0.25);
}

TEST(TimeByPlaceTest, TheReportHasTheTablesOnlyWhereThereAreSuchData) {
  const auto text = [](bool modules, bool stacks) {
    return ToText(ReportOn(false, modules, stacks), TextOptions());
  };
  EXPECT_THAT(text(true, false), HasSubstr("modules by time, per step"));
  EXPECT_THAT(text(true, false), Not(HasSubstr("source lines by time")));
  EXPECT_THAT(text(false, true), HasSubstr("source lines by time, per step"));
  EXPECT_THAT(text(false, true), HasSubstr("  net.py:7 in forward"));
  EXPECT_THAT(text(false, true), Not(HasSubstr("modules by time")));
  EXPECT_THAT(text(false, false), Not(HasSubstr("by time, per step")));
  EXPECT_THAT(ToMarkdown(ReportOn(true)), HasSubstr("block.a (Conv2d)"));
}

TEST(TimeByPlaceTest, ComparisonsListModulesThatChanged) {
  const auto run = [](bool modules, int64_t longer_us) {
    std::string text;
    for (int64_t step = 0; step < 4; ++step) {
      const auto at = [&](int64_t begin_us, int64_t end_us) {
        return std::to_string((step * 20000 + begin_us) * 1000) + ".." +
               std::to_string((step * 20000 + end_us) * 1000) + " thread=0 ";
      };
      text += "step " + at(0, 20000) + "number=" + std::to_string(step) + "\n";
      if (modules) {
        text += "range " + at(0, 5000) + "kind=module detail=Conv2d a\n";
        text += "range " + at(5000, 8000 + longer_us) +
                "kind=module detail=Conv2d b\n";
      }
      text += "op " + at(0, 5000) + "aten::conv2d\n";
      text += "op " + at(5000, 8000 + longer_us) + "aten::conv2d\n";
    }
    return TraceFromText(text);
  };
  const Comparison changed = Compare(run(true, 4000), run(true, 0));
  ASSERT_EQ(changed.modules.size(), 1u);
  EXPECT_EQ(changed.modules[0].name, "b");
  EXPECT_NEAR(changed.modules[0].before_ms, 7, 0.01);
  EXPECT_NEAR(changed.modules[0].after_ms, 3, 0.01);
  EXPECT_THAT(ToText(changed), HasSubstr("by module (self time)"));
  // The first run lacks the ranges of some modules.
  EXPECT_TRUE(Compare(run(false, 4000), run(true, 0)).modules.empty());
}

}  // namespace
}  // namespace stepscope::time_by_place_test
