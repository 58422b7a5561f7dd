#include "api/cupti_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectors/cupti/collector_fixture.h"

namespace stepscope::cupti_status_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class CuptiStatusTest : public testing::Test {
 protected:
  absl::Status Of(CUptiResult code, std::string_view holder = {}) {
    return CuptiError(*api_, "record kernels", code, holder);
  }
  FakeCupti fake_{22};
  std::unique_ptr<CuptiApi> api_ = fake_.Api();
};

TEST_F(CuptiStatusTest, SaysTheAttemptTheAnswerAndTheCode) {
  EXPECT_THAT(Message(Of(CUPTI_ERROR_UNKNOWN)),
              StartsWith("CUPTI: cannot record kernels: CUPTI_ERROR_999 (code "
                         "999): "));
}

TEST_F(CuptiStatusTest, NamesTheHolderWhereItIsKnown) {
  EXPECT_THAT(Message(Of(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
                         "CUPTI for DCGM")),
              HasSubstr("held by \"CUPTI for DCGM\""));
  EXPECT_THAT(Message(Of(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)),
              HasSubstr("another profiler"));
}

TEST_F(CuptiStatusTest, AMisfitNamesTheLibraryAndItsVersion) {
  EXPECT_THAT(Message(Of(CUPTI_ERROR_NOT_INITIALIZED)),
              HasSubstr("libfakecupti.so (CUDA 12.4)"));
}

TEST_F(CuptiStatusTest, NoCodeIsOk) {
  for (int code = 1; code < 60; ++code) {
    EXPECT_FALSE(Of(static_cast<CUptiResult>(code)).ok());
  }
}

}  // namespace
}  // namespace stepscope::cupti_status_test
