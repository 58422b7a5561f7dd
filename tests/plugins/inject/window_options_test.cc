#include "window_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace stepscope::window_options_test {
namespace {

using testing::HasSubstr;

absl::StatusOr<WindowOptions> From(std::map<std::string, std::string> values) {
  return WindowOptionsFrom(
      [&](const char* name) -> const char* {
        const auto found = values.find(name);
        return found == values.end() ? nullptr : found->second.c_str();
      },
      "a.out");
}

std::string Error(const std::string& name, const std::string& value) {
  const auto options = From({{"STEPSCOPE_LOG_DIR", "log"}, {name, value}});
  if (options.ok()) return "accepted";
  EXPECT_TRUE(absl::IsInvalidArgument(options.status()));
  const std::string text(options.status().message());
  EXPECT_THAT(text, HasSubstr(name + " is \"" + value + "\""));
  return text;
}

TEST(WindowOptionsTest, RecordsNothingWithoutALogDir) {
  const auto options = From({{"STEPSCOPE_STEP_RANGE", "step"}});
  EXPECT_TRUE(absl::IsNotFound(options.status()));
  EXPECT_TRUE(absl::IsNotFound(From({{"STEPSCOPE_LOG_DIR", ""}}).status()));
}

TEST(WindowOptionsTest, HasDefaultsForTheRest) {
  const auto options = From({{"STEPSCOPE_LOG_DIR", "log"}});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->log_dir, "log");
  EXPECT_EQ(options->name, "a.out");
  EXPECT_EQ(options->step_range, "");
  EXPECT_EQ(options->start_ms, 0);
  EXPECT_EQ(options->duration_ms, 2000);
  EXPECT_EQ(options->schedule.wait, 3);
  EXPECT_TRUE(options->print_report);
}

TEST(WindowOptionsTest, ReadsEveryVariable) {
  const auto options = From({{"STEPSCOPE_LOG_DIR", "log"},
                             {"STEPSCOPE_NAME", "bert"},
                             {"STEPSCOPE_STEP_RANGE", "step@train"},
                             {"STEPSCOPE_SCHEDULE", "1,0,5,2"},
                             {"STEPSCOPE_START_MS", "0"},
                             {"STEPSCOPE_DURATION_MS", "1"},
                             {"STEPSCOPE_PRINT", "0"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->name, "bert");
  EXPECT_EQ(options->step_range, "step@train");
  EXPECT_EQ(options->schedule.wait, 1);
  EXPECT_EQ(options->schedule.warmup, 0);
  EXPECT_EQ(options->schedule.active, 5);
  EXPECT_EQ(options->schedule.repeat, 2);
  EXPECT_EQ(options->start_ms, 0);
  EXPECT_EQ(options->duration_ms, 1);
  EXPECT_FALSE(options->print_report);
}

TEST(WindowOptionsTest, SaysWhichValueMakesNoSense) {
  for (const char* value : {"1", "1,2", "1,2,3,4,5", "1,,3", "a,b,c", "1,2,3,",
                            " 1,2,3", "1,2,99999999999999999999"}) {
    EXPECT_THAT(Error("STEPSCOPE_SCHEDULE", value),
                HasSubstr("wait,warmup,active"));
  }
  EXPECT_NE(Error("STEPSCOPE_SCHEDULE", "1,1,0"), "accepted");
  EXPECT_NE(Error("STEPSCOPE_SCHEDULE", "-1,1,1"), "accepted");
  for (const char* value : {"-1", "x", "1.5", "86400001", "1 "}) {
    EXPECT_THAT(Error("STEPSCOPE_START_MS", value), HasSubstr("milliseconds"));
  }
  EXPECT_NE(Error("STEPSCOPE_DURATION_MS", "0"), "accepted");
}

}  // namespace
}  // namespace stepscope::window_options_test
