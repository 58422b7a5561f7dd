// Tests the loader on libfakecupti.so, which has CUPTI's symbols, and on
// NVIDIA's own library if the headers' wheel contains it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/slot_walk.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "api/api_calls.h"
#include "api/cupti_status.h"
#include "collectors/cupti/collector_fixture.h"

namespace stepscope::cupti_load_test {
namespace {

using testing::HasSubstr;

std::string RealCupti() {
  const std::filesystem::path folder = STEPSCOPE_CUPTI_LIBRARY_FOLDER;
  for (const char* name : {"libcupti.so.13", "libcupti.so"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  return "";
}

bool HasDriver() { return LoadCudaDriver().ok(); }

TEST(CuptiLoadTest, TheNamedFileIsLoadedAndTellsItsVersion) {
  const auto api = LoadCupti({.path = STEPSCOPE_FAKE_CUPTI});
  ASSERT_TRUE(api.ok()) << Message(api.status());
  EXPECT_EQ((*api)->version(), 130001u);
  EXPECT_THAT((*api)->library(), HasSubstr("libfakecupti.so"));
}

TEST(CuptiLoadTest, AMissingFileIsUnavailableWithTheRemedy) {
  const auto api = LoadCupti({.path = "/nowhere/libcupti.so.13"});
  EXPECT_TRUE(absl::IsUnavailable(api.status()));
  EXPECT_THAT(Message(api.status()), HasSubstr("pip install"));
  EXPECT_THAT(Message(api.status()), HasSubstr("/nowhere/libcupti.so.13"));
}

TEST(CuptiLoadTest, AnotherLibraryUnderItsNameIsRefused) {
  const auto api = LoadCupti({.path = "libm.so.6"});
  EXPECT_TRUE(absl::IsFailedPrecondition(api.status()));
  EXPECT_THAT(Message(api.status()), HasSubstr("cuptiGetVersion"));
}

TEST(CuptiLoadTest, TheHoldersNameComesThroughTheCInterface) {
  const auto api = LoadCupti({.path = STEPSCOPE_FAKE_CUPTI});
  ASSERT_TRUE(api.ok());
  CUpti_SubscriberHandle first = nullptr;
  CUpti_SubscriberHandle second = nullptr;
  std::string holder;
  const auto nothing = [](void*, CUpti_CallbackDomain, CUpti_CallbackId,
                          const void*) {};
  ASSERT_EQ((*api)->Subscribe(&first, nothing, nullptr, &holder),
            CUPTI_SUCCESS);
  EXPECT_EQ(holder, "");
  EXPECT_EQ((*api)->Subscribe(&second, nothing, nullptr, &holder),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(holder, "CUPTI for stepscope");
  EXPECT_EQ((*api)->Unsubscribe(first), CUPTI_SUCCESS);
}

TEST(CuptiLoadTest, AWholeWindowRunsThroughTheCInterface) {
  void* library = dlopen(STEPSCOPE_FAKE_CUPTI, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(STEPSCOPE_FAKE_CUPTI, RTLD_NOW);
  ASSERT_NE(library, nullptr);
  FakeCupti* fake = reinterpret_cast<FakeCupti* (*)()>(
      dlsym(library, "FakeCuptiInLibrary"))();
  auto collector = MakeCuptiCollector(
      {}, {.driver = [] { return LoadCudaDriver(STEPSCOPE_FAKE_CUPTI); },
           .cupti = [] { return LoadCupti({.path = STEPSCOPE_FAKE_CUPTI}); }});
  const ClockReading begin = ReadClock();
  const absl::Status started = collector->Start();
  ASSERT_TRUE(started.ok()) << Message(started);
  collector->OnStep(0, NowNs());
  const auto now = static_cast<uint64_t>(NowNs());
  fake->Queue(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, now, now + 5, 1));
  auto kernel =
      KernelRecord({.start = now + 9, .end = now + 99, .correlation = 1}, "k");
  kernel.gridX = 216;
  fake->Queue(kernel);
  auto recording = collector->Stop();
  ASSERT_TRUE(recording.ok());
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(begin, ReadClock()), SlotLog());
  const Trace trace = builder.Build();
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.kernels()[0].call, 0u);
  EXPECT_FLOAT_EQ(trace.kernels()[0].occupancy_frac, 2 * 4.0f / 64);
  ASSERT_EQ(trace.run().devices.size(), 1u);
  EXPECT_EQ(trace.run().devices[0].name, "Fake A100");
  EXPECT_EQ(trace.run().devices[0].memory_bandwidth_bytes_per_s, 1555200000000);
  ASSERT_EQ(trace.device_samples().size(), 1u);
  EXPECT_EQ(trace.device_samples()[0].free_bytes, int64_t{30} << 30);
  EXPECT_TRUE(trace.losses().empty());
}

TEST(CudaDriverLoadTest, WithoutADriverItSaysSo) {
  const auto driver = LoadCudaDriver("/nowhere/libcuda.so.1");
  EXPECT_TRUE(absl::IsUnavailable(driver.status()));
  EXPECT_EQ(Message(driver.status()),
            "CUPTI: no NVIDIA driver found: recording CPU only");
}

TEST(CudaDriverLoadTest, AnotherLibraryUnderItsNameIsNoDriver) {
  EXPECT_TRUE(absl::IsUnavailable(LoadCudaDriver("libm.so.6").status()));
}

TEST(VersionTest, CuptisNumbersReadAsCudas) {
  EXPECT_EQ(CudaVersionOf(18), "12.0");
  EXPECT_EQ(CudaVersionOf(19), "12.0");
  EXPECT_EQ(CudaVersionOf(24), "12.6");
  EXPECT_EQ(CudaVersionOf(28), "12.9");
  EXPECT_EQ(CudaVersionOf(130001), "13.0 Update 1");
  EXPECT_EQ(CudaVersionOf(130200), "13.2");
  EXPECT_EQ(CudaVersionOf(7), "");
}

class VersionInLibraryTest : public testing::TestWithParam<const char*> {};

// The library reads its environment once, so each version needs its own
// process.
absl::Status LoadWithVersion(const char* version) {
  setenv("FAKE_CUPTI_VERSION", version, 1);
  return LoadCupti({.path = STEPSCOPE_FAKE_CUPTI}).status();
}
using VersionDeathTest = VersionInLibraryTest;

TEST_P(VersionDeathTest, IsRefusedWithWhatIsUnderstood) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const absl::Status status = LoadWithVersion(GetParam());
        fprintf(stderr, "%s\n", Message(status).c_str());
        std::exit(absl::IsFailedPrecondition(status) ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      std::string("is version ") + GetParam() + ".*CUDA 12.0 to 13.x");
}
INSTANTIATE_TEST_SUITE_P(OlderAndNewer, VersionDeathTest,
                         testing::Values("17", "140000"));

class RealCuptiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (RealCupti().empty()) GTEST_SKIP() << "no libcupti beside the headers";
    auto api = LoadCupti({.path = RealCupti()});
    ASSERT_TRUE(api.ok()) << Message(api.status());
    api_ = *std::move(api);
  }
  std::unique_ptr<CuptiApi> api_;
};

TEST_F(RealCuptiTest, ItsNamesChooseTheCallsToLeaveOut) {
  const auto names = [&](CUpti_CallbackDomain domain) {
    std::set<std::string> names;
    for (const uint32_t id : CallsToLeaveOut(*api_, domain)) {
      const char* name = nullptr;
      EXPECT_EQ(api_->GetCallbackName(domain, id, &name), CUPTI_SUCCESS);
      names.insert(std::string(CallName(name)));
    }
    return names;
  };
  const auto runtime = names(CUPTI_CB_DOMAIN_RUNTIME_API);
  for (const char* name :
       {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync",
        "cudaMemsetAsync", "cudaStreamSynchronize", "cudaDeviceSynchronize",
        "cudaEventRecord", "cudaStreamWaitEvent", "cudaMalloc", "cudaFree",
        "cudaGraphLaunch", "cudaHostAlloc"}) {
    EXPECT_FALSE(runtime.contains(name)) << name;
  }
  for (const char* name : {"cudaGetDevice", "cudaGetLastError",
                           "cudaStreamIsCapturing", "cudaEventCreate"}) {
    EXPECT_TRUE(runtime.contains(name)) << name;
  }
  const auto driver = names(CUPTI_CB_DOMAIN_DRIVER_API);
  EXPECT_FALSE(driver.contains("cuLaunchKernel"));
  EXPECT_FALSE(driver.contains("cuLaunchKernelEx"));
  EXPECT_TRUE(driver.contains("cuCtxGetCurrent"));
}

// The decoder steps with the sizes that the library reports. They must be those
// of the headers of this build, which the fake uses.
TEST_F(RealCuptiTest, ItStepsOverRecordsAsTheFakeDoes) {
  const uint32_t version = api_->version();
  for (uint32_t kind = 1; kind < 56; ++kind) {
    const size_t ours = RecordBytesOf(kind, version);
    if (ours == 0) continue;
    alignas(8) uint8_t bytes[1024] = {};
    std::memcpy(bytes, &kind, sizeof(kind));
    std::memcpy(bytes + ours, &kind, sizeof(kind));
    CUpti_Activity* record = nullptr;
    ASSERT_EQ(api_->GetNextRecord(bytes, sizeof(bytes), &record), CUPTI_SUCCESS)
        << kind;
    ASSERT_EQ(api_->GetNextRecord(bytes, sizeof(bytes), &record), CUPTI_SUCCESS)
        << kind;
    EXPECT_EQ(reinterpret_cast<uint8_t*>(record) - bytes,
              static_cast<std::ptrdiff_t>(ours))
        << "kind " << kind;
  }
}

TEST_F(RealCuptiTest, RecordsByHandAreDecodedThroughIt) {
  RecordBuffer buffer;
  buffer.Add(KernelRecord({.start = 100, .end = 300, .correlation = 1}, "k"))
      .Add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, 10, 20, 1))
      .Add(MemsetRecord({.start = 400, .end = 500}, 64));
  const CuptiBuffer view = {buffer.bytes().data(), buffer.bytes().size()};
  TraceBuilder builder;
  const CuptiDecodeResult result = DecodeCupti(
      {.buffers = {&view, 1},
       .times = PlainTimes(),
       .text = [](const char* text) { return std::string_view(text); }},
      *api_, builder);
  EXPECT_EQ(result.records, 3);
  EXPECT_EQ(result.damaged_buffers, 0);
  const Trace trace = builder.Build();
  EXPECT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.name(trace.runtime_calls()[0].name), "cudaLaunchKernel");
}

TEST_F(RealCuptiTest, WithoutADriverItIsTheDriverThatIsMissed) {
  if (HasDriver()) GTEST_SKIP() << "this machine has a driver";
  auto collector = MakeCuptiCollector(CuptiOptions());
  const absl::Status started = collector->Start();
  EXPECT_TRUE(absl::IsUnavailable(started));
  EXPECT_EQ(Message(started),
            "CUPTI: no NVIDIA driver found: recording CPU only");
}

// Checks the library's own answers without a driver if it were called anyway.
TEST_F(RealCuptiTest, WithoutADriverItRefusesEverythingWithoutHarm) {
  if (HasDriver()) GTEST_SKIP() << "this machine has a driver";
  FakeDriver::State driver;
  auto collector = MakeCuptiCollector(
      {}, {.driver = [&]() -> absl::StatusOr<std::unique_ptr<CudaDriver>> {
             return std::unique_ptr<CudaDriver>(
                 std::make_unique<FakeDriver>(&driver));
           },
           .cupti = [] { return LoadCupti({.path = RealCupti()}); }});
  for (int cycle = 0; cycle < 2; ++cycle) {
    const absl::Status started = collector->Start();
    EXPECT_EQ(started.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(Message(started), HasSubstr("(code 999)"));
  }
}

}  // namespace
}  // namespace stepscope::cupti_load_test
