// XContext: what several planes of an XSpace ask of a Trace: which step an
// event belongs to, and what an op is called in XProf's op tables.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../event_order.h"
#include "xspace_plane.h"

namespace stepscope {

class XContext {
 public:
  explicit XContext(const Trace& trace);

  const Trace& trace() const { return trace_; }
  // Offsets count from here: epoch times overflow XProf's picoseconds.
  int64_t begin_ns() const { return span_.begin_ns; }
  const TimeSpan& span() const { return span_; }

  // The step whose host window holds `time_ns`, or kNone.
  RowId StepAt(int64_t time_ns) const;
  // The step that launched the work, or ran while it began.
  RowId StepOf(const DeviceWork& work) const;
  // Adds the stat group_id if there is a step.
  void Group(RowId step, XEventBytes& event) const;

  // "<module path>/<op>:<type>", in the grammar XProf parses. Conv and matrix
  // ops get the names it knows as Tensor Core eligible.
  std::string TfOp(RowId op) const;
  // Equal for two ops with the same TfOp(), and cheap.
  std::pair<NameId, NameId> TfOpKey(RowId op) const;

 private:
  void FindModules();

  const Trace& trace_;
  TimeSpan span_;
  std::vector<NameId> module_of_;  // by op: path of the innermost module
  std::vector<bool> in_backward_;  // by op
};

// Text ids of TfOp() within one plane.
class XTfOps {
 public:
  XTfOps(const XContext& context, XNames* names)
      : context_(context), names_(*names) {}
  int64_t Id(RowId op);

 private:
  const XContext& context_;
  XNames& names_;
  std::map<std::pair<NameId, NameId>, int64_t> ids_;
};

}  // namespace stepscope
