// Decodes any bytes as an activity buffer of any version: the decoder must not
// read beyond the buffer, and all rows must be sane.
//
// The first byte selects the version; the rest is the buffer. Texts are looked
// up in a table, because pointers in such bytes are invalid.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cupti_decode.h"
#include "fakes/fake_cupti.h"

namespace {

using namespace stepscope;

constexpr uint32_t kVersions[] = {19, 22, 28, 130000, 130001, 130500};

void Require(bool holds) {
  if (!holds) std::abort();
}

std::string_view TextOf(const char* pointer) {
  constexpr std::string_view kTexts[] = {"", "gemm", "_ZN1a1bEv", "_Z"};
  return kTexts[reinterpret_cast<uintptr_t>(pointer) % 4];
}

CuptiTimes Times() {
  const ClockMap clock({.ticks = 0, .monotonic_ns = 0, .epoch_ns = 0},
                       {.ticks = 1000, .monotonic_ns = 1000, .epoch_ns = 1000});
  return CuptiTimes({.ticks = 1000, .cupti_ns = 5000, .valid = true},
                    {.ticks = 3000, .cupti_ns = 6999, .valid = true}, clock);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  FakeCupti fake(kVersions[bytes[0] % std::size(kVersions)]);
  const std::unique_ptr<CuptiApi> api = fake.Api();
  // A copy of exactly this size, so that the sanitizers detect reads past its
  // end.
  const std::vector<uint8_t> copy(bytes + 1, bytes + size);
  const CuptiBuffer buffer = {copy.data(), copy.size()};
  TraceBuilder builder;
  const CuptiDecodeResult result =
      DecodeCupti({.buffers = {&buffer, 1}, .times = Times(), .text = TextOf},
                  *api, builder);
  AddLosses(result, fake.version(), builder);
  const Trace trace = builder.Build();

  Require(result.records <= static_cast<int64_t>(copy.size() / 4 + 1));
  for (const Kernel& kernel : trace.kernels()) {
    Require(kernel.begin_ns <= kernel.end_ns);
    Require(kernel.name < trace.name_count());
    Require(kernel.occupancy_frac >= -1 && kernel.occupancy_frac <= 1);
  }
  for (const Copy& copy : trace.copies()) Require(copy.begin_ns <= copy.end_ns);
  for (const RuntimeCall& call : trace.runtime_calls()) {
    Require(call.begin_ns <= call.end_ns);
    Require(call.thread < trace.threads().size());
  }
  for (const Sync& sync : trace.syncs()) Require(sync.begin_ns <= sync.end_ns);
  return 0;
}
