#include "xspace_gpu.h"

#include <algorithm>
#include <cmath>

#include "../tensor_core_names.h"
#include "xspace_host.h"

namespace stepscope {
namespace {

// 0xdeadbeef as a signed 32-bit number: XProf's mark of the line of steps.
constexpr int64_t kStepsLineId = -559038737;
constexpr int64_t kWaitLineId = int64_t{1} << 40;
constexpr uint64_t kWaitCorrelation = uint64_t{1} << 40;

bool Holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

char Side(MemoryKind kind) {
  if (kind == MemoryKind::kUnknown) return '?';
  const bool is_device = kind == MemoryKind::kDevice ||
                         kind == MemoryKind::kArray ||
                         kind == MemoryKind::kManaged;
  return is_device ? 'D' : 'H';
}

// "HtoD", "DtoH", "DtoD", "PtoP" or "?"
std::string Direction(const Copy& copy, std::string_view name) {
  for (std::string_view known : {"HtoD", "DtoH", "DtoD", "PtoP"})
    if (Holds(name, known)) return std::string(known);
  if (Holds(name, "Host -> Device")) return "HtoD";
  if (Holds(name, "Device -> Host")) return "DtoH";
  const char from = Side(copy.source);
  const char to = Side(copy.destination);
  if (from == '?' || to == '?') return "?";
  return std::string(1, from) + "to" + to;
}

const char* MemoryWord(MemoryKind kind) {
  static constexpr const char* kWords[] = {
      "unknown", "pageable", "pinned", "device", "array", "managed", "host"};
  return kWords[static_cast<size_t>(kind)];
}

// XProf's word for a type: anything that holds "half" counts as 16 bit.
std::string_view ShapeType(std::string_view type) {
  if (type == "c10::Half") return "half";
  if (type == "c10::BFloat16") return "half/bf16";
  if (Holds(type, "Float8")) return "half/f8";
  return type;
}

}  // namespace

std::set<int32_t> XDevices(const Trace& trace) {
  std::set<int32_t> devices;
  for (const Kernel& kernel : trace.kernels()) devices.insert(kernel.device);
  for (const Copy& copy : trace.copies()) devices.insert(copy.device);
  for (const Memset& set : trace.memsets()) devices.insert(set.device);
  return devices;
}

XGpuPlane::XGpuPlane(const XContext& context, int32_t device)
    : context_(context),
      trace_(context.trace()),
      device_(device),
      names_(context.trace()),
      tf_ops_(context, &names_) {
  Sort();
  FindTiles();
  for (RowId row = 0; row < trace_.ranges().size(); ++row) {
    const Range& range = trace_.ranges()[row];
    const RowId step = context_.StepAt(range.begin_ns);
    if (range.kind == RangeKind::kLoader && step != kNone &&
        range.thread == trace_.steps()[step].thread) {
      waits_.push_back(row);
    }
  }
}

void XGpuPlane::Sort() {
  EventOrder order(trace_);
  while (order.Next()) {
    const RowId row = order.row();
    const auto add = [&](int32_t device, int64_t stream) {
      if (device == device_) streams_[stream].push_back({order.table(), row});
    };
    switch (order.table()) {
      case Table::kKernel:
        add(trace_.kernels()[row].device, trace_.kernels()[row].stream);
        break;
      case Table::kCopy:
        add(trace_.copies()[row].device, trace_.copies()[row].stream);
        break;
      case Table::kMemset:
        add(trace_.memsets()[row].device, trace_.memsets()[row].stream);
        break;
      default:
        break;
    }
  }
}

// Step spans that tile the timeline: XProf clips device events to them, so a
// step lasts until its last device work is done.
void XGpuPlane::FindTiles() {
  std::vector<int64_t> ends_ns;
  for (const Step& step : trace_.steps()) ends_ns.push_back(step.end_ns);
  const auto see = [&](const DeviceWork& work) {
    const RowId step = context_.StepOf(work);
    if (work.device == device_ && step != kNone)
      ends_ns[step] = std::max(ends_ns[step], work.end_ns);
  };
  for (const Kernel& kernel : trace_.kernels()) see(kernel);
  for (const Copy& copy : trace_.copies()) see(copy);
  for (const Memset& set : trace_.memsets()) see(set);
  int64_t before_ns = context_.begin_ns();
  for (RowId step = 0; step < ends_ns.size(); ++step) {
    const int64_t begin_ns = step == 0 ? trace_.steps()[0].begin_ns : before_ns;
    before_ns = std::max(begin_ns, ends_ns[step]);
    tiles_.push_back({step, begin_ns, before_ns});
  }
}

XPlaneStats XGpuPlane::DeviceStats() const {
  XPlaneStats stats;
  const auto number = [&](XStatId id, int64_t value) {
    if (value >= 0) stats.Uint(id, static_cast<uint64_t>(value));
  };
  for (const Device& device : trace_.run().devices) {
    if (device.ordinal != device_) continue;
    if (!device.vendor.empty())
      stats.String(XStatId::kDeviceVendor, device.vendor);
    stats.String(XStatId::kGpuDeviceName, device.name);
    number(XStatId::kClockRate, device.clock_khz);
    number(XStatId::kCoreCount, device.sm_count);
    number(XStatId::kMemoryBandwidth, device.memory_bandwidth_bytes_per_s);
    number(XStatId::kMemorySize, device.memory_bytes);
    number(XStatId::kComputeMajor, device.compute_major);
    number(XStatId::kComputeMinor, device.compute_minor);
  }
  return stats;
}

std::string XGpuPlane::StreamName(int64_t stream,
                                  const std::vector<Ref>& refs) const {
  std::set<std::string> kinds;
  for (const Ref& ref : refs) {
    if (ref.table == Table::kKernel) kinds.insert("Kernel");
    if (ref.table == Table::kMemset) kinds.insert("Memset");
    if (ref.table == Table::kCopy) {
      const Copy& copy = trace_.copies()[ref.row];
      std::string direction = Direction(copy, trace_.name(copy.name));
      direction.erase(std::remove(direction.begin(), direction.end(), 't'),
                      direction.end());
      std::replace(direction.begin(), direction.end(), 'o', '2');
      kinds.insert("Memcpy" + direction);
    }
  }
  std::string name = "Stream #" + std::to_string(stream) + "(";
  for (const std::string& kind : kinds)
    name += (name.back() == '(' ? "" : ",") + kind;
  return name + ")";
}

void XGpuPlane::StepEvent(const Tile& tile, XEventBytes& event) {
  const int64_t number = trace_.steps()[tile.step].number;
  const std::string text = std::to_string(number);
  event.Start(names_.Event(text), tile.begin_ns - context_.begin_ns(),
              tile.end_ns - tile.begin_ns);
  event.Int(XStatId::kGroupId, number);
  event.String(XStatId::kStepName, text);
}

void XGpuPlane::WaitEvent(RowId range_row, XEventBytes& event) {
  const Range& range = trace_.ranges()[range_row];
  event.Start(names_.Event("MEMCPYHtoD input wait (DataLoader)"),
              range.begin_ns - context_.begin_ns(),
              range.end_ns - range.begin_ns);
  context_.Group(context_.StepAt(range.begin_ns), event);
  event.Uint(XStatId::kCorrelationId, kWaitCorrelation + range_row);
  event.Ref(XStatId::kNote,
            names_.Text("not a copy: the training thread waited for a batch; "
                        "drawn here so that XProf counts it as input"));
}

void XGpuPlane::Common(const DeviceWork& work, bool counts,
                       XEventBytes& event) {
  context_.Group(context_.StepOf(work), event);
  if (counts && work.correlation >= 0) {
    event.Uint(XStatId::kCorrelationId,
               static_cast<uint64_t>(work.correlation));
  }
  if (work.call != kNone) event.Uint(XStatId::kFlow, XFlow(kFlowIn, work.call));
  if (work.op != kNone) event.Ref(XStatId::kTfOp, tf_ops_.Id(work.op));
  event.Ref(XStatId::kContextId,
            names_.Text("$$" + std::to_string(work.context)));
}

std::string XGpuPlane::Details(const Kernel& kernel) const {
  const auto triple = [](const std::array<int32_t, 3>& values) {
    return std::to_string(values[0]) + "," + std::to_string(values[1]) + "," +
           std::to_string(values[2]);
  };
  std::string details =
      "regs:" + std::to_string(std::max(kernel.registers_per_thread, 0)) +
      " static_shared:0 dynamic_shared:" +
      std::to_string(std::max(kernel.shared_memory_bytes, 0)) +
      " grid:" + triple(kernel.grid) + " block:" + triple(kernel.block);
  if (kernel.occupancy_frac >= 0 && std::isfinite(kernel.occupancy_frac)) {
    details +=
        " occ_pct:" + std::to_string(std::lround(kernel.occupancy_frac * 100));
  }
  return details;
}

std::string XGpuPlane::Shape(const Kernel& kernel) const {
  const std::string_view name = trace_.name(kernel.name);
  if (kernel.op != kNone && trace_.ops()[kernel.op].inputs != kNone) {
    const OpInputs& inputs = trace_.op_inputs()[trace_.ops()[kernel.op].inputs];
    for (const Argument& argument : inputs.arguments) {
      if (argument.dims.empty()) continue;
      std::string shape = "(";
      shape += ShapeType(trace_.name(argument.type));
      shape += '[';
      for (size_t i = 0; i < argument.dims.size(); ++i)
        shape += (i == 0 ? "" : ",") + std::to_string(argument.dims[i]);
      return shape + "])";
    }
  }
  const bool is_16_bit = Holds(name, "c10::Half") || Holds(name, "BFloat16") ||
                         Holds(name, "bf16") || Holds(name, "_hsh_") ||
                         Holds(name, "f16f16");
  return is_16_bit ? "(half)" : "";
}

void XGpuPlane::KernelEvent(const Kernel& kernel, XEventBytes& event) {
  const std::string_view name = trace_.name(kernel.name);
  const int64_t id =
      NeedsTensorCoreMark(name)
          ? names_.Event(std::string(name) + std::string(kTensorCoreMark), name)
          : names_.Event(kernel.name);
  event.Start(id, kernel.begin_ns - context_.begin_ns(),
              kernel.end_ns - kernel.begin_ns);
  Common(kernel, true, event);
  event.Ref(XStatId::kKernelDetails, names_.Text(Details(kernel)));
  if (const std::string shape = Shape(kernel); !shape.empty())
    event.Ref(XStatId::kShape, names_.Text(shape));
}

void XGpuPlane::CopyEvent(const Copy& copy, XEventBytes& event) {
  const std::string direction = Direction(copy, trace_.name(copy.name));
  event.Start(names_.Event(direction == "?" ? "MEMCPY" : "MEMCPY" + direction),
              copy.begin_ns - context_.begin_ns(), copy.end_ns - copy.begin_ns);
  Common(copy, true, event);
  std::string details =
      "num_bytes:" + std::to_string(std::max<int64_t>(copy.bytes, 0));
  details += std::string("\nkind_src:") + MemoryWord(copy.source) +
             " kind_dst:" + MemoryWord(copy.destination) +
             " async:" + (copy.is_async ? "1" : "0");
  event.Ref(XStatId::kMemcpyDetails, names_.Text(details));
}

void XGpuPlane::Event(const Ref& ref, XEventBytes& event) {
  if (ref.table == Table::kKernel)
    return KernelEvent(trace_.kernels()[ref.row], event);
  if (ref.table == Table::kCopy)
    return CopyEvent(trace_.copies()[ref.row], event);
  const Memset& set = trace_.memsets()[ref.row];
  event.Start(names_.Event("MEMSET"), set.begin_ns - context_.begin_ns(),
              set.end_ns - set.begin_ns);
  // Counted, it would be taken for compute.
  Common(set, false, event);
}

void XGpuPlane::Write(FileSink& sink) {
  std::vector<XLineSource> sources;
  sources.push_back({.id = kStepsLineId,
                     .name = "Steps",
                     .display_id = 1,
                     .count = tiles_.size(),
                     .event = [this](size_t i, XEventBytes& event) {
                       StepEvent(tiles_[i], event);
                     }});
  if (!waits_.empty()) {
    sources.push_back({.id = kWaitLineId,
                       .name = "stepscope: input wait",
                       .display_id = 2,
                       .count = waits_.size(),
                       .event = [this](size_t i, XEventBytes& event) {
                         WaitEvent(waits_[i], event);
                       }});
  }
  int64_t display_id = 3;
  for (const auto& [stream, refs] : streams_) {
    sources.push_back(
        {.id = stream,
         .name = StreamName(stream, refs),
         .display_id = display_id++,
         .count = refs.size(),
         .event = [this, &refs = refs](size_t i, XEventBytes& event) {
           Event(refs[i], event);
         }});
  }
  WriteXPlane(device_, "/device:GPU:" + std::to_string(device_), sources,
              names_, DeviceStats(), sink);
}

}  // namespace stepscope
