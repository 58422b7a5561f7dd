// ShortenOps(): makes the edit that shortens or removes single ops and the
// kernels that they launch.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

struct ShortenedOp {
  RowId op = kNone;
  double left = 0;  // the share of its time that remains
};

struct ShortenedOps {
  Edit edit;
  // Per steady step: the time of the ops, and how much of it the change saves.
  // Device time on a run with a GPU, otherwise time of the training thread.
  double ns = 0;
  double saved_ns = 0;
};

// `change` describes the edit (HostCut::change). Ops may come in any order. Ops
// inside another op of the list, and ops outside steady steps, are left out.
ShortenedOps ShortenOps(const AnalysisContext& context,
                        std::vector<ShortenedOp> ops, const char* change);

}  // namespace stepscope
