#include "cupti_doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectors/cupti/collector_fixture.h"

namespace stepscope {
namespace {

using testing::HasSubstr;

class CuptiDoctorTest : public CuptiCollectorFixture {
 protected:
  CuptiDoctorTest() {
    driver_.devices = {{.ordinal = 0, .name = "Fake A100", .sm_count = 108}};
  }
  const DoctorLine& Line(const std::string& topic) {
    const auto found =
        std::find_if(lines_.begin(), lines_.end(),
                     [&](const DoctorLine& l) { return l.topic == topic; });
    if (found == lines_.end()) {
      ADD_FAILURE() << "no line about " << topic;
      static const DoctorLine kNone;
      return kNone;
    }
    return *found;
  }
  std::vector<DoctorLine> lines_;
};

TEST_F(CuptiDoctorTest, AHealthyMachineNeedsNothing) {
  lines_ = CheckCupti(Sources());
  ASSERT_EQ(lines_.size(), 4u);
  for (const DoctorLine& line : lines_) {
    EXPECT_TRUE(line.ok) << line.topic << ": " << line.found;
    EXPECT_EQ(line.remedy, "");
    EXPECT_NE(line.found, "");
  }
  EXPECT_EQ(Line("driver").found, "CUDA 13.0, 1 device (Fake A100)");
  EXPECT_THAT(Line("CUPTI").found, HasSubstr("CUDA 13.0"));
  ExpectNothingLeftBehind();
  EXPECT_EQ(fake_.finalized(), 0);
}

TEST_F(CuptiDoctorTest, WithoutADriverTheRestIsNotLookedAt) {
  auto sources = Sources();
  sources.driver = [] {
    return absl::StatusOr<std::unique_ptr<CudaDriver>>(
        absl::UnavailableError("none"));
  };
  lines_ = CheckCupti(sources);
  EXPECT_FALSE(Line("driver").ok);
  EXPECT_THAT(Line("driver").remedy, HasSubstr("--gpus all"));
  EXPECT_TRUE(Line("CUPTI").ok);
  EXPECT_FALSE(Line("permissions").ok);
  EXPECT_THAT(Line("permissions").found, HasSubstr("skipped"));
  for (const DoctorLine& line : lines_)
    EXPECT_EQ(line.no_gpu, !line.ok) << line.topic;
}

TEST_F(CuptiDoctorTest, AMissingCuptiComesWithItsRemedy) {
  auto sources = Sources();
  sources.cupti = [] { return LoadCupti({.path = "/nowhere/libcupti.so"}); };
  lines_ = CheckCupti(sources);
  EXPECT_FALSE(Line("CUPTI").ok);
  EXPECT_FALSE(Line("CUPTI").no_gpu);
  EXPECT_THAT(Line("CUPTI").remedy, HasSubstr("pip install"));
}

TEST_F(CuptiDoctorTest, WhoeverHoldsCuptiIsNamed) {
  fake_.HoldBy("CUPTI for Nsight Systems");
  lines_ = CheckCupti(Sources());
  EXPECT_FALSE(Line("subscription").ok);
  EXPECT_THAT(Line("subscription").remedy, HasSubstr("Nsight Systems"));
  EXPECT_THAT(Line("subscription").found, HasSubstr("(code 39)"));
}

TEST_F(CuptiDoctorTest, MissingPermissionComesWithItsRemedy) {
  fake_.FailKind(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                 CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  lines_ = CheckCupti(Sources());
  EXPECT_TRUE(Line("subscription").ok);
  EXPECT_FALSE(Line("permissions").ok);
  EXPECT_THAT(Line("permissions").remedy,
              HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  ExpectNothingLeftBehind();
}

TEST_F(CuptiDoctorTest, ADriverWithoutDevicesIsNotWell) {
  driver_.devices.clear();
  lines_ = CheckCupti(Sources());
  EXPECT_FALSE(Line("driver").ok);
  EXPECT_THAT(Line("driver").remedy, HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST_F(CuptiDoctorTest, ADriverThatCannotStartIsNotAskedForMore) {
  driver_.initialize = absl::UnavailableError("cuInit gave 803");
  lines_ = CheckCupti(Sources());
  EXPECT_FALSE(Line("driver").ok);
  EXPECT_EQ(Line("driver").found, "CUDA 13.0, cuInit gave 803");
  EXPECT_THAT(Line("driver").remedy, HasSubstr("nvidia-smi"));
  EXPECT_THAT(Line("subscription").found, HasSubstr("skipped"));
  EXPECT_EQ(fake_.call_count(), 0);
}

}  // namespace
}  // namespace stepscope
