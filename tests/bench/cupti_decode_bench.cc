// Measures how many activity records one core decodes per second. The mix is
// that of a training step: launches with their kernels, some copies and waits.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "cupti_decode.h"
#include "fakes/fake_cupti.h"

namespace stepscope {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr int kLaunches = 250'000;
constexpr const char* kNames[] = {
    "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi",
    "ampere_sgemm_128x64_nn", "_ZN2at6native13reduce_kernelILi512EEEvi",
    "cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1"};

// Buffers as CUPTI fills them, and their number of records.
struct Recorded {
  std::vector<std::vector<uint8_t>> buffers;
  int64_t records = 0;

  template <typename Record>
  void Add(const Record& record) {
    if (buffers.empty() ||
        buffers.back().size() + sizeof(record) > kBufferBytes) {
      buffers.emplace_back();
      buffers.back().reserve(kBufferBytes);
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    buffers.back().insert(buffers.back().end(), bytes, bytes + sizeof(record));
    ++records;
  }
};

Recorded Record() {
  Recorded recorded;
  recorded.Add(DeviceRecord(0, "A100"));
  uint64_t now = 1'000'000;
  for (uint32_t i = 1; i <= kLaunches; ++i) {
    recorded.Add(
        CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, now, now + 4000, i));
    auto kernel =
        KernelRecord({.start = now + 5000, .end = now + 9000, .correlation = i},
                     kNames[i % std::size(kNames)]);
    kernel.gridX = 64 + static_cast<int32_t>(i % 512);
    recorded.Add(kernel);
    if (i % 16 == 0) {
      recorded.Add(CopyRecord(
          {.start = now + 9000, .end = now + 9500, .correlation = i},
          CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PINNED,
          CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 4096));
    }
    if (i % 64 == 0) {
      recorded.Add(
          SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
                     now + 9000, now + 9800, i));
    }
    now += 10'000;
  }
  return recorded;
}

CuptiTimes Times() {
  const ClockMap clock(
      {.ticks = 0, .monotonic_ns = 0, .epoch_ns = 0},
      {.ticks = 1'000'000, .monotonic_ns = 1'000'000, .epoch_ns = 1'000'000});
  return CuptiTimes(
      {.ticks = 5000, .cupti_ns = 0, .valid = true},
      {.ticks = 1'000'005'000, .cupti_ns = 1'000'000'100, .valid = true},
      clock);
}

// The time includes adding the rows. It does not include sorting and linking,
// which the builder does once for all sources.
void BM_DecodeCupti(benchmark::State& state) {
  const Recorded recorded = Record();
  std::vector<CuptiBuffer> views;
  for (const auto& buffer : recorded.buffers) {
    views.push_back({buffer.data(), buffer.size()});
  }
  FakeCupti fake;
  const std::unique_ptr<CuptiApi> api = fake.Api();
  for (auto _ : state) {
    auto builder = std::make_unique<TraceBuilder>();
    const CuptiDecodeResult result = DecodeCupti(
        {.buffers = views,
         .times = Times(),
         .text = [](const char* text) { return std::string_view(text); }},
        *api, *builder);
    if (result.records != recorded.records) state.SkipWithError("records lost");
    benchmark::DoNotOptimize(builder.get());
    state.PauseTiming();
    builder.reset();
    state.ResumeTiming();
  }
  state.counters["records_per_s"] =
      benchmark::Counter(static_cast<double>(recorded.records),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_DecodeCupti)
    ->Unit(benchmark::kMillisecond)
    ->Repetitions(10)
    ->ReportAggregatesOnly(true);

}  // namespace
}  // namespace stepscope

BENCHMARK_MAIN();
