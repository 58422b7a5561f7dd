// Decodes the records of host threads: calls, waits, events and overhead.
#include <algorithm>
#include <cstddef>
#include <tuple>

#include "api/api_calls.h"
#include "cupti_decoder.h"

namespace stepscope {
namespace {

constexpr uint32_t kNone32 = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
constexpr uint32_t kNotReady = 600;  // CUDA_ERROR_NOT_READY
constexpr uint32_t kMostCallIds = 1 << 16;

const char* SyncName(uint32_t type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "Event Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return "Stream Wait Event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "Stream Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return "Context Sync";
    default:
      return "Unknown Sync";
  }
}

const char* OverheadName(uint32_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER:
      return "Driver Compiler";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH:
      return "Buffer Flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION:
      return "Instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE:
      return "Resource";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING:
      return "Runtime Triggered Module Loading";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING:
      return "Lazy Function Loading";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL:
      return "Command Buffer Full";
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST:
      return "Activity Buffer Request";
    case CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT:
      return "UVM Activity Init";
    default:
      return "Unknown Overhead";
  }
}

}  // namespace

// Searches from the back, because consecutive records are mostly of one thread.
RowId CuptiDecoder::ThreadOf(uint32_t pid, uint32_t tid) {
  const uint64_t key = uint64_t{pid} << 32 | tid;
  for (size_t i = threads_.size(); i-- > 0;) {
    if (threads_[i].first == key) return threads_[i].second;
  }
  const RowId row = builder_.ThreadRow(pid, tid);
  // The limit is for damaged buffers, which may name any number of threads.
  if (threads_.size() < 64) threads_.emplace_back(key, row);
  return row;
}

// Returns kSkip for calls that are not worth a row.
NameId CuptiDecoder::CallNameOf(bool is_driver, uint32_t id) {
  const auto look_up = [&]() -> NameId {
    const char* text = nullptr;
    const CUptiResult found = api_.GetCallbackName(
        is_driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API,
        id, &text);
    if (found != CUPTI_SUCCESS || text == nullptr) {
      return builder_.Intern(is_driver ? "unknown driver call"
                                       : "unknown runtime call");
    }
    const std::string_view name = CallName(text);
    if (!records_.all_calls && !IsWorthRecording(name)) return kSkip;
    const NameId row = builder_.Intern(name);
    if (LaunchesGraph(name)) graph_launch_names_.push_back(row);
    return row;
  };
  // Larger ids exist in no known library. They come from damaged records and
  // must not size the cache.
  if (id >= kMostCallIds) return look_up();
  std::vector<NameId>& names = call_names_[is_driver];
  if (names.size() <= id) names.resize(id + 1, 0);
  if (names[id] == 0) names[id] = look_up();
  return names[id];
}

void CuptiDecoder::AddCall(bool is_driver, const RecordBytes& bytes) {
  using Record = CUpti_ActivityAPI;
  if (!Has(bytes, sizeof(Record))) return;
  const auto record = bytes.As<Record>();
  const NameId name = CallNameOf(is_driver, record.cbid);
  if (name == kSkip) return;
  RuntimeCall row;
  if (!Convert(record.start, record.end, &row.begin_ns, &row.end_ns)) return;
  row.correlation = record.correlationId;
  row.name = name;
  row.thread = ThreadOf(record.processId, record.threadId);
  row.return_code = static_cast<int32_t>(record.returnValue);
  row.is_driver = is_driver;
  if (std::find(graph_launch_names_.begin(), graph_launch_names_.end(), name) !=
      graph_launch_names_.end()) {
    graph_launches_.push_back(record.correlationId);
  }
  // Driver calls are held back until all runtime calls are known, because
  // LinkCalls() drops those that were made by a runtime call.
  if (is_driver) {
    driver_calls_.push_back(row);
    return;
  }
  runtime_correlations_.push_back(record.correlationId);
  ++result_.rows;
  builder_.Add(row);
}

// A runtime call makes driver calls with the same correlation id. Only the
// outer call, which the program made, becomes a row.
void CuptiDecoder::LinkCalls() {
  std::sort(runtime_correlations_.begin(), runtime_correlations_.end());
  for (const RuntimeCall& row : driver_calls_) {
    if (std::binary_search(runtime_correlations_.begin(),
                           runtime_correlations_.end(),
                           static_cast<uint32_t>(row.correlation))) {
      continue;
    }
    ++result_.rows;
    builder_.Add(row);
  }
}

// A wait names the event that it waits for. The event is looked up when all
// records have been read.
void CuptiDecoder::AddSync(const RecordBytes& bytes) {
  using Record = CUpti_ActivitySynchronization2;
  if (!Has(bytes, offsetof(Record, cudaEventSyncId))) return;
  const auto record = bytes.As<Record>();
  // Skip a query of an event or a stream, which returned without waiting.
  if (record.returnValue == kNotReady) return;
  Wait wait;
  if (!Convert(record.start, record.end, &wait.row.begin_ns,
               &wait.row.end_ns)) {
    return;
  }
  wait.row.correlation = record.correlationId;
  wait.row.name = builder_.Intern(SyncName(NumberOf(record.type)));
  wait.row.stream =
      record.streamId == kNone32 ? -1 : static_cast<int64_t>(record.streamId);
  wait.context = record.contextId;
  wait.event = record.cudaEventId;
  // The field is 0 in older records, which end before it.
  wait.sync_id = record.cudaEventSyncId == kNone32 ? 0 : record.cudaEventSyncId;
  waits_.push_back(wait);
}

void CuptiDecoder::AddEvent(const RecordBytes& bytes) {
  using Record = CUpti_ActivityCudaEvent2;
  if (!Has(bytes, offsetof(Record, pad))) return;
  const auto record = bytes.As<Record>();
  events_.push_back({.sync_id = record.cudaEventSyncId,
                     .event = record.eventId,
                     .correlation = record.correlationId,
                     .stream = record.streamId});
}

// Finds the cudaEventRecord() that a wait waited for: by CUPTI's number if the
// record has one, else the latest one before the wait.
void CuptiDecoder::LinkWaits() {
  std::vector<const Event*> by_event;
  by_event.reserve(events_.size());
  std::unordered_map<uint64_t, const Event*> by_sync_id;
  for (const Event& event : events_) {
    by_event.push_back(&event);
    if (event.sync_id != 0) by_sync_id.emplace(event.sync_id, &event);
  }
  // Correlation ids rise with time, so the latest record of an event before a
  // wait is the one with the largest id below the wait's id.
  const auto key = [](const Event* event) {
    return std::tuple(event->event, event->correlation);
  };
  std::stable_sort(
      by_event.begin(), by_event.end(),
      [&](const Event* a, const Event* b) { return key(a) < key(b); });

  for (Wait& wait : waits_) {
    const Event* recorded = nullptr;
    if (const auto found = by_sync_id.find(wait.sync_id);
        wait.sync_id != 0 && found != by_sync_id.end()) {
      recorded = found->second;
    } else if (wait.event != kNone32) {
      const std::tuple wanted(wait.event,
                              static_cast<uint32_t>(wait.row.correlation));
      const auto after = std::partition_point(
          by_event.begin(), by_event.end(),
          [&](const Event* event) { return key(event) < wanted; });
      if (after != by_event.begin() && (*(after - 1))->event == wait.event) {
        recorded = *(after - 1);
      }
    }
    if (recorded != nullptr) {
      wait.row.wait_on_stream = recorded->stream;
      wait.row.wait_on_record_correlation = recorded->correlation;
    }
    if (const auto device = device_of_context_.find(wait.context);
        device != device_of_context_.end()) {
      wait.row.device = device->second;
    }
    ++result_.rows;
    builder_.Add(wait.row);
  }
}

void CuptiDecoder::AddOverhead(const RecordBytes& bytes) {
  using Record = CUpti_ActivityOverhead3;
  if (!Has(bytes, offsetof(Record, correlationId))) return;
  const auto record = bytes.As<Record>();
  Overhead row;
  if (!Convert(record.start, record.end, &row.begin_ns, &row.end_ns)) return;
  row.name = builder_.Intern(OverheadName(NumberOf(record.overheadKind)));
  if (NumberOf(record.objectKind) == CUPTI_ACTIVITY_OBJECT_THREAD) {
    row.thread =
        ThreadOf(record.objectId.pt.processId, record.objectId.pt.threadId);
  }
  ++result_.rows;
  builder_.Add(row);
}

}  // namespace stepscope
