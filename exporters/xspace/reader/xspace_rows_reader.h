// XSpaceRowReader: turns the events of an XSpace into rows of a TraceBuilder.
// Reads our own XSpaces (docs/xspace.md) and those of XLA's and TensorFlow's
// profilers.
//
// An XSpace does not say what kind a host event is. The reader tests, in this
// order, for step marks, memory, calls of the runtime (by name), waits for
// batches and other known ranges, operators (stat tf_op), Python frames (by the
// form of the name), ranges. Lines that XProf derived from others are not read.
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "xspace/reader/xspace_plane_reader.h"

namespace stepscope {

class XSpaceRowReader {
 public:
  struct Counts {
    int64_t rows = 0;
    int64_t damaged_events = 0;
    int64_t damaged_lines = 0;
    int64_t negative_durations = 0;
    int64_t bad_times = 0;
    int64_t counted_events = 0;  // without a time, only with a count
  };

  explicit XSpaceRowReader(TraceBuilder* builder) : builder_(*builder) {}

  // Rows of threads() that our own header named, by tid.
  void KnowThread(int64_t tid, RowId row) { threads_.emplace(tid, row); }
  // The ranges of our own plane /device:CUSTOM:stepscope.
  void AddOwnPlane(const XPlaneReader& plane);
  void AddHostPlane(const XPlaneReader& plane);
  void AddDevicePlane(const XPlaneReader& plane, int32_t device);
  // Call after the last plane: adds rows that had to wait for other planes, and
  // takes the steps from the devices' lines if the host had none.
  void Finish();
  void WatchWhatWasSeen();

  const Counts& counts() const { return counts_; }

 private:
  template <typename Use>
  void ForEachEvent(const XPlaneReader& plane, const XLineField& line, Use use);
  void AddHostEvent(const XEventField& event, RowId thread);
  void AddStep(const XEventField& event, RowId thread, int64_t number);
  void AddAllocation(const XEventField& event, RowId thread);
  void AddRange(const XEventField& event, RowId thread, RangeKind kind);
  void AddCall(const XEventField& event, RowId thread);
  void AddOp(const XEventField& event, RowId thread);
  void AddPythonFrame(const XEventField& event, RowId thread);
  void AddOverhead(const XEventField& event, RowId thread);
  void AddDeviceEvent(const XEventField& event, const DeviceWork& work);
  NameId NameOf(const XEventField& event);
  // The id that both ends of an arrow have; 0 if there is none.
  static uint64_t FlowOf(const XEventField& event);
  RowId ThreadOf(const XLineField& line);

  TraceBuilder& builder_;
  std::unordered_map<int64_t, RowId> threads_;
  std::set<std::string, std::less<>> module_names_;
  std::set<std::string, std::less<>> phase_names_;
  // Steps as a device shows them, and the time of its activities. Foreign files
  // may show other steps on each device.
  struct DeviceSteps {
    std::vector<Step> steps = {};
    int64_t busy_ns = 0;
  };
  std::vector<DeviceSteps> device_steps_;
  std::vector<std::pair<Memset, uint64_t>> memsets_;  // with their flow
  std::unordered_map<uint64_t, int64_t> correlation_of_flow_;
  uint64_t seen_ = 0;  // bit per Kind
  Counts counts_;
};

}  // namespace stepscope
