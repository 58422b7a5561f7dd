// TraceBuilder: rows in any order, from decoders or readers, become one Trace:
// merged, sorted, linked, clipped.
//
// Add rows with their own fields filled and links left at kNone (except
// `thread`, which is what AddThread gave, and `inputs`, `stack`). Build()
// resolves every other link:
//   op.parent         innermost op enclosing it on its thread (2 us tolerance
//   where a file rounds; see options) op.forward        backward node ->
//   forward op by (sequence, forward_thread) call.op           innermost op on
//   the same thread containing the call's begin work.call, .op    by
//   correlation; where ids repeat (graphs, split copies), the latest call that
//   began before it allocation.op     as call.op; allocation.other by address
//   and device, in time order communication.op  as call.op
// One thread drives a builder.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stepscope {

class TraceBuilder {
 public:
  struct Options {
    // Rows that end before or begin after the window are dropped (device work:
    // when its launch is outside). 0, 0: keep all.
    int64_t window_begin_ns = 0;
    int64_t window_end_ns = 0;
    int64_t nesting_tolerance_ns =
        0;  // a child may outlast its parent by this much; readers of rounded
            // files set 2000
  };

  TraceBuilder();
  ~TraceBuilder();
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  NameId Intern(std::string_view text);
  // The row of the thread (pid, tid); adds it on first use.
  RowId ThreadRow(int64_t pid, int64_t tid);
  Thread& thread(RowId row);
  // The row of an equal list or stack; adds it on first use.
  RowId InternInputs(OpInputs inputs);
  RowId InternStack(Stack stack);
  const OpInputs& inputs(RowId row) const { return trace_.op_inputs_[row]; }

  RunInfo& run() { return trace_.run_; }
  void Watch(Kind kind) {
    trace_.watched_ |= uint64_t{1} << static_cast<int>(kind);
  }

  // Room for so many rows more, for whoever knows beforehand: tables then grow
  // once. Only the large tables of a device recording.
  void Reserve(size_t runtime_calls, size_t kernels, size_t copies);

  RowId Add(const Step& row);
  RowId Add(const Range& row);
  RowId Add(const Op& row);
  RowId Add(const RuntimeCall& row);
  RowId Add(const Kernel& row);
  RowId Add(const Copy& row);
  RowId Add(const Memset& row);
  RowId Add(const Sync& row);
  RowId Add(const Overhead& row);
  RowId Add(const PythonFrame& row);
  RowId Add(const Allocation& row);
  RowId Add(const Communication& row);
  RowId Add(const Settings& row);
  RowId Add(const HostUsage& row);
  RowId Add(const Loader& row);
  RowId Add(const Stream& row);
  RowId Add(const DeviceMemory& row);
  RowId Add(const DeviceSample& row);
  void Add(Loss row);

  // Rows added so far, for readers that learn late what they mean. Add()
  // invalidates these.
  std::span<Kernel> kernels() { return trace_.kernels_; }
  std::span<Copy> copies() { return trace_.copies_; }
  std::span<Memset> memsets() { return trace_.memsets_; }

  // Names a stream, before or after its row is added; without one, it gets one.
  void NameStream(int32_t context, int64_t id, NameId name);

  // Moves every row added so far: a file may say what its times count from only
  // behind its events.
  void ShiftTimes(int64_t delta_ns);

  // Sorts, links and clips. The builder is empty afterwards.
  Trace Build(const Options& options);
  Trace Build() { return Build(Options()); }

 private:
  void LinkOps(int64_t tolerance_ns);
  void LinkCalls();
  void LinkDeviceWork();
  void LinkAllocations();
  void Clip(const Options& options);
  void LinkStreamNames();

  Trace trace_;
  std::vector<Stream> stream_names_;
  struct Index;
  Index* index_;
};

// The kind of a range by its name alone: loader, optimizer, phase and
// collective names are recognised wherever they come from (torch.profiler's own
// names; formats/chrome_trace.md section 2).
RangeKind ClassifyRange(std::string_view name);

// If `name` is a step mark ("ProfilerStep#12"), its number; else -1.
int64_t StepNumber(std::string_view name);

}  // namespace stepscope
