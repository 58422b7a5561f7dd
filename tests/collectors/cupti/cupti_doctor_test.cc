#include "cupti_doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectors/cupti/collector_fixture.h"
#include "fakes/fake_nvml.h"
#include "support/temp_folder.h"

namespace stepscope::cupti_doctor_test {
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
  ASSERT_EQ(lines_.size(), 5u);
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
  // libcupti of CUDA 13.2 crashes without a driver.
  sources.cupti = []() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
    ADD_FAILURE() << "CUPTI was loaded without a driver";
    return absl::InternalError("");
  };
  lines_ = CheckCupti(sources);
  EXPECT_FALSE(Line("driver").ok);
  EXPECT_THAT(Line("driver").remedy, HasSubstr("--gpus all"));
  EXPECT_THAT(Line("CUPTI").found, HasSubstr("skipped"));
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

TEST_F(CuptiDoctorTest, ItSaysHowManySwitchesAWindowTakesAndHowLong) {
  lines_ = CheckCupti(Sources());
  EXPECT_THAT(Line("permissions").found,
              testing::ContainsRegex("[0-9]+ switches, on in [0-9.]+ ms, off "
                                     "in [0-9.]+ ms"));
}

TEST_F(CuptiDoctorTest, HardwareCountersAreTried) {
  lines_ = CheckCupti(Sources());
  EXPECT_THAT(Line("counters").found,
              testing::StartsWith("hardware counters can be sampled"));
  EXPECT_EQ(FakeCounters::Get().claimed(), 0);

  FakeCounters::Get().Set([](FakeCounters::Settings& settings) {
    settings.failures["Enable"] = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  });
  lines_ = CheckCupti(Sources());
  EXPECT_THAT(Line("counters").found, HasSubstr("cannot be sampled"));
  EXPECT_THAT(Line("counters").remedy,
              HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  // The user did not ask for counters.
  EXPECT_TRUE(Line("counters").ok);
}

TEST_F(CuptiDoctorTest, OldLibrariesHaveNoCounters) {
  FakeCupti old(22);
  auto sources = Sources();
  sources.cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
    return old.Api();
  };
  lines_ = CheckCupti(sources);
  EXPECT_THAT(Line("counters").found, HasSubstr("CUDA 12.6"));
}

TEST_F(CuptiDoctorTest, AVersionThatMayHangIsNamed) {
  EXPECT_THAT(CheckCupti(Sources())[1].found,
              testing::Not(HasSubstr("deadlock")));
  FakeCupti risky(130000);
  auto sources = Sources();
  sources.cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
    return risky.Api();
  };
  lines_ = CheckCupti(sources);
  EXPECT_THAT(Line("CUPTI").found, HasSubstr("nvidia-cuda-cupti==13.0.85"));
}

TEST_F(CuptiDoctorTest, ClocksComeWithAReading) {
  FakeNvml nvml;
  nvml.SetDevices(
      {{.uuid = {1},
        .reading = {
            .sm_clock_mhz = 1980, .temperature_c = 40, .power_mw = 120'500}}});
  driver_.devices[0].uuid = {1};
  auto sources = Sources();
  sources.nvml = [&]() -> absl::StatusOr<std::unique_ptr<NvmlApi>> {
    return nvml.Api();
  };
  lines_ = CheckCupti(sources);
  EXPECT_EQ(Line("clocks").found, "NVML: SM clock 1980 MHz, 120 W, 40 C");
  sources.nvml = []() -> absl::StatusOr<std::unique_ptr<NvmlApi>> {
    return absl::UnavailableError("NVML: no libnvidia-ml.so.1");
  };
  lines_ = CheckCupti(sources);
  EXPECT_EQ(Line("clocks").found, "NVML: no libnvidia-ml.so.1");
  EXPECT_TRUE(Line("clocks").ok);  // a recording works without clocks
}

TEST_F(CuptiDoctorTest, TorchsOwnMonitorIsNamed) {
  TempFolder site;
  (void)site.Write("torch/lib/libtorch_cpu.so", "");
  AddTorchMonitor(site.At("torch/lib"), &lines_);
  EXPECT_TRUE(lines_.empty());
  (void)site.Write("torch/profiler/_cupti/monitor.py", "");
  AddTorchMonitor(site.At("torch/lib"), &lines_);
  EXPECT_THAT(Line("other tools").found, HasSubstr("torch.profiler._cupti"));
  EXPECT_TRUE(Line("other tools").ok);
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
}  // namespace stepscope::cupti_doctor_test
