#include "steps/repeated_work.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <string>
#include <vector>

#include "rules/rule_testing.h"
#include "support/trace_text.h"

namespace stepscope::repeated_work_test {
namespace {

// Lays out ops of 10 ns one after another, on the training thread unless told
// otherwise.
class Program {
 public:
  Program& Op(const std::string& name) {
    text_ += "op " + Next(0) + " " + name + "\n";
    return *this;
  }
  Program& Ops(const std::vector<std::string>& names) {
    for (const std::string& name : names) Op(name);
    return *this;
  }
  // A pass of `nodes` autograd nodes, of which the last accumulates a gradient.
  Program& Backward(int nodes) {
    for (int i = 0; i < nodes; ++i) {
      text_ +=
          "op " + Next(1) + " kind=backward " +
          (i + 1 == nodes ? "torch::autograd::AccumulateGrad" : "MmBackward0") +
          "\n";
    }
    return *this;
  }
  Program& Upload() { return Copy("pinned", "device"); }
  Program& Read() { return Copy("device", "pageable"); }
  Program& Pause(int64_t ns) {
    now_ += ns;
    return *this;
  }

  int64_t now() const { return now_; }
  Trace Recorded() const { return TraceFromText(text_); }

 private:
  std::string Next(int thread) {
    const int64_t begin = now_;
    now_ += 10;
    return std::to_string(begin) + ".." + std::to_string(now_) +
           " thread=" + std::to_string(thread);
  }
  Program& Copy(const std::string& from, const std::string& to) {
    text_ += "copy " + std::to_string(now_) + ".." + std::to_string(now_ + 1) +
             " device=0 stream=7 bytes=8 source=" + from +
             " destination=" + to + "\n";
    return *this;
  }

  std::string text_;
  int64_t now_ = 0;
};

RepeatedWork Find(const Trace& trace) {
  return FindRepeatedWork(trace, OpTree(trace), 0);
}
RepeatedWork Find(const Program& program) { return Find(program.Recorded()); }

TEST(RepeatedWorkTest, StepsBeginWithWhatTheFirstOneBeginsWith) {
  Program program;
  program.Ops({"aten::randn", "aten::empty"});  // set-up
  for (int i = 0; i < 4; ++i) {
    program.Upload().Ops({"aten::to", "aten::to", "aten::conv2d", "aten::relu",
                          "aten::conv2d", "aten::mean"});
  }
  const RepeatedWork steps = Find(program);
  ASSERT_EQ(steps.windows.size(), 4u);
  EXPECT_EQ(steps.windows[0].host, (Span{20, 80}));
  EXPECT_EQ(steps.windows[3].host, (Span{200, 260}));
  EXPECT_EQ(steps.first, "the op \"aten::to\"");
}

TEST(RepeatedWorkTest, LayersOfOnePassAreNoSteps) {
  Program program;
  program.Upload().Op("aten::embedding");
  for (int i = 0; i < 12; ++i) {
    program.Ops({"aten::layer_norm", "aten::linear", "aten::softmax",
                 "aten::matmul", "aten::linear", "aten::add", "aten::gelu",
                 "aten::linear", "aten::add"});
  }
  program.Op("aten::linear").Read();
  EXPECT_TRUE(Find(program).windows.empty());
}

TEST(RepeatedWorkTest, WithoutAnythingNewStepsMustBeAllThatWasRecorded) {
  const auto loop = [](bool with_head) {
    Program program;
    if (with_head) program.Op("aten::randn");
    for (int i = 0; i < 5; ++i) {
      program.Op("aten::embedding");
      for (int layer = 0; layer < 4; ++layer) {
        program.Ops({"aten::linear", "aten::relu"});
      }
    }
    return Find(program).windows.size();
  };
  EXPECT_EQ(loop(false), 5u);
  EXPECT_EQ(loop(true), 0u);
}

TEST(RepeatedWorkTest, TooShortToBeAPass) {
  Program program;
  for (int i = 0; i < 9; ++i) program.Ops({"aten::linear", "aten::relu"});
  EXPECT_TRUE(Find(program).windows.empty());
}

TEST(RepeatedWorkTest, AnUpdateOfTheParametersEndsAStep) {
  // Two backward passes per update.
  Program program;
  for (int i = 0; i < 3; ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      program.Upload().Ops({"aten::to", "aten::linear", "aten::relu",
                            "aten::linear", "aten::mse_loss"});
      program.Backward(4).Op("aten::add_");  // adds up the loss
    }
    program.Op("aten::_foreach_add_");
  }
  const RepeatedWork steps = Find(program);
  ASSERT_EQ(steps.windows.size(), 3u);
  EXPECT_EQ(steps.windows[1].host.begin_ns, program.now() / 3);
}

TEST(RepeatedWorkTest, UpdatesOfOneParameterAtATimeCountAsWell) {
  Program program;
  for (int i = 0; i < 3; ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      program.Upload().Ops({"aten::to", "aten::linear", "aten::mse_loss"});
      program.Backward(4);
    }
    for (int parameter = 0; parameter < 4; ++parameter) {
      program.Op("aten::add_");
    }
  }
  EXPECT_EQ(Find(program).windows.size(), 3u);
}

TEST(RepeatedWorkTest, ALoopOfReadsInsideAStepIsAPartOfIt) {
  Program program;
  for (int i = 0; i < 3; ++i) {
    program.Upload().Op("aten::to");
    for (int layer = 0; layer < 10; ++layer) program.Op("aten::conv2d");
    for (int box = 0; box < 40; ++box) {
      program.Ops({"aten::gt", "aten::item"}).Read();
    }
    program.Op("aten::cat");
  }
  EXPECT_EQ(Find(program).windows.size(), 3u);
}

TEST(RepeatedWorkTest, ALoopOfTheOnlyTrainingStepIsNoStep) {
  const auto steps = [](bool trains) {
    Program program;
    program.Upload().Ops({"aten::to", "aten::conv2d"});
    for (int box = 0; box < 40; ++box) {
      program.Ops({"aten::gt", "aten::item", "aten::add"}).Read();
    }
    if (trains) program.Backward(5);
    return Find(program).windows.size();
  };
  EXPECT_EQ(steps(true), 0u);
  EXPECT_GT(steps(false), 0u);  // a program that only infers, box by box
}

TEST(RepeatedWorkTest, LoggingInSomeStepsDoesNotMakeThemOne) {
  Program program;
  for (int i = 0; i < 12; ++i) {
    program.Upload().Op("aten::to");
    for (int layer = 0; layer < 20; ++layer) program.Op("aten::conv2d");
    if (i % 3 == 2) program.Op("aten::histc");
  }
  EXPECT_EQ(Find(program).windows.size(), 12u);
}

TEST(RepeatedWorkTest, TheLastStepIsLeftOutIfItIsCut) {
  const auto steps = [](int in_last, int64_t pause) {
    Program program;
    for (int i = 0; i < 4; ++i) {
      program.Upload().Op("aten::to");
      for (int layer = 0; layer < (i < 3 ? 10 : in_last); ++layer) {
        program.Op("aten::conv2d");
      }
      // Getting the next batch, which the last step does not do.
      if (i < 3) program.Pause(pause);
    }
    return Find(program).windows.size();
  };
  EXPECT_EQ(steps(10, 0), 4u);
  EXPECT_EQ(steps(10, 40), 3u);
  EXPECT_EQ(steps(5, 0), 3u);
}

TEST(RepeatedWorkTest, TwoOccurrencesAreTooFew) {
  Program program;
  for (int i = 0; i < 2; ++i) {
    program.Upload().Ops({"aten::to", "aten::conv2d", "aten::relu"});
  }
  EXPECT_TRUE(Find(program).windows.empty());
}

// Steps of 1 ms: an upload and four kernels, then a pause of 0.5 ms. Without
// operators, and without launches as well unless `launched`.
std::string KernelText(int steps, bool launched) {
  std::string text;
  int correlation = 0;
  const auto at = [](int64_t us) { return std::to_string(1000 * us); };
  for (int i = 0; i < steps; ++i) {
    int64_t now = 1000 * i;
    const auto work = [&](const std::string& row) {
      const std::string id =
          launched ? " correlation=" + std::to_string(++correlation) : "";
      if (launched) {
        text += "runtime_call " + at(now) + ".." + at(now + 5) + " thread=0" +
                id + " cudaLaunchKernel\n";
      }
      text += row.substr(0, row.find(' ')) + " " + at(now + 10) + ".." +
              at(now + 100) + " device=0 stream=7" + id +
              row.substr(row.find(' ')) + "\n";
      now += 100;
    };
    work("copy bytes=80 source=pageable destination=device up");
    for (const char* name :
         {"void ns::(anonymous namespace)::gemm<float, (int)4>(float*)", "relu",
          "gemm", "mean"}) {
      work(std::string("kernel ") + name);
    }
  }
  return text;
}

TEST(RepeatedWorkTest, LaunchesServeWhereNoOpsWereRecorded) {
  const RepeatedWork steps = Find(TraceFromText(KernelText(4, true)));
  ASSERT_EQ(steps.windows.size(), 3u);  // the last one ends without a pause
  EXPECT_EQ(steps.windows[0].host, (Span{0, 1'000'000}));
  EXPECT_EQ(steps.first, "the kernel \"up\"");
}

TEST(RepeatedWorkTest, KernelsServeWhereNoLaunchesWereRecorded) {
  const RepeatedWork steps = Find(TraceFromText(KernelText(4, false)));
  ASSERT_EQ(steps.windows.size(), 3u);
  // From the first kernel after the upload to the next such kernel.
  EXPECT_EQ(steps.windows[1].host, (Span{1'110'000, 2'110'000}));
  EXPECT_EQ(steps.first, "the kernel \"gemm\"");
  EXPECT_TRUE(
      Analyze(TraceFromText(KernelText(4, false))).critical_path.empty());
}

TEST(RepeatedWorkTest, AnalysisSaysWhatIsMissingWithoutOps) {
  const Report report = Analyze(
      TraceFromText("run producer=torch.profiler\n" + KernelText(4, true)));
  EXPECT_EQ(report.steps.count, 3);
  EXPECT_NEAR(report.time_split_ms.at("unknown"), 0.5, 0.05);
  EXPECT_FALSE(report.time_split_ms.contains("host_code"));
  const Finding* finding = Find(report, "capture-incomplete");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("No operators were recorded"),
            std::string::npos);
}

}  // namespace
}  // namespace stepscope::repeated_work_test
