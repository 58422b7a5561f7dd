#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "flags/parse_options.h"

namespace resnet::options_test {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Options> Parse(std::vector<const char*> args) {
  return ParseOptions(args);
}

std::string Error(std::vector<const char*> args) {
  absl::StatusOr<Options> options = ParseOptions(args);
  return options.ok() ? "" : std::string(options.status().message());
}

TEST(OptionsTest, ACpuGetsJpegFilesAndOneThread) {
  absl::StatusOr<Options> options = Parse({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->model, 18);
  EXPECT_EQ(options->data, "jpeg");
  EXPECT_EQ(options->side, 32);
  EXPECT_EQ(options->batch, 32);
  EXPECT_EQ(options->workers, 0);
  EXPECT_EQ(options->threads, 1);
  EXPECT_TRUE(options->set_to_none);
  EXPECT_TRUE(options->shapes);
  EXPECT_TRUE(options->memory);
  EXPECT_FALSE(options->stack);
  EXPECT_TRUE(options->profile);
}

TEST(OptionsTest, AGpuGetsTheCaseStudy) {
  absl::StatusOr<Options> options = Parse({"--device", "cuda"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->data, "fakecifar");
  EXPECT_EQ(options->side, 224);
  EXPECT_EQ(options->threads, 0);
}

TEST(OptionsTest, WhatIsGivenWinsWhateverTheOrder) {
  for (std::vector<const char*> args :
       {std::vector<const char*>{"--side", "64", "--data", "jpeg", "--threads",
                                 "2", "--device", "cuda"},
        std::vector<const char*>{"--device", "cuda", "--threads=2",
                                 "--data=jpeg", "--side=64"}}) {
    absl::StatusOr<Options> options = Parse(args);
    ASSERT_TRUE(options.ok());
    EXPECT_EQ(options->side, 64);
    EXPECT_EQ(options->data, "jpeg");
    EXPECT_EQ(options->threads, 2);
  }
}

TEST(OptionsTest, TheStepsOutlastTheSchedule) {
  EXPECT_EQ(Parse({})->steps, 12);
  EXPECT_EQ(Parse({"--skip-first", "2", "--wait", "1", "--warmup", "0",
                   "--active", "4", "--repeat", "2"})
                ->steps,
            15);
  EXPECT_EQ(Parse({"--steps", "5"})->steps, 5);
}

TEST(OptionsTest, AScheduleWithoutEndShowsThreeCycles) {
  EXPECT_EQ(Parse({"--repeat", "0"})->steps, 30);
}

TEST(OptionsTest, EveryFlagReachesItsOption) {
  absl::StatusOr<Options> options = Parse({"--model",
                                           "50",
                                           "--classes",
                                           "7",
                                           "--lr",
                                           "0.5",
                                           "--workers",
                                           "2",
                                           "--set-to-none",
                                           "0",
                                           "--channels-last",
                                           "--bf16",
                                           "--uint8",
                                           "--data-cache",
                                           "d",
                                           "--validate-every",
                                           "4",
                                           "--validate-batches",
                                           "3",
                                           "--validate-grad",
                                           "--seed",
                                           "18446744073709551615",
                                           "--log-every",
                                           "2",
                                           "--log-dir",
                                           "l",
                                           "--no-profile",
                                           "--shapes",
                                           "0",
                                           "--memory",
                                           "0",
                                           "--stack",
                                           "1",
                                           "--json",
                                           "j",
                                           "--warm-steps",
                                           "6",
                                           "--accumulate",
                                           "8",
                                           "--sgd",
                                           "fused",
                                           "--clip",
                                           "--recompute",
                                           "--item-every-step",
                                           "--print-tensor",
                                           "--anomaly-mode",
                                           "--host-tensors",
                                           "--checkpoint-every",
                                           "9",
                                           "--variable-sizes",
                                           "--conv-bias"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->model, 50);
  EXPECT_EQ(options->classes, 7);
  EXPECT_EQ(options->lr, 0.5);
  EXPECT_EQ(options->workers, 2);
  EXPECT_FALSE(options->set_to_none);
  EXPECT_TRUE(options->channels_last);
  EXPECT_TRUE(options->bf16);
  EXPECT_TRUE(options->uint8);
  EXPECT_EQ(options->data_cache, "d");
  EXPECT_EQ(options->validate_every, 4);
  EXPECT_EQ(options->validate_batches, 3);
  EXPECT_EQ(options->validate_mode, ValidateMode::kGrad);
  EXPECT_EQ(options->seed, 18446744073709551615u);
  EXPECT_EQ(options->log_every, 2);
  EXPECT_EQ(options->log_dir, "l");
  EXPECT_FALSE(options->profile);
  EXPECT_FALSE(options->shapes);
  EXPECT_FALSE(options->memory);
  EXPECT_TRUE(options->stack);
  EXPECT_EQ(options->json, "j");
  EXPECT_EQ(options->warm_steps, 6);
  EXPECT_EQ(options->accumulate, 8);
  EXPECT_EQ(options->sgd, SgdKind::kFused);
  EXPECT_EQ(options->clip, Clip::kOnDevice);
  EXPECT_TRUE(options->recompute);
  EXPECT_TRUE(options->item_every_step);
  EXPECT_TRUE(options->print_tensor);
  EXPECT_TRUE(options->anomaly_mode);
  EXPECT_TRUE(options->host_tensors);
  EXPECT_EQ(options->checkpoint_every, 9);
  EXPECT_TRUE(options->variable_sizes);
  EXPECT_TRUE(options->conv_bias);
}

TEST(OptionsTest, HabitsAndRungsAreOffUntilAskedFor) {
  absl::StatusOr<Options> options = Parse({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->accumulate, 1);
  EXPECT_EQ(options->sgd, SgdKind::kLoop);
  EXPECT_EQ(options->clip, Clip::kNone);
  EXPECT_EQ(options->validate_mode, ValidateMode::kNoGrad);
  for (bool on :
       {options->fp16, options->recompute, options->conv_bias,
        options->cudnn_benchmark, options->tf32, options->cuda_graph,
        options->variable_sizes, options->item_every_step,
        options->print_tensor, options->anomaly_mode, options->host_tensors}) {
    EXPECT_FALSE(on);
  }
  EXPECT_EQ(options->checkpoint_every, 0);
}

TEST(OptionsTest, ChoicesAreTakenByName) {
  EXPECT_EQ(Parse({"--sgd", "loop"})->sgd, SgdKind::kLoop);
  EXPECT_EQ(Parse({"--sgd", "foreach"})->sgd, SgdKind::kForeach);
  EXPECT_EQ(Parse({"--clip-sync"})->clip, Clip::kReadBack);
  EXPECT_TRUE(Parse({"--fp16"})->fp16);
  auto mode = [](const char* name) {
    return Parse({"--validate-every", "1", "--validate-mode", name})
        ->validate_mode;
  };
  EXPECT_EQ(mode("nograd"), ValidateMode::kNoGrad);
  EXPECT_EQ(mode("inference"), ValidateMode::kInference);
  EXPECT_EQ(mode("grad"), ValidateMode::kGrad);
  absl::StatusOr<Options> gpu = Parse(
      {"--device", "cuda", "--cudnn-benchmark", "--tf32", "--cuda-graph"});
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  EXPECT_TRUE(gpu->cudnn_benchmark);
  EXPECT_TRUE(gpu->tf32);
  EXPECT_TRUE(gpu->cuda_graph);
}

TEST(OptionsTest, WhatACpuCannotDoIsRefused) {
  for (const char* flag : {"--cudnn-benchmark", "--tf32", "--cuda-graph"}) {
    EXPECT_THAT(Error({flag}), HasSubstr(std::string(flag) + " needs --device"))
        << flag;
  }
}

TEST(OptionsTest, ACapturedStepLeavesTheHostOut) {
  auto error = [](std::vector<const char*> more) {
    more.insert(more.begin(), {"--device", "cuda", "--cuda-graph"});
    return Error(more);
  };
  for (const char* flag : {"--print-tensor", "--anomaly-mode", "--host-tensors",
                           "--clip-sync", "--variable-sizes"}) {
    EXPECT_THAT(error({flag}),
                HasSubstr(std::string("cannot be combined with ") + flag));
  }
  EXPECT_THAT(error({"--fp16"}), HasSubstr("--sgd fused"));
  EXPECT_EQ(error({"--fp16", "--sgd", "fused"}), "");
  EXPECT_EQ(error({"--clip", "--bf16", "--accumulate", "2"}), "");
}

TEST(OptionsTest, CombinationsThatCannotWorkSayWhy) {
  EXPECT_THAT(Error({"--pinned"}), HasSubstr("--device cuda"));
  EXPECT_EQ(Error({"--pinned", "--device", "cuda"}), "");
  EXPECT_THAT(Error({"--validate-grad"}), HasSubstr("--validate-every"));
  EXPECT_THAT(Error({"--batch", "1"}), HasSubstr("--side 33"));
  EXPECT_EQ(Error({"--batch", "1", "--side", "33"}), "");
  EXPECT_EQ(Error({"--batch", "2"}), "");
  EXPECT_THAT(Error({"--batch", "2", "--accumulate", "2"}),
              HasSubstr("one picture per part"));
  EXPECT_THAT(Error({"--batch", "1", "--variable-sizes", "--side", "42"}),
              HasSubstr("--side 43"));
  EXPECT_EQ(Error({"--batch", "1", "--variable-sizes", "--side", "43"}), "");
  EXPECT_THAT(Error({"--accumulate", "3"}), HasSubstr("must divide --batch"));
  EXPECT_THAT(Error({"--bf16", "--fp16"}), HasSubstr("exclude each other"));
  EXPECT_THAT(Error({"--validate-mode", "inference"}),
              HasSubstr("--validate-every"));
}

TEST(OptionsTest, ValuesOutsideTheirRangeAreRefused) {
  EXPECT_EQ(Error({"--model", "34"}), "--model must be 18 or 50, not '34'");
  EXPECT_EQ(Error({"--device", "tpu"}),
            "--device must be cpu or cuda, not 'tpu'");
  EXPECT_THAT(Error({"--side", "15"}), HasSubstr("at least 16"));
  EXPECT_EQ(Error({"--side", "16"}), "");
  EXPECT_THAT(Error({"--steps", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(Error({"--classes", "1"}), HasSubstr("at least 2"));
  EXPECT_THAT(Error({"--seed", "-1"}), HasSubstr("at least 0"));
  EXPECT_THAT(Error({"--chanels-last"}), HasSubstr("--channels-last?"));
}

TEST(OptionsTest, HelpNeedsNothingElseToBeRight) {
  absl::StatusOr<Options> options = Parse({"--batch", "1", "--help"});
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->help);
  std::istringstream help(HelpText());
  for (std::string line; std::getline(help, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

}  // namespace
}  // namespace resnet::options_test
