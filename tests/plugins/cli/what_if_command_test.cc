// Runs `stepscope what-if` as a user does, and checks the texts of its
// settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/analysis.h>
#include <stepscope/read.h>
#include <stepscope/what_if.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "support/shell.h"
#include "support/temp_folder.h"
#include "what_if/settings.h"

namespace stepscope::what_if_command_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string ErrorOf(const std::string& word) {
  const absl::StatusOr<Setting> setting = ParseSetting(word);
  EXPECT_FALSE(setting.ok()) << word;
  return std::string(setting.status().message());
}

TEST(ParseSettingTest, ReadsEveryKindOfValue) {
  EXPECT_EQ(*ParseSetting("workers=0"), (Setting{"workers", int64_t{0}}));
  EXPECT_EQ(*ParseSetting("batch_factor=1.5"), (Setting{"batch_factor", 1.5}));
  EXPECT_EQ(*ParseSetting("set_to_none=true"), (Setting{"set_to_none", true}));
  EXPECT_EQ(*ParseSetting("anomaly_mode=false"),
            (Setting{"anomaly_mode", false}));
  EXPECT_EQ(*ParseSetting("memory_format=channels_last"),
            (Setting{"memory_format", std::string("channels_last")}));
}

TEST(ParseSettingTest, NamesAnUnknownKeyAndListsTheKnownOnes) {
  const std::string error = ErrorOf("worker=2");
  EXPECT_THAT(error, HasSubstr("unknown setting 'worker'"));
  EXPECT_THAT(error, HasSubstr("did you mean 'workers'?"));
  EXPECT_THAT(error, HasSubstr(SettingKeys()));
  EXPECT_THAT(ErrorOf("zzz"), HasSubstr("batch_size, batch_factor"));
}

TEST(ParseSettingTest, SaysWhatAValueMustBe) {
  EXPECT_THAT(ErrorOf("workers=two"),
              HasSubstr("a whole number of at least 0, not 'two'"));
  EXPECT_THAT(ErrorOf("workers=-1"), HasSubstr("at least 0"));
  EXPECT_THAT(ErrorOf("workers"), HasSubstr("write workers=VALUE"));
  EXPECT_THAT(ErrorOf("intra_op_threads=0"), HasSubstr("at least 1"));
  for (const char* word : {"batch_factor=0", "batch_factor=-2",
                           "batch_factor=nan", "batch_factor=inf"}) {
    EXPECT_THAT(ErrorOf(word), HasSubstr("a number above 0")) << word;
  }
  EXPECT_THAT(ErrorOf("set_to_none=false"), HasSubstr("must be true"));
  EXPECT_THAT(ErrorOf("validation_gradients=true"), HasSubstr("must be false"));
  EXPECT_THAT(ErrorOf("memory_format=contiguous"),
              HasSubstr("must be channels_last"));
  EXPECT_THAT(ErrorOf("set_to_none=1"),
              HasSubstr("not '1'; write set_to_none=true"));
  EXPECT_THAT(ErrorOf("anomaly_mode=off"),
              HasSubstr("write anomaly_mode=false"));
  EXPECT_THAT(ErrorOf("optimizer_step"),
              HasSubstr("write optimizer_step=fused"));
}

TEST(SettingTextTest, IsJsonAndWhatTheUserWrote) {
  for (const char* word : {"workers=2", "batch_factor=0.25", "set_to_none=true",
                           "anomaly_mode=false", "optimizer_step=fused"}) {
    EXPECT_EQ(ToText(*ParseSetting(word)), word);
  }
  EXPECT_EQ(JsonValue(*ParseSetting("workers=2")), "2");
  EXPECT_EQ(JsonValue(*ParseSetting("optimizer_step=fused")), "\"fused\"");
  EXPECT_EQ(JsonQuoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
}

class WhatIfCommandTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell("'" STEPSCOPE_PROGRAM "' what-if " + words, folder_);
  }

  TempFolder folder_;
  // A CPU loop that loads its batches itself.
  const std::string trace_ =
      STEPSCOPE_TEST_DATA "/gallery/sync_data_loading.json.zst";
  const std::string gpu_ =
      STEPSCOPE_TEST_DATA "/traces/resnet50_v100_workers0.pt.trace.json.gz";
};

TEST_F(WhatIfCommandTest, PredictsAsTheLibraryDoes) {
  absl::StatusOr<Trace> trace = ReadTrace(trace_);
  ASSERT_TRUE(trace.ok());
  const StepStats steps = Analyze(*trace).steps;
  const double before =
      steps.unprofiled_ms > 0 ? steps.unprofiled_ms : steps.mean_ms;
  const std::optional<Gain> gain =
      WhatIf(*trace).Predict({.settings = {{"workers", int64_t{1}}}});
  ASSERT_TRUE(gain.has_value());
  ASSERT_GT(gain->expected_ms, 0);

  const Outcome run = Run("--format json " + trace_ + " workers=1");
  EXPECT_EQ(run.status, 0) << run.err;
  simdjson::dom::parser parser;
  simdjson::dom::object json;
  ASSERT_FALSE(parser.parse(run.out).get(json)) << run.out;
  EXPECT_EQ(int64_t(json["version"]), 2);
  EXPECT_EQ(int64_t(json["settings"]["workers"]), 1);
  EXPECT_EQ(std::string_view(json["why_not"]), "");
  EXPECT_NEAR(double(json["baseline_ms"]), before, 1e-5);
  EXPECT_NEAR(double(json["predicted_ms"]), before - gain->expected_ms, 1e-5);
  EXPECT_NEAR(double(json["low_ms"]), before - gain->high_ms, 1e-5);
  EXPECT_NEAR(double(json["high_ms"]), before - gain->low_ms, 1e-5);
  EXPECT_LE(double(json["low_ms"]), double(json["predicted_ms"]));
  EXPECT_LE(double(json["predicted_ms"]), double(json["high_ms"]));
}

TEST_F(WhatIfCommandTest, PrintsOneLine) {
  const Outcome run = Run(trace_ + " workers=1");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("workers=1: "));
  EXPECT_THAT(run.out, HasSubstr(" ms per step, "));
  EXPECT_THAT(run.out, HasSubstr("x (likely "));
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1);
}

TEST_F(WhatIfCommandTest, ASettingThatIsSoAlreadyChangesNothing) {
  const Outcome run = Run(trace_ + " workers=0");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("workers=0: no change from "));
}

TEST_F(WhatIfCommandTest, FollowsTheAdviceOfFindings) {
  const Outcome advice =
      Run("--finding sync-data-loading --format json " + trace_);
  EXPECT_EQ(advice.status, 0) << advice.err;
  EXPECT_THAT(advice.out, HasSubstr("\"findings\": [\"sync-data-loading\"]"));
  const Outcome wrong = Run("--finding sync-data-loadin " + trace_);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'sync-data-loading'?"));
  const Outcome absent = Run("--finding straggler-rank " + trace_);
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.out, HasSubstr("no finding straggler-rank"));
}

TEST_F(WhatIfCommandTest, SaysWhichSettingCannotBePredicted) {
  EXPECT_EQ(Run(gpu_ + " workers=2").status, 0);
  const Outcome run =
      Run("--format json " + gpu_ + " workers=2 intra_op_threads=4");
  EXPECT_EQ(run.status, 1);
  simdjson::dom::parser parser;
  simdjson::dom::object json;
  ASSERT_FALSE(parser.parse(run.out).get(json)) << run.out;
  EXPECT_GT(double(json["baseline_ms"]), 0);
  for (const char* key : {"predicted_ms", "low_ms", "high_ms"})
    EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_THAT(std::string(std::string_view(json["why_not"])),
              HasSubstr("cannot model intra_op_threads=4"));
}

TEST_F(WhatIfCommandTest, WithAGpuASettingIsWhatItsFindingChanges) {
  for (const auto& [setting, finding] :
       {std::pair("optimizer_step=fused", "unfused-optimizer"),
        std::pair("set_to_none=true", "zero-grad-kernels")}) {
    const Outcome set = Run(gpu_ + " " + setting);
    EXPECT_EQ(set.status, 0) << set.out;
    const Outcome advised =
        Run("--finding " + std::string(finding) + " " + gpu_);
    EXPECT_EQ(advised.status, 0) << advised.out;
    EXPECT_EQ(set.out.substr(set.out.find(':')),
              advised.out.substr(advised.out.find(':')));
  }
  const auto step = [&](const std::string& words) {
    const std::string out = Run(gpu_ + " optimizer_step=fused" + words).out;
    return out.substr(out.find(": "));
  };
  // The same change given twice counts once.
  EXPECT_EQ(step(" --finding unfused-optimizer"), step(""));
  EXPECT_THAT(Run(gpu_ + " memory_format=channels_last").out,
              HasSubstr("cannot model memory_format=channels_last"));
}

TEST_F(WhatIfCommandTest, SaysHowManyWorkersAreEnough) {
  const std::string one = Run(gpu_ + " workers=1").out;
  EXPECT_THAT(one, Not(HasSubstr("enough")));
  const std::string many = Run(gpu_ + " workers=8").out;
  EXPECT_THAT(many, HasSubstr(" ms); one worker is enough\n"));
  const auto predicted = [](const std::string& out) {
    return out.substr(10, out.find(" (likely") - 10);
  };
  EXPECT_EQ(predicted(many), predicted(one));
  EXPECT_THAT(Run(gpu_ + " workers=0").out, Not(HasSubstr("enough")));
}

TEST_F(WhatIfCommandTest, SaysWhyATraceWithoutStepsGivesNoPrediction) {
  const Outcome run = Run(STEPSCOPE_TEST_DATA
                          "/traces/alexnet_a100_cuda_sync.json.gz workers=2");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "no prediction: no steps were found\n");
}

TEST_F(WhatIfCommandTest, WrongUsageIsStatusTwoAndNamesTheOptions) {
  const auto expect = [&](const std::string& words, const std::string& says) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.status, 2) << words;
    EXPECT_THAT(run.err, HasSubstr(says)) << words;
    // The first line is the error; the usage follows.
    EXPECT_THAT(run.err, testing::StartsWith("stepscope: ")) << words;
    EXPECT_EQ(run.err.find("\nusage: stepscope "), run.err.find('\n'));
    EXPECT_EQ(run.out, "") << words;
  };
  expect("", "a trace and at least one change");
  expect(trace_, SettingKeys());
  expect(trace_ + " wrkers=2", "did you mean 'workers'?");
  expect(trace_ + " workers=two", "not 'two'");
  expect("workers=2 " + trace_, "the trace comes before the settings");
  expect("--finding cores-idle workers=2 " + trace_, "'workers=2' cannot be");
  expect("--format xml " + trace_ + " workers=1", "text or json, not 'xml'");
  EXPECT_EQ(Run(folder_.At("none.json") + " workers=1").status, 1);
  EXPECT_THAT(Run("--help").out, HasSubstr("intra_op_threads=N"));
}

}  // namespace
}  // namespace stepscope::what_if_command_test
