#include "xspace_host.h"

#include <algorithm>
#include <map>

namespace stepscope {
namespace {

// XProf counts foreign events if a stage has the id of some event's metadata.
constexpr int64_t kFirstStageId = int64_t{1} << 40;
constexpr int64_t kMemoryLineId = int64_t{1} << 40;

}  // namespace

uint64_t XFlow(int direction, RowId call) {
  constexpr uint64_t kGpuLaunch = 9;
  return static_cast<uint64_t>(direction) |
         (static_cast<uint64_t>(call) + 1) << 2 | kGpuLaunch << 58;
}

std::string XAllocatorName(const Allocation& event) {
  if (event.device_type == 0) return "CPU";
  return "GPU" + std::to_string(std::max(event.device, 0));
}

XHostPlane::XHostPlane(const XContext& context)
    : context_(context),
      trace_(context.trace()),
      names_(context.trace()),
      tf_ops_(context, &names_),
      lines_(trace_.threads().size() + 1),
      in_use_(trace_.allocations().size()),
      launched_(trace_.runtime_calls().size()) {
  Sort();
  CountMemory();
  const auto mark = [&](const DeviceWork& work) {
    if (work.call != kNone) launched_[work.call] = true;
  };
  for (const Kernel& kernel : trace_.kernels()) mark(kernel);
  for (const Copy& copy : trace_.copies()) mark(copy);
  for (const Memset& set : trace_.memsets()) mark(set);
}

void XHostPlane::Sort() {
  const auto add = [&](RowId thread, Table table, RowId row) {
    lines_[std::min<size_t>(thread, lines_.size() - 1)].push_back({table, row});
  };
  EventOrder order(trace_);
  while (order.Next()) {
    const RowId row = order.row();
    switch (order.table()) {
      case Table::kStep:
        add(trace_.steps()[row].thread, order.table(), row);
        break;
      case Table::kRange:
        add(trace_.ranges()[row].thread, order.table(), row);
        break;
      case Table::kPythonFrame:
        add(trace_.python_frames()[row].thread, order.table(), row);
        break;
      case Table::kOp:
        add(trace_.ops()[row].thread, order.table(), row);
        break;
      case Table::kRuntimeCall:
        add(trace_.runtime_calls()[row].thread, order.table(), row);
        break;
      case Table::kOverhead:
        add(trace_.overheads()[row].thread, order.table(), row);
        break;
      default:
        break;  // communications ride on their ops; the rest is elsewhere
    }
  }
}

void XHostPlane::CountMemory() {
  std::map<std::pair<int32_t, int32_t>, InUse> now;
  for (RowId row = 0; row < trace_.allocations().size(); ++row) {
    const Allocation& event = trace_.allocations()[row];
    InUse& in_use = now[{event.device_type, event.device}];
    in_use.bytes = event.total_allocated_bytes >= 0
                       ? event.total_allocated_bytes
                       : std::max<int64_t>(0, in_use.bytes + event.bytes);
    in_use.peak_bytes = std::max(in_use.peak_bytes, in_use.bytes);
    in_use_[row] = in_use;
  }
}

void XHostPlane::Start(NameId name, int64_t begin_ns, int64_t end_ns,
                       XEventBytes& event) {
  const std::string_view text = trace_.name(name);
  // XProf takes such names for step markers.
  const bool misread = text.starts_with("train") || text.starts_with("test");
  const int64_t id = misread ? names_.Event("range " + std::string(text), text)
                             : names_.Event(name);
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
  if (range.kind != RangeKind::kLoader) return;
  // Stages are told apart by id; one per loader is enough.
  event.Int(XStatId::kStageId,
            kFirstStageId + static_cast<int64_t>(range.name) * 2);
  const std::string_view loader = trace_.name(range.detail);
  const int64_t stage = range.detail == 0
                            ? names_.Text("DataLoader")
                            : names_.Text("DataLoader " + std::string(loader));
  event.Ref(XStatId::kStageName, stage);
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
}

void XHostPlane::CallEvent(RowId row, XEventBytes& event) {
  const RuntimeCall& call = trace_.runtime_calls()[row];
  Start(call.name, call.begin_ns, call.end_ns, event);
  if (call.return_code != 0) event.Int(XStatId::kReturnCode, call.return_code);
  if (!launched_[row]) return;
  if (call.correlation >= 0)
    event.Uint(XStatId::kCorrelationId,
               static_cast<uint64_t>(call.correlation));
  event.Uint(XStatId::kFlow, XFlow(kFlowOut, row));
}

void XHostPlane::MemoryEvent(RowId row, XEventBytes& event) {
  const Allocation& allocation = trace_.allocations()[row];
  event.Start(names_.Event(allocation.bytes < 0 ? "MemoryDeallocation"
                                                : "MemoryAllocation"),
              allocation.time_ns - context_.begin_ns(), 0);
  context_.Group(context_.StepAt(allocation.time_ns), event);
  const InUse& in_use = in_use_[row];
  int64_t capacity_bytes = -1;
  for (const Device& device : trace_.run().devices) {
    if (allocation.device_type != 0 && device.ordinal == allocation.device)
      capacity_bytes = device.memory_bytes;
  }
  const int64_t size_bytes = std::abs(allocation.bytes);
  event.Ref(XStatId::kAllocatorName, names_.Text(XAllocatorName(allocation)));
  event.Int(XStatId::kBytesAllocated, in_use.bytes);
  event.Int(XStatId::kBytesAvailable,
            std::max<int64_t>(0, capacity_bytes - in_use.bytes));
  event.Int(XStatId::kPeakBytesInUse, in_use.peak_bytes);
  event.Int(XStatId::kRequestedBytes, size_bytes);
  event.Int(XStatId::kAllocationBytes, size_bytes);
  event.Int(XStatId::kAddress, static_cast<int64_t>(allocation.address));
  if (allocation.bytes > 0 && allocation.op != kNone)
    event.Ref(XStatId::kTfOp, names_.Text(trace_.ops()[allocation.op].name));
}

void XHostPlane::Event(const Ref& ref, XEventBytes& event) {
  switch (ref.table) {
    case Table::kStep:
      return StepEvent(trace_.steps()[ref.row], event);
    case Table::kRange:
      return RangeEvent(ref.row, event);
    case Table::kOp:
      return OpEvent(ref.row, event);
    case Table::kRuntimeCall:
      return CallEvent(ref.row, event);
    case Table::kOverhead: {
      const Overhead& row = trace_.overheads()[ref.row];
      return Start(row.name, row.begin_ns, row.end_ns, event);
    }
    default: {
      const PythonFrame& row = trace_.python_frames()[ref.row];
      return Start(row.name, row.begin_ns, row.end_ns, event);
    }
  }
}

void XHostPlane::Write(FileSink& sink) {
  std::vector<XLineSource> sources;
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].empty()) continue;
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
    source.count = lines_[i].size();
    source.event = [this, &line = lines_[i]](size_t at, XEventBytes& event) {
      Event(line[at], event);
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
  WriteXPlane(0, "/host:CPU", sources, names_, XPlaneStats(), sink);
}

}  // namespace stepscope
