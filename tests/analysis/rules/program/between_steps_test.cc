#include <functional>
#include <string>

#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::between_steps_test {
namespace {

constexpr char kRule[] = "work-between-steps";
constexpr char kStep[] = "kind=optimizer Optimizer.step#SGD.step";
using Body = std::function<void(CpuText&, int)>;

void Model(CpuText& text, const char* batch = "float[32,256]") {
  text.Op("inputs=(" + std::string(batch) +
              ",float[512,256],float[512]) aten::linear",
          4'000);
}

void Backward(CpuText& text) {
  text.Op("kind=backward AddmmBackward0", 5'000);
  for (const char* size : {"512,256", "512", "10,512", "10"}) {
    text.Op("kind=backward inputs=(float[" + std::string(size) +
                "]) torch::autograd::AccumulateGrad",
            5);
  }
}

void Update(CpuText& text, const std::string& range = kStep) {
  text.Begin();
  text.Op("aten::_fused_sgd_", 480);
  if (!range.empty()) text.EndRange(range);
}

// Steps of 9.5 ms. `after` runs after the optimizer's step.
Report After(const Body& after, const std::string& range = kStep) {
  CpuText text;
  for (int i = 0; i < 8; ++i) {
    Model(text);
    Backward(text);
    Update(text, range);
    after(text, i);
    text.EndStep();
  }
  return text.Analyzed();
}

void Read(CpuText& text) {
  text.Nested("aten::item", 2, "aten::_local_scalar_dense", 1);
}

Report AfterIt(const std::string& op, int64_t us) {
  return After([&](CpuText& text, int) {
    text.Op(op, us);
    Read(text);
  });
}

TEST(WorkBetweenStepsTest, StatisticsInEveryStep) {
  const Report report = After([](CpuText& text, int) {
    for (int k = 0; k < 4; ++k) text.Op("aten::histc", 500, 10);
    Read(text);
  });
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2.03, 0.001);
  EXPECT_EQ(finding->where, "aten::histc");
  EXPECT_NE(finding->evidence.find("2.00 ms aten::histc (4 calls) per step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("every N steps"), std::string::npos);
  EXPECT_GT(finding->severity, FindingSeverity::kLow);
}

// The program fills a matrix of counts element by element.
TEST(WorkBetweenStepsTest, LeavesStatisticsInALargerLoopToUnbatchedLoop) {
  const auto with = [](int comparisons) {
    return After([&](CpuText& text, int) {
      for (int pass = 0; pass < 32; ++pass) {
        text.Op("aten::select", 20);
        for (int k = 0; k < comparisons; ++k) text.Op("aten::eq", 20);
        text.Op("aten::sum", 60);
        Read(text);
      }
    });
  };
  const Report loop = with(8);
  EXPECT_NE(Find(loop, "unbatched-loop"), nullptr);
  EXPECT_EQ(Find(loop, kRule), nullptr);
  EXPECT_NE(Find(with(0), kRule), nullptr);
}

TEST(WorkBetweenStepsTest, NeedsATenthOfTheStep) {
  EXPECT_TRUE(IsClean(AfterIt("aten::histc", 1'040), kRule));
  EXPECT_NE(Find(AfterIt("aten::histc", 1'080), kRule), nullptr);
}

TEST(WorkBetweenStepsTest, RanksStatisticsThatNobodyReadsLow) {
  const Report report = After([](CpuText& text, int) {
    text.Op("inputs=(float[64,256]) aten::std", 3'000);
  });
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_LE(finding->severity, FindingSeverity::kLow);
}

// Runs `ops` once per parameter. An op takes `us` per three tensors that it
// reads or writes.
Report PerParameter(const std::vector<std::pair<std::string, int>>& ops,
                    bool sizes = true) {
  return After([&](CpuText& text, int) {
    for (const auto& [size, us] :
         {std::pair{"512,256", 1'000}, {"512", 4}, {"10,512", 40}}) {
      const std::string tensor = "float[" + std::string(size) + "]";
      for (const auto& [op, read] : ops) {
        std::string inputs = tensor;
        for (int k = 1; k < read; ++k) inputs += "," + tensor;
        text.Op((sizes ? "inputs=(" + inputs + ") " : "") + op,
                us * (read + 1) / 3);
      }
    }
  });
}

TEST(WorkBetweenStepsTest, FindsAWeightAverageThatMakesNewTensors) {
  const Report report =
      PerParameter({{"aten::mul", 1}, {"aten::mul", 1}, {"aten::add", 2}});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("parameters' sizes"), std::string::npos);
  EXPECT_NE(finding->fix_python.find("get_ema_multi_avg_fn"),
            std::string::npos);
  EXPECT_NE(finding->fix_cpp.find("at::_foreach_lerp_"), std::string::npos);
  // The ops move seven tensors; an update in place would move three.
  EXPECT_NEAR(finding->gain.expected_ms, 2.436 * 4 / 7, 0.02);
}

// A loop over state_dict(): first views, then ops with host code before each.
Report OverStateDict(int pause_us) {
  return After([&](CpuText& text, int) {
    const auto each = {"512,256", "512", "10,512", "10"};
    for (const char* size : each) {
      text.Op("inputs=(float[" + std::string(size) + "]) aten::detach", 2, 18);
    }
    for (const char* size : each) {
      const std::string tensor = "float[" + std::string(size) + "]";
      text.Op("inputs=(" + tensor + ",) aten::mul", 500, pause_us);
      text.Op("inputs=(" + tensor + "," + tensor + ") aten::add", 500);
    }
  });
}

TEST(WorkBetweenStepsTest, CountsTheHostCodeOfTheLoopOverTheWeights) {
  const auto gain_of = [](const Report& report) {
    return Find(report, kRule)->gain.expected_ms;
  };
  const double least = gain_of(OverStateDict(0));
  EXPECT_NEAR(gain_of(OverStateDict(200)) - least, 0.8, 0.01);
  // Longer pauses have another cause.
  EXPECT_NEAR(gain_of(OverStateDict(600)) - least, 0, 0.01);
}

TEST(WorkBetweenStepsTest, StaysSilentOnOnePassInPlace) {
  EXPECT_TRUE(IsClean(PerParameter({{"aten::lerp_", 2}}), kRule));
  EXPECT_TRUE(IsClean(PerParameter({{"aten::_foreach_mul_", 1},
                                    {"aten::_foreach_mul_", 1},
                                    {"aten::_foreach_add_", 2}}),
                      kRule));
}

// Without sizes: steps of 9.5 ms that update 20 parameters, and then run `ops`
// for `tensors` tensors.
Report WithoutSizes(int tensors, const std::vector<const char*>& ops) {
  CpuText text;
  for (int step = 0; step < 8; ++step) {
    text.Op("aten::linear", 4'000);
    text.Op("kind=backward AddmmBackward0", 5'000);
    for (int i = 0; i < 20; ++i) {
      text.Op("kind=backward torch::autograd::AccumulateGrad", 5);
    }
    Update(text);
    for (int i = 0; i < tensors; ++i) {
      for (const char* op : ops) text.Op(op, 50);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(WorkBetweenStepsTest, KnowsALoopOverTheWeightsWithoutSizes) {
  const std::vector<const char*> average = {"aten::mul_", "aten::mul",
                                            "aten::add_"};
  const Report report = WithoutSizes(30, average);  // and over ten buffers
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NE(finding->evidence.find("as often as there are parameters"),
            std::string::npos);
  // The ops move seven tensors; an update in place would move three.
  EXPECT_NEAR(finding->gain.expected_ms, 4.5 * 4 / 7, 0.02);
  // Fewer passes than parameters, and ops that make new tensors.
  for (const Report& other :
       {WithoutSizes(12, {"aten::mul_", "aten::mul", "aten::add_"}),
        WithoutSizes(30, {"aten::mul", "aten::mul", "aten::add"})}) {
    EXPECT_TRUE(Find(other, kRule) == nullptr ||
                Find(other, kRule)->confidence == Confidence::kHint);
  }
}

TEST(WorkBetweenStepsTest, RanksOtherWorkAtMostLow) {
  for (const Report& report :
       {AfterIt("aten::bitwise_xor", 9'000),
        PerParameter({{"aten::mul", 1}, {"aten::mul", 1}, {"aten::add", 2}},
                     /*sizes=*/false),
        // A batch that has the size of a weight.
        AfterIt("inputs=(float[512,256]) aten::sub", 9'000)}) {
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, FindingSeverity::kLow);
    EXPECT_EQ(finding->confidence, Confidence::kHint);
  }
}

TEST(WorkBetweenStepsTest, NeedsTheEndOfTheOptimizersStep) {
  EXPECT_FALSE(WhySkipped(After(
                              [](CpuText& text, int) {
                                text.Op("aten::histc", 4'000);
                                Read(text);
                              },
                              ""),
                          kRule)
                   .empty());
  // A phase that the program marks shows the end as well.
  EXPECT_NE(Find(After(
                     [](CpuText& text, int) {
                       text.Op("aten::histc", 4'000);
                       Read(text);
                     },
                     "kind=phase optimizer"),
                 kRule),
            nullptr);
}

TEST(WorkBetweenStepsTest, LeavesWorkOfSomeStepsToStalls) {
  for (int every : {2, 5}) {
    EXPECT_TRUE(IsClean(After([&](CpuText& text, int i) {
                          if (i % every == 0) text.Op("aten::histc", 3'000);
                          Read(text);
                        }),
                        kRule));
  }
}

TEST(WorkBetweenStepsTest, LeavesOutWhatBelongsToTheUpdate) {
  const auto clean = [](const std::string& op, const std::string& range = "") {
    return IsClean(After([&](CpuText& text, int) {
                     text.Begin();
                     text.Op(op, 3'000);
                     if (!range.empty()) text.EndRange(range);
                   }),
                   kRule);
  };
  EXPECT_TRUE(clean("aten::_amp_update_scale_"));
  EXPECT_TRUE(clean("aten::zero_"));
  EXPECT_TRUE(
      clean("aten::fill_", "kind=optimizer Optimizer.zero_grad#SGD.zero_grad"));
  EXPECT_TRUE(clean("c10d::allreduce_"));
  EXPECT_TRUE(clean("aten::stack",
                    "kind=loader "
                    "enumerate(DataLoader)#_SingleProcessDataLoaderIter."
                    "__next__"));
  EXPECT_TRUE(clean("aten::sum", "kind=phase validate"));
  EXPECT_TRUE(clean("aten::clone", "kind=user save_checkpoint"));
}

TEST(WorkBetweenStepsTest, IgnoresClippingBeforeTheUpdate) {
  CpuText text;
  for (int i = 0; i < 8; ++i) {
    Model(text);
    Backward(text);
    text.Op("aten::_foreach_norm", 3'000);
    Update(text);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), kRule));
}

// Ops before a forward pass may prepare its input, for example for the second
// network of a GAN or for validation.
TEST(WorkBetweenStepsTest, IgnoresOpsThatMayPrepareAForwardPass) {
  const auto with = [](const Body& between) {
    CpuText text;
    for (int i = 0; i < 8; ++i) {
      Model(text);
      Backward(text);
      Update(text);
      between(text, i);
      Model(text);
      Backward(text);
      Update(text);
      text.EndStep();
    }
    return text.Analyzed();
  };
  EXPECT_TRUE(IsClean(with([](CpuText& text, int) {
                        text.Op("aten::std", 9'000);
                        text.Op("inputs=(float[512,256]) aten::sub", 9'000);
                      }),
                      kRule));
  // The program clips the weights of the first network.
  EXPECT_NE(Find(with([](CpuText& text, int) {
                   for (const char* size : {"512,256", "512", "10,512"}) {
                     const std::string inputs =
                         "inputs=(float[" + std::string(size) + "]) ";
                     for (int k = 0; k < 4; ++k) {
                       text.Op(inputs + "aten::clamp", 2'000);
                     }
                   }
                 }),
                 kRule),
            nullptr);
  EXPECT_TRUE(IsClean(After([](CpuText& text, int) {
                        text.Op("aten::std", 3'000);
                        Model(text);
                        text.Op("aten::sum", 3'000);
                      }),
                      kRule));
}

// Steps that start with ops on tensors of `sizes`. If `nodes`, autograd records
// these ops.
Report AtTheHead(const std::vector<std::string>& sizes, bool nodes) {
  CpuText text;
  for (int i = 0; i < 8; ++i) {
    int sequence = 7;
    for (const std::string& size : sizes) {
      text.Op("inputs=(float[" + size +
                  "]) sequence=" + std::to_string(sequence) + " aten::norm",
              2'000);
      sequence += nodes;
    }
    Model(text);
    Backward(text);
    Update(text);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(WorkBetweenStepsTest, CountsOnlyOpsOnWeightsAtTheStartOfAStep) {
  EXPECT_NE(Find(AtTheHead({"512,256", "512", "10,512"}, false), kRule),
            nullptr);
  EXPECT_TRUE(IsClean(AtTheHead({"32,256", "32", "7,8"}, false), kRule));
  // With autograd nodes, the ops are the start of the model.
  EXPECT_TRUE(IsClean(AtTheHead({"512,256", "512", "10,512"}, true), kRule));
}

// Steps of 4 ms on the device, plus `kernels` statistics kernels of `us` us.
Report OnGpu(int kernels, bool waits, double us = 25) {
  ComputeText text;
  for (int i = 0; i < 8; ++i) {
    text.Op("aten::linear", "", {{"gemm", 1'500}}, 20);
    text.Op("AddmmBackward0", "", {{"gemm", 2'000}}, 20, "kind=backward");
    for (const char* size : {"(float[512,256])", "(float[512])"}) {
      text.Op("torch::autograd::AccumulateGrad", size, {}, 5, "kind=backward");
    }
    text.Begin();
    text.Op("aten::_fused_sgd_", "", {{"multi_tensor_apply", 500}}, 20);
    text.EndRange("Optimizer.step#SGD.step", "optimizer");
    for (int k = 0; k < kernels; ++k) {
      text.Op("aten::histc",
              k % 2 ? "(float[512,256],int)" : "(float[512],int)",
              {{"kernelHistogram1D", us}}, 15);
    }
    if (waits) {
      text.Begin();
      text.Call("cudaStreamSynchronize", 3'900);
      text.End("aten::item");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(WorkBetweenStepsTest, CountsKernelsOnAGpu) {
  const Report report = OnGpu(40, false);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.05);
  EXPECT_NE(finding->evidence.find("On the GPU their work takes 1.00 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(OnGpu(10, false), kRule));
}

// The ops take 0.15 of 6 ms on the host.
TEST(WorkBetweenStepsTest, FindsLongKernelsOfOpsThatAreShortOnTheHost) {
  const Report report = OnGpu(10, false, 200);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.05);
}

TEST(WorkBetweenStepsTest, LeavesAWaitForTheGpuToHostSync) {
  EXPECT_TRUE(IsClean(OnGpu(2, true), kRule));
}

// copy.deepcopy() of a state_dict copies the storages as bytes.
TEST(WorkBetweenStepsTest, FindsCopiesOfTheWeights) {
  const auto copies = [](const std::vector<std::string>& sizes) {
    return After([&](CpuText& text, int) {
      for (const std::string& size : sizes) {
        text.Op("inputs=(unsigned char[" + size + "],unsigned char[" + size +
                    "]) aten::copy_",
                600);
      }
    });
  };
  const Report report = copies({"524288", "2048", "20480", "40"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 2.4, 0.1);
  EXPECT_NE(finding->fix_python.find("copy.deepcopy(model.state_dict())"),
            std::string::npos);
  // These bytes are something else, such as images.
  const Report bytes = copies({"150528", "150528", "150528", "150528"});
  const Finding* other = Find(bytes, kRule);
  EXPECT_TRUE(other == nullptr || other->severity <= FindingSeverity::kLow);
}

}  // namespace
}  // namespace stepscope::between_steps_test
