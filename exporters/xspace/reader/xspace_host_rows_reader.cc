// The part of XSpaceRowReader that reads the rows of host threads.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "rows/field_values.h"
#include "xspace/reader/xspace_rows_reader.h"

namespace stepscope {
namespace {

// True for "cudaLaunchKernel", "cuLaunchKernel", "hipMemcpyAsync".
bool IsCallName(std::string_view name) {
  for (std::string_view api : {"cuda", "hip", "cu"}) {
    if (name.starts_with(api) && name.size() > api.size() &&
        std::isupper(static_cast<unsigned char>(name[api.size()])) != 0) {
      return true;
    }
  }
  return false;
}

// True for "train.py(12): main" of torch and "$train.py:12 main" of XLA.
bool IsPythonFrame(std::string_view name) {
  if (name.starts_with('$')) return true;
  const size_t file = name.find(".py(");
  return name.starts_with("<built-in") || name.starts_with("nn.Module: ") ||
         (file != std::string_view::npos &&
          name.find("): ", file) != std::string_view::npos);
}

bool IsOverhead(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "Buffer Flush",           "Instrumentation",
      "Command Buffer Full",    "Resource",
      "Lazy Function Loading",  "Unrecognized",
      "Activity Buffer Request"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

// The order of these tests is the one in the header: from the surest sign to
// the weakest.
void XSpaceRowReader::AddHostEvent(const XEventField& event, RowId thread) {
  if (const auto number = event.integer("step_num");
      number &&
      (event.stat("step_name") != nullptr || event.stat("_r") != nullptr)) {
    return AddStep(event, thread, *number);
  }
  if (event.name == "MemoryAllocation" || event.name == "MemoryDeallocation")
    return AddAllocation(event, thread);
  if (IsCallName(event.name)) return AddCall(event, thread);
  const RangeKind kind = ClassifyRange(event.name);
  if (kind == RangeKind::kLoader || event.stat("_ipl_stage_id") != nullptr)
    return AddRange(event, thread, RangeKind::kLoader);
  if (kind != RangeKind::kUser) return AddRange(event, thread, kind);
  if (event.stat("tf_op") != nullptr) return AddOp(event, thread);
  if (IsPythonFrame(event.name)) return AddPythonFrame(event, thread);
  if (IsOverhead(event.name)) return AddOverhead(event, thread);
  if (module_names_.contains(event.name))
    return AddRange(event, thread, RangeKind::kModule);
  if (phase_names_.contains(event.name))
    return AddRange(event, thread, RangeKind::kPhase);
  AddRange(event, thread, RangeKind::kUser);
}

void XSpaceRowReader::AddStep(const XEventField& event, RowId thread,
                              int64_t number) {
  seen_ |= Bit(Kind::kStep);
  builder_.Add(Step{.begin_ns = event.begin_ns,
                    .end_ns = event.end_ns,
                    .number = number,
                    .thread = thread});
}

void XSpaceRowReader::AddAllocation(const XEventField& event, RowId thread) {
  Allocation row;
  row.time_ns = event.begin_ns;
  row.thread = thread;
  // Excludes INT64_MIN, which only a damaged file has: it cannot be negated.
  row.bytes =
      std::max(event.integer("allocation_bytes").value_or(0), -INT64_MAX);
  if (event.name == "MemoryDeallocation") row.bytes = -row.bytes;
  row.address = static_cast<uint64_t>(event.integer("addr").value_or(0));
  // A counted total is only what the recording allocated.
  if (!event.integer("stepscope.counted")) {
    row.total_allocated_bytes = event.integer("bytes_allocated").value_or(-1);
  }
  std::string_view allocator = event.text("allocator_name");
  if (allocator.starts_with("GPU")) {
    // "GPU0" is ours, "GPU_0_bfc" TensorFlow's.
    row.device_type = 1;
    row.device = 0;
    allocator.remove_prefix(3);
    if (allocator.starts_with('_')) allocator.remove_prefix(1);
    std::from_chars(allocator.data(), allocator.data() + allocator.size(),
                    row.device);
  }
  seen_ |= Bit(Kind::kMemory);
  builder_.Add(row);
}

void XSpaceRowReader::AddRange(const XEventField& event, RowId thread,
                               RangeKind kind) {
  Range row;
  row.begin_ns = event.begin_ns;
  row.end_ns = event.end_ns;
  row.name = NameOf(event);
  row.detail = builder_.Intern(event.text("detail"));
  row.thread = thread;
  row.kind = kind;
  seen_ |= Bit(Kind::kRange);
  if (kind == RangeKind::kLoader) seen_ |= Bit(Kind::kLoader);
  builder_.Add(row);
}

void XSpaceRowReader::AddCall(const XEventField& event, RowId thread) {
  RuntimeCall row;
  row.begin_ns = event.begin_ns;
  row.end_ns = event.end_ns;
  row.name = NameOf(event);
  row.thread = thread;
  row.correlation = event.integer("correlation_id").value_or(-1);
  row.return_code =
      static_cast<int32_t>(event.integer("return code").value_or(0));
  row.is_driver =
      event.name.starts_with("cu") && !event.name.starts_with("cuda");
  // Only the calls of memsets and graphs are needed (see Finish()). With all
  // calls the map would hold every launch.
  const bool may_set = event.name.find("emset") != std::string_view::npos ||
                       event.name.find("Graph") != std::string_view::npos;
  if (may_set && row.correlation >= 0)
    correlation_of_flow_.emplace(FlowOf(event), row.correlation);
  seen_ |= Bit(Kind::kRuntimeCall);
  builder_.Add(row);
}

void XSpaceRowReader::AddOp(const XEventField& event, RowId thread) {
  Op row;
  row.begin_ns = event.begin_ns;
  row.end_ns = event.end_ns;
  row.name = NameOf(event);
  row.thread = thread;
  row.sequence = event.integer("sequence number").value_or(-1);
  const NameId file = builder_.Intern(event.text("kernel_file"));
  const NameId parameters = builder_.Intern(event.text("kernel_kwargs"));
  if (file != 0 || parameters != 0) {
    row.code = builder_.InternStack({.frames = {file, parameters}});
  }
  seen_ |= Bit(Kind::kOp);
  builder_.Add(row);
}

void XSpaceRowReader::AddPythonFrame(const XEventField& event, RowId thread) {
  PythonFrame row;
  row.begin_ns = event.begin_ns;
  row.end_ns = event.end_ns;
  row.name = NameOf(event);
  row.thread = thread;
  seen_ |= Bit(Kind::kPythonFrame);
  builder_.Add(row);
}

void XSpaceRowReader::AddOverhead(const XEventField& event, RowId thread) {
  Overhead row;
  row.begin_ns = event.begin_ns;
  row.end_ns = event.end_ns;
  row.name = NameOf(event);
  row.thread = thread;
  seen_ |= Bit(Kind::kOverhead);
  builder_.Add(row);
}

}  // namespace stepscope
