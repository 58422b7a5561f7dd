#include "xspace/writer/xspace_gpu.h"

#include <stepscope/device_peaks.h>

#include <algorithm>
#include <cmath>

#include "xspace/writer/xspace_activity.h"
#include "xspace/writer/xspace_host.h"

namespace stepscope {
namespace {

// 0xdeadbeef as a signed 32-bit number, by which XProf knows the line of steps.
constexpr int64_t kStepsLineId = -559038737;
// Line ids above any stream's. XProf counts waits only if they have a
// correlation, so they get correlations above any real one.
constexpr int64_t kWaitLineId = int64_t{1} << 40;
constexpr int64_t kCountersLineId = kWaitLineId + 1;
constexpr uint64_t kWaitCorrelation = uint64_t{1} << 40;

}  // namespace

std::set<int32_t> XDevices(const Trace& trace) {
  std::set<int32_t> devices;
  for (const Kernel& kernel : trace.kernels()) devices.insert(kernel.device);
  for (const Copy& copy : trace.copies()) devices.insert(copy.device);
  for (const Memset& set : trace.memsets()) devices.insert(set.device);
  return devices;
}

XGpuPlane::XGpuPlane(const XContext& context, const XProgram& program,
                     int32_t device, bool input_wait)
    : context_(context),
      program_(program),
      trace_(context.trace()),
      device_(device),
      names_(context.trace()),
      tf_ops_(context, &names_),
      fused_ops_(context, &names_),
      texts_(context.trace(), program, &names_),
      counters_(context, device, &names_) {
  Sort();
  FindTiles();
  if (input_wait) FindWaits();
}

// Merges the three tables of activities. If rows begin and end together,
// kernels come first.
void XGpuPlane::Sort() {
  struct Head {
    Table table;
    RowId count;
    RowId row = 0;
    const DeviceWork* work = nullptr;
  };
  Head heads[] = {
      {Table::kKernel, static_cast<RowId>(trace_.kernels().size())},
      {Table::kCopy, static_cast<RowId>(trace_.copies().size())},
      {Table::kMemset, static_cast<RowId>(trace_.memsets().size())}};
  const auto load = [&](Head& head) {
    if (head.row == head.count) {
      head.work = nullptr;
    } else if (head.table == Table::kKernel) {
      head.work = &trace_.kernels()[head.row];
    } else if (head.table == Table::kCopy) {
      head.work = &trace_.copies()[head.row];
    } else {
      head.work = &trace_.memsets()[head.row];
    }
  };
  const auto before = [](const DeviceWork& a, const DeviceWork& b) {
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return a.end_ns > b.end_ns;
  };
  for (Head& head : heads) load(head);
  while (true) {
    Head* next = nullptr;
    for (Head& head : heads) {
      if (head.work == nullptr) continue;
      if (next == nullptr || before(*head.work, *next->work)) next = &head;
    }
    if (next == nullptr) return;
    if (next->work->device == device_)
      streams_[next->work->stream].Add(next->table, next->row);
    ++next->row;
    load(*next);
  }
}

// Finds step spans without gaps. XProf clips device events to these spans, so a
// step lasts until its last device activity ends.
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

void XGpuPlane::FindWaits() {
  for (RowId row = 0; row < trace_.ranges().size(); ++row) {
    const Range& range = trace_.ranges()[row];
    if (range.kind != RangeKind::kLoader) continue;
    const RowId step = context_.StepAt(range.begin_ns);
    if (step != kNone && range.thread == trace_.steps()[step].thread)
      waits_.push_back(row);
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
    // Recordings name the device, but seldom have its peak rates.
    const DevicePeaks peaks = PeaksOf(device);
    if (device.clock_khz < 0 && peaks.exact)
      stats.Double(XStatId::kPeakTeraflops, peaks.fp16 * 1e-3);
    number(XStatId::kMemoryBandwidth,
           device.memory_bandwidth_bytes_per_s < 0 && peaks.exact
               ? std::llround(peaks.bytes_per_ns * 1e9)
               : device.memory_bandwidth_bytes_per_s);
    number(XStatId::kMemorySize, device.memory_bytes);
    number(XStatId::kComputeMajor, device.compute_major);
    number(XStatId::kComputeMinor, device.compute_minor);
  }
  return stats;
}

// Native XSpaces name a stream after the kinds of work on it: "Stream
// #7(Kernel,MemcpyH2D)".
std::string XGpuPlane::StreamName(int64_t stream,
                                  const RowSequence& rows) const {
  std::set<std::string> kinds;
  bool has_kernels = false;
  RowSequenceReader reader(rows);
  for (size_t i = 0; i < rows.count(); ++i) {
    reader.Next();
    has_kernels |= reader.table() == Table::kKernel;
    if (reader.table() == Table::kMemset) kinds.insert("Memset");
    if (reader.table() == Table::kCopy) {
      const Copy& copy = trace_.copies()[reader.row()];
      std::string direction = XCopyDirection(copy, trace_.name(copy.name));
      std::erase(direction, 't');
      std::replace(direction.begin(), direction.end(), 'o', '2');
      kinds.insert("Memcpy" + direction);
    }
  }
  if (has_kernels) kinds.insert("Kernel");
  std::string name = "Stream #" + std::to_string(stream) + "(";
  for (const std::string& kind : kinds)
    name += (name.back() == '(' ? "" : ",") + kind;
  return name + ")";
}

// XProf shows as the step time the longest event of this line with the step's
// group_id.
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

// XProf counts only events with a correlation and a group as part of a step. If
// kernels and copies overlap, it counts the time for the kernels, so hidden
// copies cost nothing.
void XGpuPlane::Common(const DeviceWork& work, bool counts,
                       XEventBytes& event) {
  context_.Group(context_.StepOf(work), event);
  if (counts && work.correlation >= 0) {
    event.Uint(XStatId::kCorrelationId,
               static_cast<uint64_t>(work.correlation));
  }
  if (work.call != kNone) event.Uint(XStatId::kFlow, XFlow(kFlowIn, work.call));
  event.Ref(XStatId::kContextId, texts_.Context(work.context));
}

void XGpuPlane::LaunchedBy(const DeviceWork& work, XEventBytes& event) {
  if (work.op != kNone) event.Ref(XStatId::kTfOp, tf_ops_.Id(work.op));
}

// To XProf, kernel_details makes an event a kernel, tf_op gives it a row in the
// op tables, and hlo_op gives it FLOPs.
void XGpuPlane::KernelEvent(RowId row, XEventBytes& event) {
  const Kernel& kernel = trace_.kernels()[row];
  // XProf drops kernels of length 0, and files in whole microseconds have
  // hundreds of them. So a kernel lasts at least 1 ns.
  event.Start(texts_.KernelName(kernel.name),
              kernel.begin_ns - context_.begin_ns(),
              std::max<int64_t>(kernel.end_ns - kernel.begin_ns, 1));
  Common(kernel, true, event);
  // The place of the capture says more than the operator that replays a graph.
  if (kernel.captured_ops != kNone || kernel.captured_module != 0) {
    event.Ref(XStatId::kTfOp, tf_ops_.IdOfCapture(kernel));
  } else {
    LaunchedBy(kernel, event);
  }
  fused_ops_.AddTo(kernel.name, event);
  event.Ref(XStatId::kKernelDetails, texts_.KernelDetails(kernel));
  if (const int64_t shape = texts_.Shape(kernel); shape != 0)
    event.Ref(XStatId::kShape, shape);
  const RowId at = program_.Of(row);
  // An hlo_op that names no instruction would hide the kernel from all op
  // tables.
  if (at == kNone) return;
  const XProgram::Instruction& instruction = program_.instructions()[at];
  event.Ref(XStatId::kHloOp, texts_.Instruction(at));
  event.Ref(XStatId::kHloModule, texts_.ProgramName());
  event.Uint(XStatId::kProgramId, kXProgramId);
  if (instruction.flops >= 0) {
    event.Uint(XStatId::kFlops,
               static_cast<uint64_t>(std::llround(instruction.flops)));
    // XProf hides the stat "flops" in the details of a kernel, but not this
    // one.
    event.Double(XStatId::kGigaflop, instruction.flops * 1e-9);
  }
  if (instruction.bytes >= 0) {
    event.Uint(XStatId::kBytesAccessed,
               static_cast<uint64_t>(std::llround(instruction.bytes)));
  }
}

void XGpuPlane::CopyEvent(const Copy& copy, XEventBytes& event) {
  std::string direction = XCopyDirection(copy, trace_.name(copy.name));
  // XProf takes a copy in any direction but these three for compute.
  if (direction == "PtoP") direction = "DtoD";
  const bool counts =
      direction == "HtoD" || direction == "DtoH" || direction == "DtoD";
  event.Start(names_.Event(direction == "?" ? "MEMCPY" : "MEMCPY" + direction),
              copy.begin_ns - context_.begin_ns(), copy.end_ns - copy.begin_ns);
  Common(copy, counts, event);
  LaunchedBy(copy, event);
  event.Ref(XStatId::kMemcpyDetails, names_.Text(XCopyDetails(copy)));
}

void XGpuPlane::Event(Table table, RowId row, XEventBytes& event) {
  if (table == Table::kKernel) return KernelEvent(row, event);
  if (table == Table::kCopy) return CopyEvent(trace_.copies()[row], event);
  const Memset& set = trace_.memsets()[row];
  event.Start(names_.Event("MEMSET"), set.begin_ns - context_.begin_ns(),
              set.end_ns - set.begin_ns);
  // With a correlation XProf would count the memset as compute.
  Common(set, false, event);
  LaunchedBy(set, event);
}

bool XGpuPlane::Write(XSpaceFile& file) {
  std::vector<XLineSource> sources;
  int64_t display_id = 0;
  const auto add = [&](int64_t id, std::string name, size_t count, auto event) {
    ++display_id;
    if (count == 0) return;
    sources.push_back(
        {id, std::move(name), display_id, count, std::move(event)});
  };
  add(kStepsLineId, "Steps", tiles_.size(),
      [this](size_t i, XEventBytes& event) { StepEvent(tiles_[i], event); });
  add(kWaitLineId, "stepscope: input wait", waits_.size(),
      [this](size_t i, XEventBytes& event) { WaitEvent(waits_[i], event); });
  for (const auto& [stream, rows] : streams_) {
    add(stream, StreamName(stream, rows), rows.count(),
        // Lines make their events twice, to measure and to write. So at i == 0
        // the reader starts again.
        [this, &rows = rows, at = RowSequenceReader(rows)](
            size_t i, XEventBytes& event) mutable {
          if (i == 0) at = RowSequenceReader(rows);
          at.Next();
          Event(at.table(), at.row(), event);
        });
  }
  add(kCountersLineId, "_counters_", counters_.count(),
      [this](size_t i, XEventBytes& event) { counters_.Event(i, event); });
  return WriteXPlane(device_, "/device:GPU:" + std::to_string(device_), sources,
                     names_, DeviceStats(), file);
}

}  // namespace stepscope
