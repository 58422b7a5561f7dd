// The program as a user calls it, on the program that only pretends to train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ladder/options.h"
#include "measure/child.h"
#include "measure/run_times.h"
#include "samples/temporary_folder.h"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LadderProgramTest : public ::testing::Test {
 protected:
  absl::Status Run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        std::string("--resnet=") + FAKE_TRAINING,
        "--work=" + folder_.path() + "/work", "--results=" + results_,
        "--steps=12", "--pairs=2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return measure::RunChild({LADDER, std::move(arguments)});
  }

  resnet::TemporaryFolder folder_;
  const std::string results_ = folder_.path() + "/RESULTS.md";
};

TEST_F(LadderProgramTest, TheCpuPartAndItsPictureAreWritten) {
  const absl::Status ran = Run({});
  ASSERT_TRUE(ran.ok()) << ran.message();
  const std::string text = *measure::ReadFile(results_);
  EXPECT_THAT(text, HasSubstr("| sync-data-loading | ×"));
  EXPECT_THAT(text, HasSubstr("](ladder_cpu.svg)"));
  EXPECT_THAT(text, HasSubstr("Not yet run on a GPU."));
  EXPECT_THAT(text, Not(HasSubstr("Not yet run on a CPU.")));
  EXPECT_THAT(*measure::ReadFile(folder_.path() + "/ladder_cpu.svg"),
              HasSubstr("a loader worker"));
  EXPECT_THAT(text, HasSubstr("`ladder --steps=12 --pairs=2`"));
  EXPECT_FALSE(std::filesystem::exists(results_ + ".new"));
}

TEST_F(LadderProgramTest, ASecondRunLeavesTheRestOfTheFile) {
  ASSERT_TRUE(Run({}).ok());
  std::string text = *measure::ReadFile(results_);
  const std::string mark = "Not yet run on a GPU.";
  text.replace(text.find(mark), mark.size(), "8.17 times on a V100.");
  std::ofstream(results_) << text << "A last word.\n";
  ASSERT_TRUE(Run({"--pairs=3"}).ok());
  const std::string again = *measure::ReadFile(results_);
  EXPECT_THAT(again, HasSubstr("8.17 times on a V100."));
  EXPECT_THAT(again, HasSubstr("A last word.\n"));
  EXPECT_THAT(again, HasSubstr("--pairs=3`"));
}

TEST_F(LadderProgramTest, AProgramThatFailsIsShownWithWhatItSaid) {
  const absl::Status ran = Run({"--resnet=/bin/false"});
  EXPECT_FALSE(ran.ok());
  EXPECT_THAT(std::string(ran.message()), HasSubstr("/bin/false"));
  EXPECT_FALSE(std::filesystem::exists(results_));
}

TEST(LadderOptionsTest, TheDeviceDecidesWhereAndWhatWith) {
  std::vector<const char*> args = {"--device", "cuda", "--side", "64"};
  absl::StatusOr<Options> options = ParseOptions(args);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->always.Text(), "--device cuda --side 64");
  EXPECT_EQ(options->folder, "runs/ladder_gpu");
  EXPECT_EQ(ParseOptions({})->folder, "runs/ladder_cpu");
  args = {"--device", "tpu"};
  EXPECT_FALSE(ParseOptions(args).ok());
}

}  // namespace
}  // namespace ladder
