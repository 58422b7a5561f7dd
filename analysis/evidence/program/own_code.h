// OwnCode: what the program does between its ops, without the time in which the
// framework prepares the next op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// The pauses at one place in the program.
struct OwnCodePlace {
  std::string name;  // "at train.py(31): features" if stacks were recorded,
                     // otherwise "between aten::add and aten::mm"
  double ns = 0;     // per steady step
  Span longest;
};

struct OwnCode {
  // Time per step in pauses of more than kFrameworkGapNs between ops of the
  // training thread, in the steady steps. At step marks and at both ends of
  // backward, pauses must exceed 0.6 ms. Leaves out saving the model, and what
  // the optimizer does in its calls. Where a few steps have most of the pauses
  // before ops of the same name, the median step's time counts: the rest is due
  // to another program that took the core.
  double ns = 0;
  double pauses = 0;
  // On a run with a GPU: the part of `ns` in which the GPU is idle. Otherwise
  // equal to `ns`.
  double delay_ns = 0;
  // The same for pauses inside the optimizer's zero_grad and step in which it
  // does not prepare an update.
  double optimizer_delay_ns = 0;
  // On a run without a GPU: the time of pauses that save the model. It is in no
  // other field.
  double saving_ns = 0;
  // Pauses of 30 ms and more at changing places, which `ns` leaves out: their
  // time per step (on a run with a GPU, only while it is idle), their number in
  // the steady steps, and the longest.
  double interrupted_ns = 0;
  int64_t interruptions = 0;
  Span longest_interruption;
  double steps_frac = 0;  // steady steps with at least ns / 2, 0 to 1
  std::vector<OwnCodePlace> places = {};  // longest first
};

// Fills in `places` only if asked to, because finding them takes time.
OwnCode MeasureOwnCode(const AnalysisContext& context, bool with_places);

}  // namespace stepscope
