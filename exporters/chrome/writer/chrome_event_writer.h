// ChromeEventWriter: writes each row of a Trace as one line of a Chrome trace,
// in the dialect of docs/chrome_trace.md. One thread drives a writer.
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chrome/writer/chrome_flavour.h"
#include "chrome/writer/chrome_gpu_ranges.h"
#include "chrome/writer/chrome_inputs_writer.h"
#include "chrome/writer/chrome_links.h"
#include "chrome/writer/chrome_rank_place.h"
#include "chrome/writer/chrome_rows.h"
#include "json/json_writer.h"
#include "rows/event_order.h"
#include "rows/fused_ops.h"
#include "rows/memory_totals.h"

namespace stepscope {

class ChromeEventWriter {
 public:
  // `trace`, `rows`, `out` and `place.arrows` must outlive the writer.
  ChromeEventWriter(const Trace& trace, ChromeFlavour flavour, int64_t base_ns,
                    ChromeRows* rows, std::string* out,
                    const ChromeRankPlace& place = {});

  void WriteSpan(const TimeSpan& span);
  void WriteLosses(const TimeSpan& span);
  // In order of time, so that those that cross get rows of their own.
  void WriteAnnotations(std::span<const Annotation> annotations,
                        const TimeSpan& span);
  // Writes what viewers draw as curves: the device samples (clocks, power,
  // ...) and, for Perfetto, memory and the load of the host.
  void WriteCounters();
  // Writes the start and the end of the recording.
  void WriteBounds(const TimeSpan& span);
  // REQUIRES: ranges come in order of their start, each before the rows that
  // start at the same time.
  void Write(const GpuRange& range);
  // REQUIRES: rows come in the order of EventOrder.
  void Write(Table table, RowId row);

  bool is_tb() const { return flavour_ == ChromeFlavour::kTb; }

 private:
  void WriteAnnotation(const Annotation& annotation, const TimeSpan& span);
  void Write(const Step& step);
  void Write(const Range& range, RowId row);
  void Write(const PythonFrame& frame);
  void Write(const Op& op, RowId row);
  void Write(const Communication& communication, RowId row);
  void Write(const RuntimeCall& call, RowId row);
  void Write(const Overhead& overhead);
  void Write(const Allocation& event, RowId row);
  void Write(const DeviceMemory& event);
  void Write(const Kernel& kernel);
  void Write(const Copy& copy);
  void Write(const Memset& set);
  void Write(const Sync& sync);

  void WriteSamples();
  void WriteMemoryCurves();
  void WriteHostLoad();
  // `pid` is JSON.
  void Counter(const char* category, const char* name, std::string_view pid,
               int64_t time_ns, double value);
  std::string CounterPid(int32_t device) const;
  std::string HostPid() const;
  void WriteModule(const Range& range, RowId row, const ChromePlace& place);
  void CollectiveArgs(const Communication& communication);
  void FusedOpsArg(NameId name);
  void MarkSize(const Range& range);
  void WorkArgs(const DeviceWork& work);
  void Arrow(const char* category, int64_t id, bool is_start, int64_t pid,
             int64_t tid, int64_t at_ns);
  void ArrowFromCall(const DeviceWork& work, const ChromePlace& to);
  // Both write the arrows between ranks that start or end at the event just
  // written.
  void ArrowsOfKernel(RowId kernel);
  void ArrowsOfHost(int64_t begin_ns, int64_t end_ns);
  void WriteRankArrow(const TimelineArrow& arrow);

  // `{"ph": "X", ... "args": {` and its end. With `ends_early`, the written end
  // is 0.4 ns early, which readers round away.
  void Open(std::string_view category, std::string_view name,
            const ChromePlace& place, int64_t begin_ns, int64_t end_ns,
            bool ends_early = false);
  void Close();
  // `{"ph": "i", ... "args": {` of an event without a length.
  void OpenInstant(std::string_view category, std::string_view name,
                   const ChromePlace& place, int64_t time_ns);
  // Returns the name, with a prefix if viewers would take it for a step mark.
  // Sets is_altered_.
  std::string_view Harmless(std::string_view name);
  // Returns the name of a kernel as the plugin must see it; "" if it is its
  // own.
  const std::string& NameInPlugin(NameId kernel);
  void Instant(const char* name, int64_t time_ns);
  void ThreadArgs(const ChromePlace& place, RowId thread);

  const Trace& trace_;
  const ChromeFlavour flavour_;
  const int64_t base_ns_;
  ChromeRows& rows_;
  std::string& out_;
  JsonWriter json_;
  ChromeLinks links_;
  ChromeInputsWriter inputs_;
  MemoryTotals totals_;
  std::unordered_map<NameId, std::string> plugin_names_;  // see NameInPlugin()
  FusedOps fused_ops_;
  std::string altered_name_;
  bool is_altered_ = false;

  // The tids of ops and calls that are drawn off their thread's own tid, for
  // the starts of their arrows.
  std::unordered_map<RowId, int64_t> displaced_ops_;
  std::unordered_map<RowId, int64_t> displaced_calls_;
  std::vector<char> arrow_due_;  // by call: written, but its arrow not yet
  int64_t next_arrow_;
  const std::string rank_name_;
  ChromePlace last_place_;  // of the slice written last
  std::multimap<RowId, const TimelineArrow*> kernel_arrows_;
  // Arrows at host events, by begin and end of the event; each is drawn once.
  std::multimap<std::pair<int64_t, int64_t>, const TimelineArrow*> host_arrows_;

  // Open module ranges by thread, and the numbers for the Module view.
  struct OpenModule {
    int64_t end_ns;
    int64_t python_id;
  };
  struct ModuleNumber {
    int64_t module_id;
    int64_t of_class;
  };
  std::map<RowId, std::vector<OpenModule>> open_modules_;
  std::map<std::pair<NameId, NameId>, ModuleNumber> modules_;
  std::map<NameId, int64_t> modules_of_class_;
  int64_t first_python_id_ = 1;
};

}  // namespace stepscope
