#include "train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/batches.h>
#include <stepscope/profile.h>
#include <stepscope/trace.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "data/jpeg_files.h"
#include "data/picture.h"
#include "device.h"
#include "flags/parse_options.h"
#include "learner.h"
#include "precision.h"
#include "temporary_folder.h"

namespace resnet::train_test {
namespace {

using ::testing::HasSubstr;

Options Tiny() {
  std::vector<const char*> args = {"--no-profile", "--batch", "4", "--side",
                                   "32",           "--steps", "3", "--data",
                                   "fakecifar",    "--seed",  "3"};
  return *ParseOptions(args);
}

Batch TinyBatch(const Options& options) {
  ImageBatches images(MakeFakeCifar(1, 10),
                      {.side = options.side, .bytes = options.uint8});
  return images.get_batch({0, 1, 2, 3});
}

absl::StatusOr<StepTimes> TrainOnce(const Options& options,
                                    std::string* printed) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  absl::StatusOr<StepTimes> times = absl::UnknownError("not run");
  {
    Progress progress(out, false, options.steps, options.batch);
    absl::StatusOr<Sources> sources =
        OpenSources({.data = options.data, .seed = options.seed},
                    [&](const std::string& line) { progress.Say(line); });
    times = sources.ok() ? Train(options, *std::move(sources), progress)
                         : absl::StatusOr<StepTimes>(sources.status());
  }
  std::fclose(out);
  *printed = std::string(text, size);
  std::free(text);
  return times;
}

class LearnerTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::set_num_threads(1); }
};

TEST_F(LearnerTest, TheLossOfOneBatchFallsWhenItIsRepeated) {
  Options options = Tiny();
  Learner learner(options, 10, torch::kCPU);
  Batch batch = TinyBatch(options);
  double first = learner.Step(batch).item<double>();
  double last = first;
  for (int i = 0; i < 8; ++i) last = learner.Step(batch).item<double>();
  EXPECT_NEAR(first, std::log(10), 1.5);
  EXPECT_LT(last, first / 2);
}

TEST_F(LearnerTest, TheSeedDecidesTheLoss) {
  Options options = Tiny();
  Batch batch = TinyBatch(options);
  double a = Learner(options, 10, torch::kCPU).Step(batch).item<double>();
  double b = Learner(options, 10, torch::kCPU).Step(batch).item<double>();
  options.seed = 4;
  double c = Learner(options, 10, torch::kCPU).Step(batch).item<double>();
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST_F(LearnerTest, VariantsOfTheStepAgreeOnTheFirstLoss) {
  Options plain = Tiny();
  double expected =
      Learner(plain, 10, torch::kCPU).Step(TinyBatch(plain)).item<double>();
  Options bytes = plain, last = plain, bf16 = plain, zeros = plain;
  bytes.uint8 = true;
  last.channels_last = true;
  bf16.bf16 = true;
  zeros.set_to_none = false;
  for (const Options& options : {bytes, last, zeros}) {
    double loss = Learner(options, 10, torch::kCPU)
                      .Step(TinyBatch(options))
                      .item<double>();
    EXPECT_NEAR(loss, expected, 1e-3);
  }
  double rough =
      Learner(bf16, 10, torch::kCPU).Step(TinyBatch(bf16)).item<double>();
  EXPECT_NEAR(rough, expected, 0.2);
  EXPECT_NE(rough, expected);
}

TEST_F(LearnerTest, SetToNoneDecidesWhatIsLeftOfTheGradients) {
  Options options = Tiny();
  Learner none(options, 10, torch::kCPU);
  none.Step(TinyBatch(options));
  options.set_to_none = false;
  Learner zeros(options, 10, torch::kCPU);
  zeros.Step(TinyBatch(options));
  for (const torch::Tensor& p : none.model()->parameters()) {
    EXPECT_FALSE(p.grad().defined());
  }
  for (const torch::Tensor& p : zeros.model()->parameters()) {
    ASSERT_TRUE(p.grad().defined());
    EXPECT_FALSE(p.grad().any().item<bool>());
  }
}

TEST_F(LearnerTest, ValidatingChangesNothing) {
  Options options = Tiny();
  for (ValidateMode mode :
       {ValidateMode::kNoGrad, ValidateMode::kInference, ValidateMode::kGrad}) {
    options.validate_mode = mode;
    Learner learner(options, 10, torch::kCPU);
    Batch batch = TinyBatch(options);
    std::vector<torch::Tensor> before;
    for (const auto& b : learner.model()->buffers())
      before.push_back(b.clone());
    double first = learner.Validate(batch).item<double>();
    EXPECT_EQ(learner.Validate(batch).item<double>(), first);
    EXPECT_TRUE(torch::GradMode::is_enabled());
    EXPECT_TRUE(learner.model()->is_training());
    std::vector<torch::Tensor> after = learner.model()->buffers();
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_TRUE(torch::equal(before[i], after[i]));
    }
  }
}

// All variants of a step must give the same weights: after three steps, the
// loss equals that of the plain variant.
TEST_F(LearnerTest, VariantsOfTheStepTrainAlike) {
  Options plain = Tiny();
  auto last_loss = [](const Options& options) {
    Learner learner(options, 10, torch::kCPU);
    Batch batch = TinyBatch(options);
    for (int i = 0; i < 3; ++i) learner.Step(batch);
    return learner.Step(batch).item<double>();
  };
  double expected = last_loss(plain);
  std::vector<Options> variants(5, plain);
  variants[0].sgd = SgdKind::kForeach;
  variants[1].sgd = SgdKind::kFused;
  variants[2].recompute = true;
  variants[3].host_tensors = true;
  variants[4].set_to_none = false;
  variants[4].sgd = SgdKind::kForeach;
  for (size_t i = 0; i < variants.size(); ++i) {
    EXPECT_NEAR(last_loss(variants[i]), expected, 2e-3 * expected) << i;
  }
  // Another layout rounds differently, and a norm over four values amplifies
  // this. So channels-last runs are compared with each other.
  Options last = plain, last_fused = plain;
  last.channels_last = last_fused.channels_last = true;
  last_fused.sgd = SgdKind::kFused;
  double expected_last = last_loss(last);
  EXPECT_NEAR(last_loss(last_fused), expected_last, 2e-3 * expected_last);
  Options slow = plain, synced = plain, on_device = plain;
  slow.lr = plain.lr / 10;
  EXPECT_GT(std::abs(last_loss(slow) - expected), 0.02 * expected)
      << "the comparison above would not see an update that is missing";
  synced.clip = Clip::kReadBack;
  on_device.clip = Clip::kOnDevice;
  double clipped = last_loss(synced);
  EXPECT_NEAR(last_loss(on_device), clipped, 2e-3 * clipped);
  EXPECT_GT(std::abs(clipped - expected), 1e-4 * expected);
}

// A norm uses the statistics of the part that it sees. Only a network with
// running statistics gives the whole batch's gradients.
TEST_F(LearnerTest, PartsOfABatchAddUpToTheWhole) {
  Options options = Tiny();
  Batch batch = TinyBatch(options);
  auto weights_after = [&](int parts) {
    options.accumulate = parts;
    Learner learner(options, 10, torch::kCPU);
    learner.model()->eval();
    double loss = learner.Step(batch).item<double>();
    return std::pair(loss, learner.model()->parameters().front());
  };
  auto [whole_loss, whole] = weights_after(1);
  for (int parts : {2, 4}) {
    auto [loss, weights] = weights_after(parts);
    EXPECT_NEAR(loss, whole_loss, 1e-4 * whole_loss);
    EXPECT_TRUE(torch::allclose(weights, whole, 1e-3, 1e-5)) << parts;
  }
}

// The loss scale starts so high that the first steps may overflow and be
// skipped.
TEST_F(LearnerTest, Float16StartsLikeFloat32AndLearns) {
  if (!CheckHalfWorks(torch::kCPU).ok()) GTEST_SKIP() << "no float16 here";
  Options options = Tiny();
  Batch batch = TinyBatch(options);
  double expected =
      Learner(options, 10, torch::kCPU).Step(batch).item<double>();
  options.fp16 = true;
  options.sgd = SgdKind::kFused;
  Learner half(options, 10, torch::kCPU);
  double first = half.Step(batch).item<double>();
  EXPECT_NEAR(first, expected, 0.05 * expected);
  double last = first;
  for (int i = 0; i < 6; ++i) last = half.Step(batch).item<double>();
  EXPECT_LT(last, 0.9 * first);
}

// With zero biases, the network computes the same result. The following norm
// keeps a bias at zero, because its gradient is only rounding.
TEST_F(LearnerTest, ABiasBeforeANormLearnsNothing) {
  Options options = Tiny();
  options.conv_bias = true;
  Learner learner(options, 10, torch::kCPU);
  torch::Tensor bias, weight;
  for (auto& item : learner.model()->named_parameters()) {
    if (item.key() == "layer1.0.conv1.bias") bias = item.value();
    if (item.key() == "layer1.0.conv1.weight") weight = item.value();
  }
  ASSERT_TRUE(bias.defined());
  torch::Tensor bias_before = bias.detach().clone();
  torch::Tensor weight_before = weight.detach().clone();
  learner.Step(TinyBatch(options));
  EXPECT_LT((bias - bias_before).abs().max().item<double>(), 1e-6);
  EXPECT_GT((weight - weight_before).abs().max().item<double>(), 1e-5);
}

TEST_F(LearnerTest, PrintingShowsTheScoresOfOnePicture) {
  Options options = Tiny();
  options.print_tensor = true;
  Learner learner(options, 10, torch::kCPU);
  ::testing::internal::CaptureStderr();
  learner.Step(TinyBatch(options));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[ CPUFloatType{10} ]"));
}

// Checks what stepscope sees of a step: every module by torchvision's path,
// every phase, and the loader, by the names that viewers know.
TEST_F(LearnerTest, AStepTellsStepscopeItsPhasesModulesAndWaits) {
  Options options = Tiny();
  Learner learner(options, 10, torch::kCPU);
  std::unique_ptr<Loader> loader = MakeLoader(
      MakeFakeCifar(1, 10), {.side = options.side}, 4, /*batches=*/1, 0);
  std::multiset<std::string> modules, phases, waits;
  stepscope::ProfileOptions profile_options;
  profile_options.schedule = {0, 0, 0, 1, 1};
  profile_options.print_report = false;
  profile_options.on_report = [&](const stepscope::Trace& trace,
                                  const stepscope::Report&) {
    for (const stepscope::Range& range : trace.ranges()) {
      std::string name(trace.name(range.name));
      std::string detail(trace.name(range.detail));
      if (range.kind == stepscope::RangeKind::kModule) modules.insert(name);
      if (range.kind == stepscope::RangeKind::kPhase) phases.insert(name);
      if (range.kind == stepscope::RangeKind::kLoader) {
        waits.insert(name + " " + detail);
      }
    }
  };
  stepscope::Profile profile(std::move(profile_options));
  for (Batch& batch : stepscope::Batches(*loader, "train")) {
    learner.Step(batch);
    profile.Step();
  }
  absl::Status status = profile.Finish();
  ASSERT_TRUE(status.ok()) << status.message();
  // A block's activation runs twice, all other modules once.
  std::multiset<std::string> expected;
  for (const auto& item : learner.model()->named_modules("", false)) {
    expected.insert(item.key());
    if (item.key().ends_with(".relu")) expected.insert(item.key());
  }
  EXPECT_EQ(modules, expected);
  EXPECT_EQ(phases, (std::multiset<std::string>{"backward", "data", "forward",
                                                "optimizer"}));
  EXPECT_EQ(waits, (std::multiset<std::string>{
                       std::string(stepscope::kSingleProcessWait) + " train"}));
}

TEST(DeviceTest, AGpuIsUsedOrItsAbsenceIsExplained) {
  absl::StatusOr<torch::Device> device = OpenDevice(DeviceKind::kCuda);
  if (device.ok()) {
    EXPECT_TRUE(device->is_cuda());
    return;
  }
  EXPECT_TRUE(absl::IsUnavailable(device.status()));
  EXPECT_THAT(std::string(device.status().message()),
              HasSubstr("cannot train on a GPU: "));
  EXPECT_THAT(std::string(device.status().message()),
              HasSubstr("--device cpu"));
}

TEST(TrainTest, EveryStepIsTimedAndTheLossIsShown) {
  std::string printed;
  Options options = Tiny();
  options.log_every = 2;
  absl::StatusOr<StepTimes> times = TrainOnce(options, &printed);
  ASSERT_TRUE(times.ok()) << times.status().message();
  ASSERT_EQ(times->step_ms.size(), 3u);
  for (double ms : times->step_ms) EXPECT_GT(ms, 0);
  EXPECT_THAT(printed, HasSubstr("step 2 of 3"));
  EXPECT_THAT(printed, HasSubstr("step 3 of 3"));
  EXPECT_THAT(printed, HasSubstr("samples/s  loss "));
}

TEST(TrainTest, WorkersStayBusyAndTheLoopStopsInTime) {
  std::string printed;
  Options options = Tiny();
  options.workers = 2;
  absl::StatusOr<StepTimes> times = TrainOnce(options, &printed);
  ASSERT_TRUE(times.ok()) << times.status().message();
  EXPECT_EQ(times->step_ms.size(), 3u);
}

TEST(TrainTest, ValidationComesWhenItIsDue) {
  std::string printed;
  Options options = Tiny();
  options.validate_every = 2;
  options.validate_batches = 1;
  options.workers = 1;
  ASSERT_TRUE(TrainOnce(options, &printed).ok());
  EXPECT_THAT(printed, HasSubstr("step 2: validation loss "));
  EXPECT_EQ(printed.find("step 1: validation"), std::string::npos);
  EXPECT_EQ(printed.find("step 3: validation"), std::string::npos);
}

TEST(TrainTest, AHopelessLearningRateIsSaid) {
  std::string printed;
  Options options = Tiny();
  options.lr = 1e30;
  options.log_every = 1;
  ASSERT_TRUE(TrainOnce(options, &printed).ok());
  EXPECT_THAT(printed, HasSubstr("training has failed"));
}

TEST(TrainTest, ReadingEachLossGivesTheirMean) {
  std::string printed;
  Options options = Tiny();
  options.item_every_step = true;
  options.steps = 1;
  absl::StatusOr<StepTimes> times = TrainOnce(options, &printed);
  ASSERT_TRUE(times.ok());
  ASSERT_TRUE(times->loss.has_value());
  char mean[64];
  std::snprintf(mean, sizeof(mean), "mean loss of all steps %.3f",
                *times->loss);
  EXPECT_THAT(printed, HasSubstr(mean));
}

TEST(TrainTest, CheckpointsHoldTheModelAsItWasWhenDue) {
  TemporaryFolder folder;
  std::string printed;
  Options options = Tiny();
  options.log_dir = folder.path() + "/new";
  options.checkpoint_every = 2;
  ASSERT_TRUE(TrainOnce(options, &printed).ok());
  ResNet loaded(18, 10);
  torch::load(loaded, options.log_dir + "/checkpoint.pt");
  for (const auto& item : loaded->named_buffers()) {
    if (!item.key().ends_with("num_batches_tracked")) continue;
    EXPECT_EQ(item.value().item<int64_t>(), 2) << item.key();
  }
}

TEST(TrainTest, SizesMayChangeFromBatchToBatch) {
  std::string printed;
  Options options = Tiny();
  options.side = 48;
  options.variable_sizes = true;
  EXPECT_TRUE(TrainOnce(options, &printed).ok());
}

TEST(TrainTest, TheSearchForNanIsOnOnlyWhileAskedFor) {
  std::string printed;
  Options options = Tiny();
  options.steps = 1;
  options.anomaly_mode = true;
  ASSERT_TRUE(TrainOnce(options, &printed).ok());
  EXPECT_TRUE(torch::autograd::AnomalyMode::is_enabled());
  options.anomaly_mode = false;
  ASSERT_TRUE(TrainOnce(options, &printed).ok());
  EXPECT_FALSE(torch::autograd::AnomalyMode::is_enabled());
}

TEST(TrainTest, ADamagedFileStopsTrainingAndIsNamed) {
  for (int workers : {0, 1}) {
    TemporaryFolder folder;
    folder.Write("a/1.jpg", *EncodeJpeg(MakePicture(1, 1, 40, 30), 90));
    std::string bad = folder.Write("b/2.jpg", {0xFF, 0xD8});
    Options options = Tiny();
    options.data = folder.path();
    options.workers = workers;
    std::string printed;
    absl::StatusOr<StepTimes> times = TrainOnce(options, &printed);
    ASSERT_FALSE(times.ok());
    EXPECT_THAT(std::string(times.status().message()), HasSubstr(bad));
  }
}

}  // namespace
}  // namespace resnet::train_test
