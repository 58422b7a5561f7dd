// XProgram: a synthetic program for a Trace. XProf has FLOPs, bytes and source
// lines only for the instructions of an HLO program, and a PyTorch training
// loop has none, so each distinct (op, kernel, cost) becomes one instruction.
// It is a table that XProf joins with the kernels; nothing executed it.
//
// The FLOPs and bytes of an op call (op_cost.h) are shared evenly among the
// kernels that compute it. If a convolution also launches transposes, these get
// none. For several launches in a row XProf multiplies the cost of the last one
// by their number, so launches that share an instruction have equal costs.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "xspace/writer/xspace_context.h"

namespace stepscope {

inline constexpr uint64_t kXProgramId = 1;
inline constexpr char kXProgramName[] = "stepscope";

class XProgram {
 public:
  struct Instruction {
    std::string name = {};  // XProf joins instructions and kernels by it
    RowId op = kNone;       // the op of its first kernel
    double flops = -1;      // of one launch; -1 unknown
    double bytes = -1;
  };

  explicit XProgram(const XContext& context);

  const std::vector<Instruction>& instructions() const { return instructions_; }
  // Returns the instruction of a row of kernels(), or kNone if no op launched
  // the kernel.
  RowId Of(RowId kernel) const { return of_kernel_[kernel]; }

 private:
  // Returns by kernel the op call whose cost it shares, or kNone.
  std::vector<RowId> FindCalls() const;
  // Makes instructions in the order of calls, and fills `of_kernel_`.
  void ShareCosts(const std::vector<RowId>& calls);
  // Brings the instructions into the order of kernels and names them.
  void Number();

  const XContext& context_;
  const Trace& trace_;
  std::vector<Instruction> instructions_;
  std::vector<RowId> of_kernel_;
};

}  // namespace stepscope
