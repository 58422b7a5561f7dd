// OwnCode: what the program does between its ops, as far as it is not the
// framework that gets the next op going.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Pauses of one place in the program.
struct OwnCodePlace {
  std::string name;  // "in train.py(31): features" where stacks were recorded,
                     // else "between aten::add and aten::mm"
  double ns = 0;     // per steady step
  Span longest;
};

struct OwnCode {
  // Pauses of more than kFrameworkGapNs between ops of the training thread, in
  // the steady steps, without saving the model and what the optimizer does in
  // its calls; at step marks and at both ends of backward only of more than
  // 0.5 ms. Where, in front of ops of the same name, a few steps have
  // most of it, what the median step has: the rest is another program's, which
  // took the core. Per step.
  double ns = 0;
  double pauses = 0;
  // On a run with a GPU: the part of `ns` in which the GPU is idle, estimated
  // from the share of these pauses in all code between ops. Else `ns`.
  double delay_ns = 0;
  // The same of pauses inside zero_grad and step of the optimizer, as far as
  // they do not prepare an update.
  double optimizer_delay_ns = 0;
  // On a run without a GPU: of pauses that save the model, which count nowhere
  // else.
  double saving_ns = 0;
  // Pauses of 30 ms and more at changing places, which `ns` leaves out: how long
  // they take per step (on a run with a GPU: while it is idle), how many there
  // are in the steady steps, and the longest.
  double interrupted_ns = 0;
  int64_t interruptions = 0;
  Span longest_interruption;
  double steps_frac = 0;  // steady steps with at least half of `ns`, 0 to 1
  std::vector<OwnCodePlace> places = {};  // longest first
};

// Places are left empty unless asked for: finding them takes time.
OwnCode MeasureOwnCode(const AnalysisContext& context, bool with_places);

}  // namespace stepscope
