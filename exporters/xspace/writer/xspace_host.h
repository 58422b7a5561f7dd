// The plane /host:CPU of an XSpace: one line per thread and one for memory.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rows/memory_totals.h"
#include "rows/row_sequence.h"
#include "xspace/writer/xspace_context.h"
#include "xspace/writer/xspace_plane.h"

namespace stepscope {

// Which host events are written. A file that would become too large omits
// Python frames, and then ops shorter than kShortOpNs.
enum class XDetail : uint8_t { kAll, kNoPythonFrames, kNoShortOps };
inline constexpr int64_t kShortOpNs = 2'000;

class XHostPlane {
 public:
  XHostPlane(const XContext& context, XDetail detail);
  // False, with nothing written, if the file has no room left.
  bool Write(XSpaceFile& file);

 private:
  // What a runtime call put on a device.
  struct Launched {
    bool anything : 1 = false;
    bool upload : 1 = false;  // a copy to the device
    uint8_t device : 6 = 0;
  };

  void Sort();
  void FindLaunches();
  bool IsLeftOut(Table table, RowId row) const;
  void Event(Table table, RowId row, XEventBytes& event);
  void Start(NameId name, int64_t begin_ns, int64_t end_ns, XEventBytes& event);
  void StepEvent(const Step& step, XEventBytes& event);
  void RangeEvent(RowId row, XEventBytes& event);
  void OpEvent(RowId row, XEventBytes& event);
  void CallEvent(RowId row, XEventBytes& event);
  void MemoryEvent(RowId row, XEventBytes& event);
  int64_t InputsText(RowId inputs);
  int64_t StackText(RowId stack);

  const XContext& context_;
  const Trace& trace_;
  const XDetail detail_;
  XNames names_;
  XTfOps tf_ops_;
  XFusedOps fused_ops_;
  MemoryTotals totals_;
  std::vector<RowSequence> lines_;     // as threads(); last: thread unknown
  std::vector<Launched> launched_;     // as runtime_calls()
  std::vector<int64_t> inputs_texts_;  // as op_inputs(); 0 until asked for
  std::vector<int64_t> stack_texts_;   // as stacks()
  std::vector<bool> misread_;          // by name: looks like a step to XProf
};

// The stat `flow` of an arrow from a launch to the work it started.
inline constexpr int kFlowOut = 2;
inline constexpr int kFlowIn = 1;
uint64_t XFlow(int direction, RowId call);

// The allocator an event belongs to, as XProf lists it: "CPU", "GPU0".
std::string XAllocatorName(const Allocation& event);

}  // namespace stepscope
