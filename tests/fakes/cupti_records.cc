#include "fakes/cupti_records.h"

#include <array>

namespace stepscope {
namespace {

// From `version` on, records of `kind` have `bytes` bytes.
struct Grown {
  uint32_t kind;
  uint32_t version;
  uint16_t bytes;
};
// Sizes up to 13.1 were read from libcupti itself, which can step over records
// without a GPU. Sizes of 13.2 and later are from NVIDIA's headers, because
// these libraries need a driver (tests/collectors/cupti/real_cupti_test.cc).
constexpr Grown kSizes[] = {
    {CUPTI_ACTIVITY_KIND_MEMCPY, 0, 88},
    {CUPTI_ACTIVITY_KIND_MEMCPY, 26, 96},
    {CUPTI_ACTIVITY_KIND_MEMCPY, 130400, 112},
    {CUPTI_ACTIVITY_KIND_MEMSET, 0, 88},
    {CUPTI_ACTIVITY_KIND_MEMSET, 130400, 104},
    {CUPTI_ACTIVITY_KIND_KERNEL, 0, 208},
    {CUPTI_ACTIVITY_KIND_KERNEL, 130000, 216},
    {CUPTI_ACTIVITY_KIND_KERNEL, 130100, 224},
    {CUPTI_ACTIVITY_KIND_KERNEL, 130300, 232},
    {CUPTI_ACTIVITY_KIND_KERNEL, 130400, 248},
    {CUPTI_ACTIVITY_KIND_DRIVER, 0, 40},
    {CUPTI_ACTIVITY_KIND_RUNTIME, 0, 40},
    {CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API, 0, 40},
    {CUPTI_ACTIVITY_KIND_DEVICE, 0, 176},
    {CUPTI_ACTIVITY_KIND_DEVICE, 20, 184},
    {CUPTI_ACTIVITY_KIND_DEVICE, 130200, 192},
    {CUPTI_ACTIVITY_KIND_CONTEXT, 0, 16},
    {CUPTI_ACTIVITY_KIND_CONTEXT, 22, 24},
    {CUPTI_ACTIVITY_KIND_CONTEXT, 23, 32},
    {CUPTI_ACTIVITY_KIND_CONTEXT, 130100, 40},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0, 208},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 130000, 216},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 130100, 224},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 130300, 232},
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 130400, 248},
    {CUPTI_ACTIVITY_KIND_NAME, 0, 32},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 0, 40},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 21, 48},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, 22, 56},
    {CUPTI_ACTIVITY_KIND_ENVIRONMENT, 0, 40},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, 0, 96},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, 0, 24},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, 26, 56},
    {CUPTI_ACTIVITY_KIND_CUDA_EVENT, 130500, 80},
    {CUPTI_ACTIVITY_KIND_STREAM, 0, 24},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 0, 40},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 26, 56},
    {CUPTI_ACTIVITY_KIND_MEMORY2, 0, 120},
    {CUPTI_ACTIVITY_KIND_MEMORY2, 24, 128},
    {CUPTI_ACTIVITY_KIND_MEMORY_POOL, 0, 72},
    {CUPTI_ACTIVITY_KIND_MEMORY_POOL, 130000, 80},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, 0, 48},
    {CUPTI_ACTIVITY_KIND_GRAPH_TRACE, 21, 56},
    // A kind that the decoder does not use.
    {CUPTI_ACTIVITY_KIND_JIT, 0, 64},
    {CUPTI_ACTIVITY_KIND_JIT, 22, 72},
};

}  // namespace

// This is called twice per record, so the last version's table is cached.
size_t RecordBytesOf(uint32_t kind, uint32_t version) {
  struct Sizes {
    uint32_t version = UINT32_MAX;
    std::array<uint16_t, 64> bytes = {};
  };
  thread_local Sizes sizes;
  if (sizes.version != version) {
    sizes = {.version = version};
    for (const Grown& row : kSizes) {
      if (version >= row.version) sizes.bytes[row.kind] = row.bytes;
    }
  }
  return kind < sizes.bytes.size() ? sizes.bytes[kind] : 0;
}

CUptiResult StepRecord(const uint8_t* buffer, size_t valid_bytes,
                       uint32_t version, CUpti_Activity** record) {
  if (buffer == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto bytes_at = [&](size_t at) -> size_t {
    uint32_t kind = 0;
    if (at + sizeof(kind) > valid_bytes) return 0;
    std::memcpy(&kind, buffer + at, sizeof(kind));
    return RecordBytesOf(kind, version);
  };
  size_t at = 0;
  if (*record != nullptr) {
    at = static_cast<size_t>(reinterpret_cast<uint8_t*>(*record) - buffer);
    at += bytes_at(at);
  }
  if (at + sizeof(uint32_t) > valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  const size_t bytes = bytes_at(at);
  if (bytes == 0) return CUPTI_ERROR_INVALID_KIND;
  if (at + bytes > valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record =
      reinterpret_cast<CUpti_Activity*>(const_cast<uint8_t*>(buffer) + at);
  return CUPTI_SUCCESS;
}

}  // namespace stepscope
