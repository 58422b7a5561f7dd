// TraceBuilder: makes a Trace from rows that decoders or readers add in any
// order. Build() sorts, links and clips them.
//
// Add rows with their own fields filled and their links at kNone, except
// `thread` (from ThreadRow()), `inputs`, `stack` and `captured_ops`. Build()
// resolves the other links:
//
//   op.parent         the innermost op that encloses it on its thread
//   op.forward        of backward nodes: the forward op with the same sequence
//                     number on forward_thread
//   call.op, allocation.op, communication.op
//                     the innermost op on its thread when it begins
//   work.call, .op    by correlation id; if ids repeat (graphs, copies in
//                     parts), the latest call that began before the work.
//                     If that call launches no graph but the work is a kernel
//                     of a CUDA graph, the id is wrong: it is removed, and a
//                     Loss is added.
//   allocation.other  by device and address, in time order
//
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
    // Rows that end before the window or begin after it are dropped. Device
    // work is dropped if its launch is outside. 0, 0: keep all rows.
    int64_t window_begin_ns = 0;
    int64_t window_end_ns = 0;
    // A child op may end this much after its parent. Readers of files that
    // round to microseconds set 2000.
    int64_t nesting_tolerance_ns = 0;
  };

  TraceBuilder();
  ~TraceBuilder();
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  NameId Intern(std::string_view text);
  // The row of the thread (pid, tid); adds it on first use.
  RowId ThreadRow(int64_t pid, int64_t tid);
  Thread& thread(RowId row);
  // Returns the row of an equal list or stack, or adds it on first use.
  RowId InternInputs(OpInputs inputs);
  RowId InternStack(Stack stack);
  const OpInputs& inputs(RowId row) const { return trace_.op_inputs_[row]; }

  RunInfo& run() { return trace_.run_; }
  void Watch(Kind kind) {
    trace_.watched_ |= uint64_t{1} << static_cast<int>(kind);
  }

  // Reserves room for this many more rows, so that the large tables of a device
  // recording grow only once.
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

  std::span<const Step> steps() const { return trace_.steps_; }
  // The rows added so far, for readers that find missing fields later in the
  // file. The next Add() invalidates the spans.
  std::span<Kernel> kernels() { return trace_.kernels_; }
  std::span<Copy> copies() { return trace_.copies_; }
  std::span<Memset> memsets() { return trace_.memsets_; }

  // Names a stream, before or after its row is added. Build() adds a row for a
  // stream that has only a name.
  void NameStream(int32_t context, int64_t id, NameId name);

  // Shifts the times of all rows added so far. Needed because a file may state
  // its base time after its events.
  void ShiftTimes(int64_t delta_ns);

  // Sorts, links and clips. The builder is empty afterwards.
  Trace Build(const Options& options);
  Trace Build() { return Build(Options()); }

 private:
  void ForgetWrongLaunches();
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

// Returns the kind of a range, from its name alone. Recognises the names that
// torch.profiler gives to waits for batches, optimizer steps, phases and
// collectives.
RangeKind ClassifyRange(std::string_view name);

// True for calls that launch a CUDA graph (cudaGraphLaunch, cuGraphLaunch,
// hipGraphLaunch). No other call starts a graph's work.
bool LaunchesGraph(std::string_view call);

// Returns the number in a step mark ("ProfilerStep#12"); a negative number for
// any other name, and where the number is negative or too large.
int64_t StepNumber(std::string_view name);
// True for a step mark, whatever its number.
bool IsStepMark(std::string_view name);

}  // namespace stepscope
