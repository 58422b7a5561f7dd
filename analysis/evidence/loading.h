// How the training thread gets its batches: what the rules about loading share.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

// Waits of the training thread for batches: loader ranges, or phases named
// "data" if there are none.
struct Loading {
  std::vector<Example> longest;   // the longest in steady steps, at most 3
  int64_t batches = 0;            // waits in steady steps
  bool any = false;               // the recording has such waits
  bool worker_processes = false;  // a range is of a multi-process DataLoader
};
Loading FindLoading(const AnalysisContext& context);

// True for what iter(loader) begins with: torch.empty((),
// dtype=torch.int64).random_(). Its sampler draws such a seed as well.
bool DrawsSeed(const Trace& trace, RowId op);

// Batches that the training thread makes itself without any range that says so,
// as a C++ loop does that calls its dataset directly. They are recognised by
// ops that decode and collate (stack, from_blob, casts of bytes) before the
// model begins, and that launch nothing.
struct Collation {
  std::vector<Span> spans;  // at most one per steady step, in time order
  double idle_ns = 0;  // per steady step: idle time of the GPU in the spans; on
                       // a CPU-only run the whole spans
  double steps_frac = 0;  // share of steady steps with such a span, 0 to 1
};
// Empty if another thread does such work, too: then it is a loader worker.
Collation FindCollation(const AnalysisContext& context);

// Batches that a CPU-only run prepares on the training thread with ops of any
// kind (random numbers, arithmetic) before its model runs: neither weights nor
// autograd nodes are involved, so they need nothing of the step. Its times are
// without ops that choose samples from tensors in memory (randperm, index):
// these are cheap, and a worker would have to copy the batch as well. Empty on
// a run with a GPU, where such ops run beside the step.
Collation FindPreparation(const AnalysisContext& context);

// The loader's name for a sentence, "loader \"train\""; "" if it has none.
std::string LoaderName(const AnalysisContext& context);

// Usable cores per rank on this host, at least 1; 0 if unknown.
int CoresForLoading(const AnalysisContext& context);

// The share of the step that another worker must save to be worth its memory.
inline constexpr double kWorthAWorker = 0.01;

// Returns `from` to `most` workers (at most 32 more than `from`), fewest first,
// each also with fewer intra-op threads where workers and threads exceed the
// cores; then, as far as cores are known to be there, multiples of `most`. Each
// comes with the fix that sets it.
std::vector<Alternative> WorkersToTry(const AnalysisContext& context, int from,
                                      int most);

// Returns the fix in C++ and Python that sets the workers and threads of
// `edit`.
Wording LoaderFix(const AnalysisContext& context, const Edit& edit);

// Why rules about loading are skipped if nothing about loading was recorded.
inline constexpr const char* kNoLoader =
    "no waits for batches were recorded; iterate over "
    "stepscope::Batches(*loader, \"train\"), or a torch DataLoader in Python";

// More workers are never suggested: it bounds estimates from damaged files.
inline constexpr double kMaxWorkers = 256;

}  // namespace stepscope
