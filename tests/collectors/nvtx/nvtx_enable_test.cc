// NVTX chooses its tool once per process, so each case runs in its own process.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>
#include <stepscope/nvtx.h>

#include <cstdlib>
#include <string>

#include "nvtx_window.h"

namespace stepscope::nvtx_enable_test {
namespace {

TEST(NvtxEnableDeathTest, LeavesAnotherToolInPlaceAndNamesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("NVTX_INJECTION64_PATH", "/opt/tool/libtool.so", 1);
        const absl::Status status = MakeNvtxCollector()->Start();
        fprintf(stderr, "%s\n%s\n", status.ToString().c_str(),
                getenv("NVTX_INJECTION64_PATH"));
        _exit(absl::IsUnavailable(status) ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "go to \"/opt/tool/libtool.so\".*unset it(.|\n)*/opt/tool/libtool.so\n");
}

TEST(NvtxEnableDeathTest, SetsTheVariableOnceAndFindsItselfAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        unsetenv("NVTX_INJECTION64_PATH");
        const bool enabled = EnableNvtx().ok();
        const char* value = getenv("NVTX_INJECTION64_PATH");
        // As in a child of this program, the variable is already set, by us.
        setenv("NVTX_TEST", "1", 1);
        _exit(enabled && value != nullptr && *value == '\0' && EnableNvtx().ok()
                  ? 0
                  : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(NvtxEnableDeathTest, AChildThatInheritsTheVariableRecordsToo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("NVTX_INJECTION64_PATH", "", 1);
        NvtxWindow window;
        nvtxMarkA("mark");
        _exit(window.Take().ranges().size() == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(NvtxEnableDeathTest, TheProgramItselfIsRecordedHoweverLateItIsEnabled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        unsetenv("NVTX_INJECTION64_PATH");
        nvtxRangePushA("NVTX is set up by this call");
        NvtxWindow window;
        nvtxMarkA("mark");
        _exit(window.Take().ranges().size() == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stepscope::nvtx_enable_test
