// ShortenOps(): the edit that shortens or removes single ops with the kernels
// that they launch.
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
  // Per steady step: the time of the ops, and what the change saves of it. Of
  // the device on a run with a GPU, else of the training thread.
  double ns = 0;
  double saved_ns = 0;
};

// `change` says what the edit is, as HostCut::change. An op inside another one
// of the list is left out. Ops may come in any order; those of steps that are
// not steady are left out.
ShortenedOps ShortenOps(const AnalysisContext& context,
                        std::vector<ShortenedOp> ops, const char* change);

}  // namespace stepscope
