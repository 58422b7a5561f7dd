#include "xspace/writer/xspace_host.h"

#include <algorithm>

#include "xspace/writer/xspace_activity.h"

namespace stepscope {
namespace {

// Above all ids of event metadata: if a stage had one of these ids, XProf would
// count unrelated events for the stage.
constexpr int64_t kFirstStageId = int64_t{1} << 40;
constexpr int64_t kMemoryLineId = int64_t{1} << 40;

}  // namespace

uint64_t XFlow(int direction, RowId call) {
  constexpr uint64_t kGpuLaunch = 9;  // XProf's category; id 0 is none
  return static_cast<uint64_t>(direction) |
         (static_cast<uint64_t>(call) + 1) << 2 | kGpuLaunch << 58;
}

std::string XAllocatorName(const Allocation& event) {
  if (event.device_type == 0) return "CPU";
  return "GPU" + std::to_string(std::max(event.device, 0));
}

XHostPlane::XHostPlane(const XContext& context, XDetail detail)
    : context_(context),
      trace_(context.trace()),
      detail_(detail),
      names_(context.trace()),
      tf_ops_(context, &names_),
      fused_ops_(context, &names_),
      totals_(context.trace()),
      lines_(trace_.threads().size() + 1),
      launched_(trace_.runtime_calls().size()),
      inputs_texts_(trace_.op_inputs().size()),
      stack_texts_(trace_.stacks().size()),
      misread_(trace_.name_count()) {
  Sort();
  FindLaunches();
  // XProf takes ranges with such names for steps.
  for (NameId name = 0; name < misread_.size(); ++name) {
    const std::string_view text = trace_.name(name);
    misread_[name] = text.starts_with("train") || text.starts_with("test");
  }
}

void XHostPlane::FindLaunches() {
  constexpr int32_t kMostDevices = 63;  // Launched::device has six bits
  const auto mark = [&](const DeviceWork& work, bool is_upload) {
    if (work.call == kNone) return;
    Launched& launched = launched_[work.call];
    launched.anything = true;
    launched.upload |= is_upload;
    launched.device =
        static_cast<uint8_t>(std::clamp(work.device, 0, kMostDevices)) & 63;
  };
  for (const Kernel& kernel : trace_.kernels()) mark(kernel, false);
  for (const Memset& set : trace_.memsets()) mark(set, false);
  for (const Copy& copy : trace_.copies())
    mark(copy, XCopyDirection(copy, trace_.name(copy.name)) == "HtoD");
}

bool XHostPlane::IsLeftOut(Table table, RowId row) const {
  if (table == Table::kPythonFrame) return detail_ != XDetail::kAll;
  if (table != Table::kOp || detail_ != XDetail::kNoShortOps) return false;
  const Op& op = trace_.ops()[row];
  return op.end_ns - op.begin_ns < kShortOpNs;
}

// Walks over all tables once, which gives each line its rows in time order.
void XHostPlane::Sort() {
  // Rows without a thread, kNone, go to the last line.
  const auto line = [&](RowId thread) {
    return std::min<size_t>(thread, lines_.size() - 1);
  };
  EventOrder order(trace_);
  while (order.Next()) {
    const RowId row = order.row();
    if (IsLeftOut(order.table(), row)) continue;
    const auto add = [&](const auto& table) {
      lines_[line(table[row].thread)].Add(order.table(), row);
    };
    switch (order.table()) {
      case Table::kStep:
        add(trace_.steps());
        break;
      case Table::kRange:
        add(trace_.ranges());
        break;
      case Table::kPythonFrame:
        add(trace_.python_frames());
        break;
      case Table::kOp:
        add(trace_.ops());
        break;
      case Table::kRuntimeCall:
        add(trace_.runtime_calls());
        break;
      case Table::kOverhead:
        add(trace_.overheads());
        break;
      default:
        break;  // ops carry their communications; others have planes of their
                // own
    }
  }
}

void XHostPlane::Start(NameId name, int64_t begin_ns, int64_t end_ns,
                       XEventBytes& event) {
  const auto renamed = [&] {
    const std::string_view text = trace_.name(name);
    return names_.Event("range " + std::string(text), text);
  };
  const int64_t id = misread_[name] ? renamed() : names_.Event(name);
  event.Start(id, begin_ns - context_.begin_ns(), end_ns - begin_ns);
  context_.Group(context_.StepAt(begin_ns), event);
}

void XHostPlane::StepEvent(const Step& step, XEventBytes& event) {
  const std::string number = std::to_string(step.number);
  event.Start(names_.Event("train " + number, "step " + number),
              step.begin_ns - context_.begin_ns(), step.end_ns - step.begin_ns);
  event.Int(XStatId::kGroupId, step.number);
  event.Int(XStatId::kStepNum, step.number);
  event.String(XStatId::kStepName, number);
}

void XHostPlane::RangeEvent(RowId row, XEventBytes& event) {
  const Range& range = trace_.ranges()[row];
  Start(range.name, range.begin_ns, range.end_ns, event);
  if (range.detail != 0) event.Ref(XStatId::kDetail, names_.Text(range.detail));
  // The rest is for the input pipeline page. Loaders have even stage ids. The
  // copies have the odd id after kFirstStageId (CallEvent).
  if (range.kind != RangeKind::kLoader) return;
  event.Int(XStatId::kStageId,
            kFirstStageId + static_cast<int64_t>(range.name) * 2);
  const std::string_view loader = trace_.name(range.detail);
  const int64_t stage = range.detail == 0
                            ? names_.Text("DataLoader")
                            : names_.Text("DataLoader " + std::string(loader));
  event.Ref(XStatId::kStageName, stage);
  // If workers load, the training thread only waits, and the recording does not
  // show what the workers do.
  const bool waits =
      trace_.name(range.name).find("MultiProcessing") != std::string_view::npos;
  event.Ref(XStatId::kStageCategory,
            names_.Text(waits ? "unknown" : "preprocessing"));
}

void XHostPlane::OpEvent(RowId row, XEventBytes& event) {
  const Op& op = trace_.ops()[row];
  Start(op.name, op.begin_ns, op.end_ns, event);
  event.Ref(XStatId::kTfOp, tf_ops_.Id(row));
  if (op.sequence >= 0) event.Int(XStatId::kSequence, op.sequence);
  if (op.inputs != kNone) event.Ref(XStatId::kInputs, InputsText(op.inputs));
  if (op.stack != kNone) event.Ref(XStatId::kStack, StackText(op.stack));
  if (op.code != kNone) {
    const std::vector<NameId>& code = trace_.stacks()[op.code].frames;
    if (code[0] != 0) event.Ref(XStatId::kCodeFile, names_.Text(code[0]));
    if (code[1] != 0) event.Ref(XStatId::kCodeParameters, names_.Text(code[1]));
  }
  fused_ops_.AddTo(op.name, event);
}

// "float[32,64,56,56] float[64,64,3,3]"
int64_t XHostPlane::InputsText(RowId inputs) {
  constexpr size_t kLongest = 1000;
  int64_t& id = inputs_texts_[inputs];
  if (id != 0) return id;
  std::string text;
  for (const Argument& argument : trace_.op_inputs()[inputs].arguments) {
    if (argument.dims.empty() && argument.concrete == 0) continue;
    if (!text.empty()) text += ' ';
    if (text.size() > kLongest) {
      text += "...";
      break;
    }
    text += trace_.name(argument.type);
    if (argument.concrete != 0) {
      text += '=';
      text += trace_.name(argument.concrete);
      continue;
    }
    for (size_t i = 0; i < argument.dims.size(); ++i)
      text += (i == 0 ? "[" : ",") + std::to_string(argument.dims[i]);
    text += ']';
  }
  return id = names_.Text(text);
}

int64_t XHostPlane::StackText(RowId stack) {
  int64_t& id = stack_texts_[stack];
  if (id != 0) return id;
  std::string text;
  for (NameId frame : trace_.stacks()[stack].frames) {
    if (!text.empty()) text += '\n';
    text += trace_.name(frame);
  }
  return id = names_.Text(text);
}

void XHostPlane::CallEvent(RowId row, XEventBytes& event) {
  const RuntimeCall& call = trace_.runtime_calls()[row];
  Start(call.name, call.begin_ns, call.end_ns, event);
  if (call.return_code != 0) event.Int(XStatId::kReturnCode, call.return_code);
  const Launched launched = launched_[row];
  if (!launched.anything) return;
  if (call.correlation >= 0)
    event.Uint(XStatId::kCorrelationId,
               static_cast<uint64_t>(call.correlation));
  event.Int(XStatId::kDeviceId, launched.device);
  event.Uint(XStatId::kFlow, XFlow(kFlowOut, row));
  if (!launched.upload) return;
  event.Int(XStatId::kStageId, kFirstStageId + 1);
  event.Ref(XStatId::kStageName, names_.Text("copy to the device"));
  event.Ref(XStatId::kStageCategory, names_.Text("enqueue"));
}

void XHostPlane::MemoryEvent(RowId row, XEventBytes& event) {
  const Allocation& allocation = trace_.allocations()[row];
  event.Start(names_.Event(allocation.bytes < 0 ? "MemoryDeallocation"
                                                : "MemoryAllocation"),
              allocation.time_ns - context_.begin_ns(), 0);
  context_.Group(context_.StepAt(allocation.time_ns), event);
  const MemoryTotals::Totals totals = totals_.After(row);
  int64_t capacity_bytes = -1;
  for (const Device& device : trace_.run().devices) {
    if (allocation.device_type != 0 && device.ordinal == allocation.device)
      capacity_bytes = device.memory_bytes;
  }
  const int64_t size_bytes = std::abs(allocation.bytes);
  event.Ref(XStatId::kAllocatorName, names_.Text(XAllocatorName(allocation)));
  event.Int(XStatId::kBytesAllocated, totals.allocated_bytes);
  event.Int(XStatId::kBytesAvailable,
            std::max<int64_t>(0, capacity_bytes - totals.allocated_bytes));
  event.Int(XStatId::kPeakBytesInUse, totals.peak_bytes);
  // Tells our reader that the allocator's own totals were not recorded.
  if (totals.counted) event.Int(XStatId::kCounted, 1);
  if (totals.reserved_bytes > 0) {
    // The share of the caching allocator's reserved memory that no tensor uses.
    event.Double(
        XStatId::kFragmentation,
        std::max(0.0, 1 - static_cast<double>(totals.allocated_bytes) /
                              static_cast<double>(totals.reserved_bytes)));
  }
  // bytes_reserved is left out: XProf would add it to the heap.
  event.Int(XStatId::kRequestedBytes, size_bytes);
  event.Int(XStatId::kAllocationBytes, size_bytes);
  event.Int(XStatId::kAddress, static_cast<int64_t>(allocation.address));
  if (allocation.bytes > 0 && allocation.op != kNone)
    event.Ref(XStatId::kTfOp, names_.Text(trace_.ops()[allocation.op].name));
}

void XHostPlane::Event(Table table, RowId at, XEventBytes& event) {
  switch (table) {
    case Table::kStep:
      return StepEvent(trace_.steps()[at], event);
    case Table::kRange:
      return RangeEvent(at, event);
    case Table::kOp:
      return OpEvent(at, event);
    case Table::kRuntimeCall:
      return CallEvent(at, event);
    case Table::kOverhead: {
      const Overhead& row = trace_.overheads()[at];
      return Start(row.name, row.begin_ns, row.end_ns, event);
    }
    default: {
      const PythonFrame& row = trace_.python_frames()[at];
      return Start(row.name, row.begin_ns, row.end_ns, event);
    }
  }
}

bool XHostPlane::Write(XSpaceFile& file) {
  std::vector<XLineSource> sources;
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].count() == 0) continue;
    XLineSource source;
    const bool is_known = i < trace_.threads().size();
    source.id = is_known ? trace_.threads()[i].tid : kMemoryLineId + 1;
    source.name =
        is_known ? trace_.name(trace_.threads()[i].name) : "thread not known";
    if (source.name.empty())
      source.name = "thread " + std::to_string(source.id);
    if (i == trace_.run().training_thread) source.name += " (training)";
    source.display_id =
        i == trace_.run().training_thread ? 1 : static_cast<int64_t>(i) + 2;
    source.count = lines_[i].count();
    // WriteXPlane() asks for all events twice, each time from the first one.
    source.event = [this, &line = lines_[i],
                    rows = RowSequenceReader(lines_[i])](
                       size_t at, XEventBytes& event) mutable {
      if (at == 0) rows = RowSequenceReader(line);
      rows.Next();
      Event(rows.table(), rows.row(), event);
    };
    sources.push_back(std::move(source));
  }
  if (!trace_.allocations().empty()) {
    sources.push_back({.id = kMemoryLineId,
                       .name = "memory",
                       .display_id = static_cast<int64_t>(lines_.size()) + 3,
                       .count = trace_.allocations().size(),
                       .event = [this](size_t at, XEventBytes& event) {
                         MemoryEvent(static_cast<RowId>(at), event);
                       }});
  }
  return WriteXPlane(0, "/host:CPU", sources, names_, XPlaneStats(), file);
}

}  // namespace stepscope
