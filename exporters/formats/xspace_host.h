// The plane /host:CPU of an XSpace: one line per thread and one for memory.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "xspace_context.h"
#include "xspace_plane.h"

namespace stepscope {

class XHostPlane {
 public:
  explicit XHostPlane(const XContext& context);
  void Write(FileSink& sink);

 private:
  struct Ref {
    Table table;
    RowId row;
  };
  // What an allocator had in use after an event, where the event does not say.
  struct InUse {
    int64_t bytes;
    int64_t peak_bytes;
  };

  void Sort();
  void CountMemory();
  void Event(const Ref& ref, XEventBytes& event);
  void Start(NameId name, int64_t begin_ns, int64_t end_ns, XEventBytes& event);
  void StepEvent(const Step& step, XEventBytes& event);
  void RangeEvent(RowId row, XEventBytes& event);
  void OpEvent(RowId row, XEventBytes& event);
  void CallEvent(RowId row, XEventBytes& event);
  void MemoryEvent(RowId row, XEventBytes& event);

  const XContext& context_;
  const Trace& trace_;
  XNames names_;
  XTfOps tf_ops_;
  std::vector<std::vector<Ref>> lines_;  // as threads(); last: thread unknown
  std::vector<InUse> in_use_;            // as allocations()
  std::vector<bool> launched_;           // as runtime_calls()
};

// The stat `flow` of an arrow from a launch to the work it started.
inline constexpr int kFlowOut = 2;
inline constexpr int kFlowIn = 1;
uint64_t XFlow(int direction, RowId call);

// The allocator an event belongs to, as XProf lists it: "CPU", "GPU0".
std::string XAllocatorName(const Allocation& event);

}  // namespace stepscope
