#include "cupti_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cupti_decode.h"

namespace stepscope {

CuptiDecoder::CuptiDecoder(const CuptiRecords& records, const CuptiApi& api,
                           TraceBuilder& builder)
    : records_(records), api_(api), builder_(builder) {
  // Larger ordinals come from damaged data and must not size the table.
  for (const DeviceLimits& device : records.devices) {
    if (device.ordinal < 0 || device.ordinal > 0xffff) continue;
    const auto ordinal = static_cast<size_t>(device.ordinal);
    if (devices_.size() <= ordinal) devices_.resize(ordinal + 1);
    devices_[ordinal] = device;
  }
  constexpr DeviceUuid kUnknown{};
  has_uuids_ =
      !devices_.empty() && std::all_of(devices_.begin(), devices_.end(),
                                       [&](const DeviceLimits& device) {
                                         return device.uuid != kUnknown;
                                       });
}

// Estimates the sizes of the tables from the counts in the first buffer,
// because growing them would take most of the decoding time.
void CuptiDecoder::Reserve() {
  if (records_.buffers.empty() || records_.buffers[0].valid_bytes == 0) return;
  const CuptiBuffer& first = records_.buffers[0];
  const uint8_t* const end = first.data + first.valid_bytes;
  size_t calls = 0;
  size_t kernels = 0;
  size_t copies = 0;
  CUpti_Activity* record = nullptr;
  const uint8_t* last = nullptr;
  // The same walk as Walk(), but it only counts. It ends where Walk() would
  // find an error.
  while (api_.GetNextRecord(first.data, first.valid_bytes, &record) ==
         CUPTI_SUCCESS) {
    const auto* at = reinterpret_cast<const uint8_t*>(record);
    const uint8_t* const least = last == nullptr ? first.data : last + 1;
    if (at < least || at + sizeof(uint32_t) > end) break;
    last = at;
    uint32_t kind = 0;
    std::memcpy(&kind, at, sizeof(kind));
    calls += kind == CUPTI_ACTIVITY_KIND_RUNTIME;
    kernels += kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    copies += kind == CUPTI_ACTIVITY_KIND_MEMCPY;
  }
  size_t bytes = 0;
  for (const CuptiBuffer& buffer : records_.buffers) {
    bytes += buffer.valid_bytes;
  }
  // 10 % more than the estimate, because the kinds of records vary from buffer
  // to buffer. The reserve costs little, while a table that must grow is
  // copied.
  const double times = records_.buffers.size() == 1
                           ? 1.0
                           : 1.1 * static_cast<double>(bytes) /
                                 static_cast<double>(first.valid_bytes);
  const auto scaled = [&](size_t count) {
    return static_cast<size_t>(static_cast<double>(count) * times);
  };
  builder_.Reserve(scaled(calls), scaled(kernels), scaled(copies));
  runtime_correlations_.reserve(scaled(calls));
}

// The links come last, because buffers are not in the order of time: a wait may
// be in an earlier buffer than the event that it waits for.
CuptiDecodeResult CuptiDecoder::Decode() {
  Reserve();
  for (const CuptiBuffer& buffer : records_.buffers) Walk(buffer);
  LinkCalls();
  CheckGraphLaunches();
  LinkWaits();
  LinkStreams();
  AddDevices();
  return result_;
}

// A record is decoded when the next one is found, because only then its length
// is known.
void CuptiDecoder::Walk(const CuptiBuffer& buffer) {
  if (buffer.valid_bytes == 0) return;
  const uint8_t* const end = buffer.data + buffer.valid_bytes;
  CUpti_Activity* next = nullptr;
  const uint8_t* record = nullptr;
  for (;;) {
    const CUptiResult step =
        api_.GetNextRecord(buffer.data, buffer.valid_bytes, &next);
    const bool found = step == CUPTI_SUCCESS;
    const auto* following =
        found ? reinterpret_cast<const uint8_t*>(next) : end;
    // If a step leaves the buffer or goes backwards, the walk ends.
    const bool sane = following >= (record == nullptr ? buffer.data : record) &&
                      following <= end && (following != record);
    if (record != nullptr) {
      const uint8_t* const stop = sane ? following : end;
      const std::span<const uint8_t> bytes(record, stop);
      uint32_t kind = 0;
      if (bytes.size() >= sizeof(kind)) {
        std::memcpy(&kind, bytes.data(), sizeof(kind));
        ++result_.records;
        One(kind, RecordBytes(bytes));
      }
    }
    if (!found || !sane) {
      // Records after a broken one are lost, too.
      if (!sane || step != CUPTI_ERROR_MAX_LIMIT_REACHED) {
        ++result_.damaged_buffers;
        result_.damaged_bytes +=
            end - (record == nullptr ? buffer.data : record);
      }
      return;
    }
    record = following;
  }
}

void CuptiDecoder::One(uint32_t kind, const RecordBytes& bytes) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL:
      return AddKernel(bytes);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return AddCopy(bytes);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return AddPeerCopy(bytes);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return AddMemset(bytes);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return AddGraph(bytes);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return AddCall(false, bytes);
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return AddCall(true, bytes);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return AddSync(bytes);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      return AddEvent(bytes);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return AddOverhead(bytes);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return AddDevice(bytes);
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      return AddContext(bytes);
    case CUPTI_ACTIVITY_KIND_STREAM:
      return AddStream(bytes);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return AddMemory(bytes);
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      return AddPool(bytes);
    case CUPTI_ACTIVITY_KIND_ENVIRONMENT:
      return AddEnvironment(bytes);
    case CUPTI_ACTIVITY_KIND_NAME:
      return AddName(bytes);
    default:
      ++result_.unknown_kinds;
  }
}

bool CuptiDecoder::Has(const RecordBytes& bytes, size_t needed) {
  if (bytes.size() >= needed) return true;
  ++result_.short_records;
  return false;
}

// CUPTI leaves a time at 0 if it did not record it.
bool CuptiDecoder::Convert(uint64_t begin, uint64_t end, int64_t* begin_ns,
                           int64_t* end_ns) {
  if (begin == 0 || end == 0) {
    ++result_.no_times;
    return false;
  }
  *begin_ns = ToNs(begin);
  *end_ns = ToNs(end);
  // The second condition holds only for invalid numbers.
  if (end < begin || *end_ns < *begin_ns) {
    ++result_.reversed_times;
    return false;
  }
  return true;
}

std::string_view CuptiDecoder::TextOf(const char* pointer) const {
  if (pointer == nullptr || !records_.text) return {};
  return records_.text(pointer);
}

CuptiDecodeResult DecodeCupti(const CuptiRecords& records, const CuptiApi& api,
                              TraceBuilder& builder) {
  return CuptiDecoder(records, api, builder).Decode();
}

void AddLosses(const CuptiDecodeResult& result, uint32_t version,
               TraceBuilder& builder) {
  if (result.wrong_launches > 0) {
    builder.Add(Loss{
        .name = "cupti-wrong-graph-launch",
        .detail =
            "activities of CUDA graphs have the correlation ID of a call that "
            "launches no graph; they are kept, but linked to no launch. CUPTI "
            "of CUDA 13.0 and 13.1 does this from a process's second recording "
            "on; CUDA 13.1 Update 1 fixes it. This process uses the CUPTI of "
            "CUDA " +
            CudaVersionOf(version),
        .count = result.wrong_launches,
        .severity = Severity::kWarning});
  }
  if (result.unknown_nodes > 0) {
    builder.Add(Loss{
        .name = "cupti-unknown-captures",
        .detail =
            "kernels of CUDA graphs have no operator, because their graphs "
            "were captured when stepscope did not listen; it listens from the "
            "creation of the Profile to the end of its first window, and in "
            "every later window",
        .count = result.unknown_nodes,
        .severity = Severity::kNote});
  }
  if (version > kNewestKnownCupti) {
    builder.Add(
        Loss{.name = "cupti-newer-than-known",
             .detail = "CUPTI of CUDA " + CudaVersionOf(version) +
                       " is newer than this version of stepscope, which "
                       "reads its records as those of CUDA 13.5; if times "
                       "or names look wrong, use a newer stepscope",
             .count = -1,
             .severity = Severity::kNote});
  }
  if (result.damaged_buffers > 0) {
    builder.Add(Loss{.name = "cupti-damaged-buffer",
                     .detail =
                         "CUPTI found no further record in one of its "
                         "buffers; the GPU records after that place are lost",
                     .count = -1,
                     .severity = Severity::kWarning});
  }
  if (result.short_records > 0) {
    builder.Add(Loss{.name = "cupti-short-record",
                     .detail = "GPU records shorter than any known version's "
                               "were left out; the library may be damaged",
                     .count = result.short_records,
                     .severity = Severity::kWarning});
  }
  if (result.no_times > 0) {
    builder.Add(Loss{
        .name = "cupti-no-times",
        .detail = "GPU activities without times were left out: they were "
                  "unfinished when the window closed, or CUPTI was short of "
                  "device memory",
        .count = result.no_times,
        .severity = Severity::kWarning});
  }
  if (result.reversed_times > 0) {
    builder.Add(Loss{.name = "cupti-reversed-times",
                     .detail = "GPU records that ended before they began were "
                               "left out; the clock may have been set during "
                               "the window",
                     .count = result.reversed_times,
                     .severity = Severity::kWarning});
  }
  if (result.unknown_kinds > 0) {
    builder.Add(Loss{.name = "cupti-unknown-kind",
                     .detail =
                         "GPU records of kinds that this version does not know "
                         "were left out",
                     .count = result.unknown_kinds,
                     .severity = Severity::kNote});
  }
}

}  // namespace stepscope
