#include "progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

namespace resnet::progress_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns what `use` prints with a Progress of `total` steps and batch 32.
std::string Printed(bool terminal, int total,
                    const std::function<void(Progress&)>& use) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  Progress progress(out, terminal, total, 32);
  use(progress);
  std::fclose(out);
  std::string printed(text, size);
  std::free(text);
  return printed;
}

TEST(ProgressTest, APipeGetsOnePlainLineForEachLookAtTheLoss) {
  std::string printed = Printed(false, 3, [](Progress& progress) {
    progress.Step(1, 100, std::nullopt);
    progress.Step(2, 100, 2.5);
    progress.Step(3, 200, std::nullopt);
  });
  EXPECT_EQ(printed,
            "resnet step 2 of 3  100.0 ms  320 samples/s  loss 2.500\n");
}

TEST(ProgressTest, ATerminalGetsOneBarThatIsDrawnOver) {
  std::string printed = Printed(true, 2, [](Progress& progress) {
    progress.Step(1, 100, 2.5);
    progress.Step(2, 100, std::nullopt);
  });
  EXPECT_EQ(printed,
            "\r\033[K[###############---------------] step 1 of 2  100.0 ms  "
            "320 samples/s  loss 2.500\r"
            "\r\033[K[##############################] step 2 of 2  100.0 ms  "
            "320 samples/s  loss 2.500\r\n");
}

TEST(ProgressTest, LinesOfTextDoNotMixWithTheBar) {
  std::string printed = Printed(true, 2, [](Progress& progress) {
    progress.Say("first");
    progress.Step(1, 100, std::nullopt);
    progress.Say("second");
    progress.Finish();
  });
  EXPECT_THAT(printed, HasSubstr("resnet: first\n\r\033[K["));
  EXPECT_THAT(printed, HasSubstr("samples/s\r\r\033[Kresnet: second\n"));
  EXPECT_TRUE(printed.ends_with("second\n"));
}

TEST(ProgressTest, ABadLossIsSaidOnceInWords) {
  std::string printed = Printed(false, 9, [](Progress& progress) {
    progress.Step(1, 100, std::nan(""));
    progress.Step(2, 100, std::nan(""));
  });
  size_t first = printed.find("is not a number");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(printed.find("is not a number", first + 1), std::string::npos);
  EXPECT_THAT(printed, HasSubstr("--lr"));
  EXPECT_THAT(
      Printed(false, 9,
              [](Progress& progress) { progress.Step(1, 100, INFINITY); }),
      HasSubstr("is infinite"));
  EXPECT_THAT(Printed(false, 9,
                      [](Progress& progress) { progress.Step(1, 100, 1e30); }),
              Not(HasSubstr("training has failed")));
}

}  // namespace
}  // namespace resnet::progress_test
