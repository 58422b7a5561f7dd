// MergedCalls: what remains of ops that the program calls for one part of its
// data at a time, if a single call works on all parts instead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"
#include "replay/cpu/op_growth.h"

namespace stepscope {

// Returns the time in ns of the framework and the program from the end of one
// op to the start of another, at most kFrameworkGapNs. Longer pauses contain
// other work.
double CodeNs(const Trace& trace, RowId before, RowId after);

class MergedCalls {
 public:
  explicit MergedCalls(const AnalysisContext& context);

  // Adds the op `row`, one of `calls` such calls, its autograd nodes, and the
  // engine's time after these. On a CPU, products become parts of one product
  // at the best recorded rate, and other ops keep their computing time. On a
  // GPU, ops cost their launches, and one of `calls` remains.
  void Add(RowId row, double calls);
  // Adds an op that is no longer needed, such as a sum inside a node that is
  // added later.
  void Remove(RowId row);
  // Adds code of the program around the calls.
  void AddCode(double ns, double calls) { code_ns_ += ns * (1 - 1 / calls); }

  // Per steady step: the time of the ops, and the most that the change saves of
  // the ops and of the code around them, as it is without the recorder.
  struct Sum {
    double ns = 0, bound_ns = 0;
    Edit edit = {};  // of the ops, not of the code around them
  };
  Sum Total(const char* change) const;

 private:
  double LeftOf(RowId row, double calls) const;

  const AnalysisContext& m_;
  std::optional<OpGrowth> growth_;  // CPU-only runs
  std::vector<ShortenedOp> ops_;
  std::map<std::pair<RowId, int64_t>, int64_t> removed_;  // ns by thread, begin
  double code_ns_ = 0;                                    // saved, in all steps
};

}  // namespace stepscope
