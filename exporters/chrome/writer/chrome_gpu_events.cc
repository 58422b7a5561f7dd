// The part of ChromeEventWriter that writes runtime calls and the activities on
// a GPU's streams.
#include <algorithm>
#include <cmath>

#include "chrome/writer/chrome_event_writer.h"
#include "rows/row_fields.h"
#include "rows/tensor_core_names.h"

namespace stepscope {
namespace {

// Kineto's word for a kind of memory.
const char* MemoryWord(MemoryKind kind) {
  static constexpr const char* kWords[] = {
      "Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Host"};
  return kWords[static_cast<size_t>(kind)];
}

char SideOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kManaged:
      return 'D';
    case MemoryKind::kArray:
      return 'A';
    case MemoryKind::kUnknown:
      return '?';
    default:
      return 'H';
  }
}

// "Memcpy HtoD (Pinned -> Device)", as Kineto names copies. HTA recognises
// copies by this name, and our reader takes the kinds of memory from it.
std::string CopyName(const Copy& copy) {
  std::string name = "Memcpy ";
  name += SideOf(copy.source);
  name += "to";
  name += SideOf(copy.destination);
  name += std::string(" (") + MemoryWord(copy.source) + " -> " +
          MemoryWord(copy.destination) + ")";
  return name;
}

}  // namespace

void ChromeEventWriter::Write(const RuntimeCall& call, RowId row) {
  const ChromePlace place =
      rows_.OnThread(call.thread, call.begin_ns, call.end_ns);
  if (place.displaced) displaced_calls_[row] = place.tid;
  const std::string_view name = trace_.name(call.name);
  // The plugin knows only "Runtime", the name of 2021, and drops every other
  // category; HTA's critical path needs today's names.
  const char* category = is_tb()          ? "Runtime"
                         : call.is_driver ? "cuda_driver"
                                          : "cuda_runtime";
  Open(category, Harmless(name), place, call.begin_ns, call.end_ns);
  const int64_t external_id = links_.OfCall(row);
  // The tb flavour writes the id even if it is 0 (no op). The plugin assigns a
  // call without an id to the first module, and a call with id 0 to the root of
  // its thread.
  if (is_tb() || external_id != 0) json_.Field("External id", external_id);
  if (call.correlation != -1) json_.Field("correlation", call.correlation);
  if (is_tb() && call.is_driver) json_.Field("stepscope.driver", int64_t{1});
  if (call.return_code != 0)
    json_.Field("stepscope.return_code", int64_t{call.return_code});
  if (is_altered_) json_.Field("stepscope.name", name);
  ThreadArgs(place, call.thread);
  Close();
  arrow_due_[row] = links_.CallLaunched(row);
}

void ChromeEventWriter::WorkArgs(const DeviceWork& work) {
  const int64_t external_id = links_.OfWork(work);
  if (external_id != 0) json_.Field("External id", external_id);
  json_.Field("device", int64_t{work.device});
  json_.Field("context", int64_t{work.context});
  json_.Field("stream", work.stream);
  if (work.correlation != -1) json_.Field("correlation", work.correlation);
}

// Writes one arrow per call, to the first activity that it launched.
void ChromeEventWriter::ArrowFromCall(const DeviceWork& work,
                                      const ChromePlace& to) {
  if (work.call == kNone || !arrow_due_[work.call]) return;
  arrow_due_[work.call] = false;
  const RuntimeCall& call = trace_.runtime_calls()[work.call];
  if (call.thread == kNone) return;
  auto [pid, tid] = rows_.FileThread(call.thread);
  const auto displaced = displaced_calls_.find(work.call);
  if (displaced != displaced_calls_.end()) tid = displaced->second;
  const int64_t id = next_arrow_++;
  Arrow("ac2g", id, true, pid, tid, call.begin_ns);
  Arrow("ac2g", id, false, to.pid, to.tid, work.begin_ns);
}

void ChromeEventWriter::Write(const Kernel& kernel) {
  const ChromePlace place = rows_.OnStream(kernel.device, kernel.stream,
                                           kernel.begin_ns, kernel.end_ns);
  const std::string_view name = trace_.name(kernel.name);
  std::string_view shown = Harmless(name);
  // The plugin tells by parts of names which kernels use Tensor Cores.
  if (is_tb()) {
    const std::string& seen = NameInPlugin(kernel.name);
    if (!seen.empty()) {
      altered_name_ = Harmless(seen);
      shown = altered_name_;
      is_altered_ = true;
    }
  }
  Open("kernel", shown, place, kernel.begin_ns, kernel.end_ns);
  // torch's profile_analysis does not show a kernel without this arg.
  if (!is_tb()) json_.Field("name", shown);
  WorkArgs(kernel);
  const auto number = [&](const char* key, int64_t value) {
    if (value != -1) json_.Field(key, value);
  };
  // Infinity and NaN are not JSON: a browser refuses the whole file.
  const auto real = [&](const char* key, float value) {
    if (value == -1 || !std::isfinite(value)) return;
    json_.Key(key);
    AppendFloat(value, out_);
  };
  const auto triple = [&](const char* key, const std::array<int32_t, 3>& of) {
    if (of == std::array<int32_t, 3>{}) return;
    json_.Key(key);
    json_.OpenList();
    for (int32_t value : of) {
      json_.Item();
      json_.Int(value);
    }
    json_.CloseList();
  };
  number("registers per thread", kernel.registers_per_thread);
  number("shared memory", kernel.shared_memory_bytes);
  real("blocks per SM", kernel.blocks_per_sm);
  real("warps per SM", kernel.warps_per_sm);
  triple("grid", kernel.grid);
  triple("block", kernel.block);
  // Kineto's key holds whole percent. Our key keeps the exact fraction, so that
  // a file read back equals the live Trace.
  if (kernel.occupancy_frac != -1 && std::isfinite(kernel.occupancy_frac)) {
    json_.Field("est. achieved occupancy %",
                static_cast<int64_t>(std::lround(
                    std::clamp(kernel.occupancy_frac * 100.0F, 0.0F, 100.0F))));
    real("stepscope.occupancy", kernel.occupancy_frac);
  }
  if (kernel.graph != 0) json_.Field("graph id", kernel.graph);
  if (kernel.graph_node != 0) json_.Field("graph node id", kernel.graph_node);
  if (kernel.captured_module != 0) {
    json_.Field("stepscope.detail", trace_.name(kernel.captured_module));
  }
  if (kernel.captured_ops != kNone) {
    inputs_.AppendStack(kernel.captured_ops, out_);
  }
  FusedOpsArg(kernel.name);
  const auto moment = [&](const char* key, int64_t time_ns) {
    if (time_ns == -1) return;
    json_.Key(key);
    AppendMicros(time_ns - base_ns_, out_);
  };
  moment("stepscope.queued", kernel.queued_ns);
  moment("stepscope.submitted", kernel.submitted_ns);
  if (kernel.communication != kNone)
    CollectiveArgs(trace_.communications()[kernel.communication]);
  if (is_altered_) json_.Field("stepscope.name", name);
  Close();
  ArrowFromCall(kernel, place);
}

const std::string& ChromeEventWriter::NameInPlugin(NameId kernel) {
  const auto [it, added] = plugin_names_.try_emplace(kernel);
  if (added) {
    std::string name = NameForViewers(trace_.name(kernel));
    if (name != trace_.name(kernel)) it->second = std::move(name);
  }
  return it->second;
}

void ChromeEventWriter::Write(const Copy& copy) {
  const ChromePlace place =
      rows_.OnStream(copy.device, copy.stream, copy.begin_ns, copy.end_ns);
  const std::string_view name = trace_.name(copy.name);
  // CUPTI gives copies no name. An empty stepscope.name then says that the name
  // was made up here.
  const std::string made = name.empty() ? CopyName(copy) : std::string();
  Open("gpu_memcpy", name.empty() ? std::string_view(made) : Harmless(name),
       place, copy.begin_ns, copy.end_ns);
  WorkArgs(copy);
  if (copy.bytes != -1) json_.Field("bytes", copy.bytes);
  // Bytes per ns are GB/s.
  if (copy.bytes > 0 && copy.end_ns > copy.begin_ns) {
    json_.Key("memory bandwidth (GB/s)");
    json_.Double(static_cast<double>(copy.bytes) /
                 static_cast<double>(copy.end_ns - copy.begin_ns));
  }
  json_.Field("stepscope.source",
              kMemoryKindTexts[static_cast<size_t>(copy.source)]);
  json_.Field("stepscope.destination",
              kMemoryKindTexts[static_cast<size_t>(copy.destination)]);
  if (!copy.is_async) json_.Field("stepscope.async", int64_t{0});
  if (name.empty() || is_altered_) json_.Field("stepscope.name", name);
  Close();
  ArrowFromCall(copy, place);
}

void ChromeEventWriter::Write(const Memset& set) {
  const ChromePlace place =
      rows_.OnStream(set.device, set.stream, set.begin_ns, set.end_ns);
  const std::string_view name = trace_.name(set.name);
  Open("gpu_memset", name.empty() ? "Memset (Device)" : Harmless(name), place,
       set.begin_ns, set.end_ns);
  WorkArgs(set);
  if (set.bytes != -1) json_.Field("bytes", set.bytes);
  if (set.bytes > 0 && set.end_ns > set.begin_ns) {
    json_.Key("memory bandwidth (GB/s)");
    json_.Double(static_cast<double>(set.bytes) /
                 static_cast<double>(set.end_ns - set.begin_ns));
  }
  if (name.empty() || is_altered_) json_.Field("stepscope.name", name);
  Close();
  ArrowFromCall(set, place);
}

// Draws synchronisations on a row of their own, as Kineto does, because on the
// row of the stream they would cross kernels.
void ChromeEventWriter::Write(const Sync& sync) {
  const ChromePlace place =
      rows_.OnSyncRow(sync.device, sync.stream, sync.begin_ns, sync.end_ns);
  const std::string_view name = trace_.name(sync.name);
  Open("cuda_sync", Harmless(name), place, sync.begin_ns, sync.end_ns);
  json_.Field("cuda_sync_kind", name);
  json_.Field("stream", sync.stream);
  if (sync.correlation != -1) json_.Field("correlation", sync.correlation);
  json_.Field("device", int64_t{sync.device});
  if (sync.wait_on_stream != -1)
    json_.Field("wait_on_stream", sync.wait_on_stream);
  if (sync.wait_on_record_correlation != -1) {
    json_.Field("wait_on_cuda_event_record_corr_id",
                sync.wait_on_record_correlation);
  }
  if (is_altered_) json_.Field("stepscope.name", name);
  Close();
}

}  // namespace stepscope
