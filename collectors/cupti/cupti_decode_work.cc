// Decodes device activities: kernels, copies, memsets and whole graphs.
#include <algorithm>
#include <cstddef>

#include "cupti_decoder.h"

namespace stepscope {
namespace {

constexpr uint8_t kAsync = 1;  // CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, ..MEMSET..

// The kinds of memory of a copy, derived from its direction if CUPTI does not
// know them.
struct Ends {
  MemoryKind source;
  MemoryKind destination;
};
// The direction does not tell whether host memory was pinned.
Ends EndsOf(uint8_t copy_kind) {
  constexpr MemoryKind kHost = MemoryKind::kHost;
  constexpr MemoryKind kDevice = MemoryKind::kDevice;
  constexpr MemoryKind kArray = MemoryKind::kArray;
  switch (copy_kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return {kHost, kDevice};
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return {kDevice, kHost};
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return {kHost, kArray};
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return {kArray, kHost};
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
      return {kArray, kArray};
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
      return {kArray, kDevice};
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
      return {kDevice, kArray};
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return {kDevice, kDevice};
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return {kHost, kHost};
    default:
      return {MemoryKind::kUnknown, MemoryKind::kUnknown};
  }
}

template <typename Record>
Copy CopyOf(const Record& record) {
  Copy row;
  const Ends ends = EndsOf(record.copyKind);
  row.source = MemoryKindOf(record.srcKind);
  row.destination = MemoryKindOf(record.dstKind);
  if (row.source == MemoryKind::kUnknown) row.source = ends.source;
  if (row.destination == MemoryKind::kUnknown) {
    row.destination = ends.destination;
  }
  row.bytes = static_cast<int64_t>(record.bytes);
  row.is_async = (record.flags & kAsync) != 0;
  row.correlation = record.correlationId;
  row.device = static_cast<int32_t>(record.deviceId);
  row.context = static_cast<int32_t>(record.contextId);
  row.stream = record.streamId;
  return row;
}

// CUPTI writes 0 for a time that it did not record.
int64_t Moment(const CuptiTimes& times, uint64_t cupti_ns) {
  return cupti_ns == 0 ? -1 : times.ToNs(cupti_ns);
}

}  // namespace

// Sets the row's times. True if the row is worth adding: it has a begin and an
// end, in this order.
bool CuptiDecoder::Place(uint64_t begin, uint64_t end, DeviceWork& work) {
  if (!Convert(begin, end, &work.begin_ns, &work.end_ns)) return false;
  // Remember each context's device, because synchronization records name only
  // the context.
  if (const auto context = static_cast<uint32_t>(work.context);
      context != last_context_) {
    last_context_ = context;
    device_of_context_.emplace(context, work.device);
  }
  ++result_.rows;
  return true;
}

// Reads the newest layout. Fields beyond the end of an older record are zero
// (record_bytes.h).
void CuptiDecoder::AddKernel(const RecordBytes& bytes) {
  using Record = CUpti_ActivityKernel10;
  // Records of all CUDA 12 versions contain at least the fields before
  // graphNodeId.
  if (!Has(bytes, offsetof(Record, graphNodeId))) return;
  const auto record = bytes.As<Record>();
  Kernel row;
  row.correlation = record.correlationId;
  row.device = static_cast<int32_t>(record.deviceId);
  row.context = static_cast<int32_t>(record.contextId);
  row.stream = record.streamId;
  row.graph = record.graphId;
  row.graph_node = static_cast<int64_t>(record.graphNodeId);
  result_.saw_graphs = result_.saw_graphs || row.graph != 0;
  if (!Place(record.start, record.end, row)) return;
  const char* const name = record.name;
  // CUPTI keeps one text per function, so each name is demangled once per
  // pointer instead of once per launch.
  row.name = kernel_names_.Of(
      name, [&] { return builder_.Intern(Demangle(TextOf(name))); });
  AddCapture(row);
  row.grid = {record.gridX, record.gridY, record.gridZ};
  row.block = {record.blockX, record.blockY, record.blockZ};
  row.registers_per_thread = record.registersPerThread;
  // A Trace has the sum of both parts, in bytes.
  const int64_t shared = static_cast<int64_t>(record.staticSharedMemory) +
                         record.dynamicSharedMemory;
  row.shared_memory_bytes =
      static_cast<int32_t>(std::clamp<int64_t>(shared, -1, INT32_MAX));
  row.queued_ns = Moment(records_.times, record.queued);
  row.submitted_ns = Moment(records_.times, record.submitted);

  // In doubles, because the numbers of a damaged record may overflow an
  // integer.
  const double blocks = static_cast<double>(record.gridX) * record.gridY *
                        static_cast<double>(record.gridZ);
  const double threads = static_cast<double>(record.blockX) * record.blockY *
                         static_cast<double>(record.blockZ);
  // The hardware has no larger grids, so larger numbers come from a damaged
  // record.
  if (blocks > 0 && blocks < 1e18 && threads > 0 && threads <= 4096) {
    const Occupancy occupancy = EstimateOccupancy(
        {.blocks = static_cast<int64_t>(blocks),
         .threads_per_block = static_cast<int32_t>(threads),
         .registers_per_thread = record.registersPerThread,
         .static_shared_bytes = record.staticSharedMemory,
         .dynamic_shared_bytes = record.dynamicSharedMemory,
         .shared_bytes_configured = static_cast<int32_t>(
             std::min<uint32_t>(record.sharedMemoryExecuted, INT32_MAX))},
        LimitsOf(row.device));
    row.blocks_per_sm = occupancy.blocks_per_sm;
    row.warps_per_sm = occupancy.warps_per_sm;
    row.occupancy_frac = occupancy.achieved_frac;
  }
  const RowId added = builder_.Add(row);
  if (row.graph != 0) graph_kernels_.push_back(added);
}

// Sets the place where the kernel's node was captured. It is the same at every
// replay.
void CuptiDecoder::AddCapture(Kernel& row) {
  if (row.graph_node == 0 || records_.graph_nodes == nullptr) return;
  const CapturedAt* const at =
      records_.graph_nodes->Find(static_cast<uint64_t>(row.graph_node));
  if (at == nullptr) {
    ++result_.unknown_nodes;
    return;
  }
  const auto [known, is_new] = captures_.try_emplace(at);
  if (is_new) {
    Stack ops;
    for (const std::string& op : at->ops) {
      ops.frames.push_back(builder_.Intern(op));
    }
    if (!ops.frames.empty()) {
      known->second.ops = builder_.InternStack(std::move(ops));
    }
    known->second.module = builder_.Intern(at->module);
  }
  row.captured_ops = known->second.ops;
  row.captured_module = known->second.module;
}

void CuptiDecoder::AddCopy(const RecordBytes& bytes) {
  using Record = CUpti_ActivityMemcpy6;
  if (!Has(bytes, offsetof(Record, graphNodeId))) return;
  const auto record = bytes.As<Record>();
  Copy row = CopyOf(record);
  if (!Place(record.start, record.end, row)) return;
  const RowId added = builder_.Add(row);
  if (record.graphId != 0) graph_copies_.push_back(added);
}

void CuptiDecoder::AddPeerCopy(const RecordBytes& bytes) {
  using Record = CUpti_ActivityMemcpyPtoP4;
  if (!Has(bytes, offsetof(Record, graphNodeId))) return;
  const auto record = bytes.As<Record>();
  Copy row = CopyOf(record);
  if (!Place(record.start, record.end, row)) return;
  const RowId added = builder_.Add(row);
  if (record.graphId != 0) graph_copies_.push_back(added);
}

void CuptiDecoder::AddMemset(const RecordBytes& bytes) {
  using Record = CUpti_ActivityMemset4;
  if (!Has(bytes, offsetof(Record, graphNodeId))) return;
  const auto record = bytes.As<Record>();
  Memset row;
  row.bytes = static_cast<int64_t>(record.bytes);
  row.correlation = record.correlationId;
  row.device = static_cast<int32_t>(record.deviceId);
  row.context = static_cast<int32_t>(record.contextId);
  row.stream = record.streamId;
  if (!Place(record.start, record.end, row)) return;
  const RowId added = builder_.Add(row);
  if (record.graphId != 0) graph_memsets_.push_back(added);
}

// With whole_graphs, one activity stands for all nodes of a graph. It becomes a
// kernel row, because its time is kernel time. What ran inside is unknown.
void CuptiDecoder::AddGraph(const RecordBytes& bytes) {
  using Record = CUpti_ActivityGraphTrace2;
  if (!Has(bytes, offsetof(Record, reserved))) return;
  const auto record = bytes.As<Record>();
  result_.saw_graphs = true;
  Kernel row;
  row.name = builder_.Intern("CUDA graph");
  row.correlation = record.correlationId;
  row.device = static_cast<int32_t>(record.deviceId);
  row.context = static_cast<int32_t>(record.contextId);
  row.stream = record.streamId;
  row.graph = record.graphId;
  if (Place(record.start, record.end, row)) {
    graph_kernels_.push_back(builder_.Add(row));
  }
}

// Removes wrong launches of graph work. Only a graph launch starts the work of
// a graph. If work names another call, its correlation id is removed, and it
// keeps its own time without a launch. Otherwise it would be counted for that
// call's step, or clipped with that call. A call that was not recorded does no
// harm, because nothing links to it.
// REQUIRES: LinkCalls() has sorted runtime_correlations_.
void CuptiDecoder::CheckGraphLaunches() {
  std::sort(graph_launches_.begin(), graph_launches_.end());
  std::vector<uint32_t> driver_correlations;
  driver_correlations.reserve(driver_calls_.size());
  for (const RuntimeCall& call : driver_calls_) {
    driver_correlations.push_back(static_cast<uint32_t>(call.correlation));
  }
  std::sort(driver_correlations.begin(), driver_correlations.end());
  const auto check = [&](DeviceWork& work) {
    const auto is_in = [&](const std::vector<uint32_t>& sorted) {
      return std::binary_search(sorted.begin(), sorted.end(),
                                static_cast<uint32_t>(work.correlation));
    };
    if (is_in(graph_launches_) ||
        (!is_in(runtime_correlations_) && !is_in(driver_correlations))) {
      return;
    }
    work.correlation = -1;
    ++result_.wrong_launches;
  };
  for (const RowId row : graph_kernels_) check(builder_.kernels()[row]);
  for (const RowId row : graph_copies_) check(builder_.copies()[row]);
  for (const RowId row : graph_memsets_) check(builder_.memsets()[row]);
}

}  // namespace stepscope
