// How the training thread comes by its batches: what the loader rules share.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

// Waits for batches, as loader ranges or data phases tell them.
struct Loading {
  std::vector<Example> longest;   // at most 3, in steady steps
  int64_t batches = 0;            // in the steady steps
  bool any = false;               // at all
  bool worker_processes = false;  // a name says ...MultiProcessing...
};
Loading FindLoading(const AnalysisContext& context);

// Batches made on the training thread without a word about it, as a C++ loop
// does that calls its dataset: ops that decode and collate, and launch nothing.
struct Collation {
  std::vector<Span> stretches;  // of the training thread, one per step at most
  double idle_ns = 0;     // per steady step: the GPU's idle time in them; on
                          // CPU-only runs all of it
  double steps_frac = 0;  // of the steady steps that have one
};
// Nothing if other threads do such work: they are loader workers.
Collation FindCollation(const AnalysisContext& context);

// "loader train", if the loop named one.
std::string LoaderName(const AnalysisContext& context);

// Usable cores for each rank; 0 if unknown.
int CoresForLoading(const AnalysisContext& context);

// The workers to try, and with them fewer intra-op threads where both do not
// fit on the cores. The best comes first.
std::vector<Edit> WorkerEdits(const AnalysisContext& context, int from,
                              int most);

// Fills in how to set what the edit says.
Finding LoaderFix(const AnalysisContext& context, Finding finding,
                  const Edit& edit);

inline constexpr const char* kNoLoader =
    "no waits for batches were recorded; iterate over "
    "stepscope::Batches(*loader, \"train\"), or a torch DataLoader in Python";

// More workers than this are never suggested.
inline constexpr double kMostWorkers = 256;

}  // namespace stepscope
