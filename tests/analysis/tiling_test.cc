#include "steps/tiling.h"

#include <gtest/gtest.h>

#include <string>

#include "steps/steps.h"
#include "support/trace_text.h"

namespace stepscope::tiling_test {
namespace {

Steps Find(const Trace& trace) { return FindSteps(trace, OpTree(trace)); }

// Six steps in two groups of three. The first step of a group waits for its
// batch for so long that the device catches up. After that, the device falls
// behind by 8, 16 and 24 us. Device work of the step before the window is not
// recorded. The first step launches after `lead_us`.
Span FirstTile(int64_t lead_us) {
  std::string text = "run training_thread=0\n";
  int64_t now = 0;
  for (int i = 0; i < 6; ++i) {
    const bool waits = i % 3 == 0;
    const int64_t lead = i == 0 ? lead_us : waits ? 1000 : 10;
    const int64_t end = now + lead + 8;
    const int64_t lag = 8 * (i % 3 + 1);
    const auto ns = [](int64_t us) { return std::to_string(1000 * us); };
    const std::string id = " correlation=" + std::to_string(i);
    text += "step " + ns(now) + ".." + ns(end) +
            " thread=0 number=" + std::to_string(i) + "\nruntime_call " +
            ns(now + lead) + ".." + ns(now + lead + 2) + " thread=0" + id +
            " cudaLaunchKernel\nkernel " + ns(end + lag - 16) + ".." +
            ns(end + lag) + id + " k\n";
    now = end;
  }
  std::vector<StepWindow> windows = Find(TraceFromText(text)).windows;
  return windows[0].tiled;
}

TEST(TilingTest, TheFirstSpanBeginsAsThoseOfSimilarSteps) {
  // As before the other waiting step, the device is 24 us behind the host.
  EXPECT_EQ(FirstTile(1000).begin_ns, 24'000);
  EXPECT_EQ(FirstTile(1150).begin_ns, 24'000);
}

// Two steps of 100 us with `gap_us` between them. Their kernels end with them.
Span SecondTile(int64_t gap_us) {
  std::string text = "run training_thread=0\n";
  for (int i = 0; i < 2; ++i) {
    const int64_t begin = i * (100 + gap_us);
    const auto ns = [&](int64_t us) { return std::to_string(1000 * us); };
    const std::string id = " correlation=" + std::to_string(i);
    text += "step " + ns(begin) + ".." + ns(begin + 100) +
            " thread=0 number=" + std::to_string(i) + "\nruntime_call " +
            ns(begin + 1) + ".." + ns(begin + 2) + " thread=0" + id +
            " cudaLaunchKernel\nkernel " + ns(begin + 3) + ".." +
            ns(begin + 100) + id + " k\n";
  }
  return Find(TraceFromText(text)).windows[1].tiled;
}

TEST(TilingTest, TimeBetweenStepsThatAreApartBelongsToNone) {
  EXPECT_EQ(SecondTile(5).length(), 105'000);
  EXPECT_EQ(SecondTile(6).length(), 100'000);
  EXPECT_EQ(SecondTile(500).length(), 100'000);
}

// The host is done after 40 us, the device after 400.
TEST(TilingTest, WithoutLaunchesADeviceThatLagsIsDividedEqually) {
  const auto tiles = [](bool launches) {
    std::string text = "run training_thread=0\n";
    for (int i = 0; i < 4; ++i) {
      const auto ns = [](int64_t us) { return std::to_string(1000 * us); };
      const std::string id = " correlation=" + std::to_string(i);
      text += "step " + ns(10 * i) + ".." + ns(10 * i + 10) +
              " thread=0 number=" + std::to_string(i) + "\n";
      if (launches) {
        text += "runtime_call " + ns(10 * i + 1) + ".." + ns(10 * i + 2) +
                " thread=0" + id + " cudaLaunchKernel\n";
      }
      text += "kernel " + ns(100 * i) + ".." + ns(100 * i + 100) +
              (launches ? id : "") + " k\n";
    }
    return Find(TraceFromText(text)).windows;
  };
  for (const bool launches : {false, true}) {
    EXPECT_EQ(tiles(launches)[2].tiled, (Span{200'000, 300'000})) << launches;
  }
}

}  // namespace
}  // namespace stepscope::tiling_test
