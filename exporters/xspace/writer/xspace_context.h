// XContext: what several planes of an XSpace need to know about a Trace: the
// step of an event, and the name of an op in XProf's op tables.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rows/event_order.h"
#include "rows/fused_ops.h"
#include "xspace/writer/xspace_plane.h"

namespace stepscope {

// A number for each row, in as many bytes as the largest of them needs.
class Numbers {
 public:
  // All 0. REQUIRES: no number is above `largest`.
  Numbers(size_t count, size_t largest);
  uint32_t operator[](size_t i) const {
    return wide_.empty() ? narrow_[i] : wide_[i];
  }
  void Set(size_t i, uint32_t number) {
    if (wide_.empty()) {
      narrow_[i] = static_cast<uint16_t>(number);
    } else {
      wide_[i] = number;
    }
  }

 private:
  std::vector<uint16_t> narrow_;
  std::vector<uint32_t> wide_;
};

class XContext {
 public:
  explicit XContext(const Trace& trace);

  const Trace& trace() const { return trace_; }
  // The offsets of events count from here, because epoch times would overflow
  // XProf's picoseconds.
  int64_t begin_ns() const { return span_.begin_ns; }
  const TimeSpan& span() const { return span_; }

  // The step whose host window holds `time_ns`, or kNone.
  RowId StepAt(int64_t time_ns) const;
  // The step that launched the activity or, if the call is not known, the step
  // in which the activity began.
  RowId StepOf(const DeviceWork& work) const;
  // Adds the stat group_id if there is a step.
  void Group(RowId step, XEventBytes& event) const;

  // "<module path>/<op>:<type>", in the grammar XProf parses. Conv and matrix
  // ops get the names it knows as Tensor Core eligible.
  std::string TfOp(RowId op) const;
  // The same for the place where a kernel of a CUDA graph was captured.
  // REQUIRES: the kernel has captured_ops or captured_module.
  std::string TfOpOfCapture(const Kernel& kernel) const;
  // A key that is cheap to make. Ops with the same key have the same TfOp().
  uint64_t TfOpKey(RowId op) const;

 private:
  void FindModules();
  std::string TfOp(std::string_view name, std::string_view module,
                   bool in_backward) const;
  NameId ModuleOf(RowId op) const {
    return modules_.empty() ? NameId{0} : modules_[module_of_[op]];
  }

  const Trace& trace_;
  TimeSpan span_;
  // The distinct module paths, with "" first; empty if there are no modules.
  std::vector<NameId> modules_;
  Numbers module_of_;              // by op: innermost module, in modules_
  std::vector<bool> in_backward_;  // by op
  mutable RowId last_step_ = 0;    // where StepAt() looks first
};

// Text ids of TfOp() within one plane.
class XTfOps {
 public:
  XTfOps(const XContext& context, XNames* names)
      : context_(context), names_(*names) {}
  int64_t Id(RowId op);
  int64_t IdOfCapture(const Kernel& kernel);

 private:
  const XContext& context_;
  XNames& names_;
  std::unordered_map<uint64_t, int64_t> ids_;          // by TfOpKey()
  std::unordered_map<uint64_t, int64_t> capture_ids_;  // by ops and module
};

// The stat fused_ops of the events of compiled kernels, within one plane.
class XFusedOps {
 public:
  XFusedOps(const XContext& context, XNames* names)
      : ops_(context.trace()), names_(*names) {}
  // Adds nothing if `name` is not that of a compiled kernel.
  void AddTo(NameId name, XEventBytes& event);

 private:
  FusedOps ops_;
  XNames& names_;
};

}  // namespace stepscope
