// How the training thread gets its batches. Shared by the rules about loading.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

// Waits of the training thread for batches: loader ranges, or, if there are
// none, phases named "data".
struct Loading {
  std::vector<Example> longest;   // the longest in steady steps, at most 3
  int64_t batches = 0;            // waits in steady steps
  bool any = false;               // the recording has such waits
  bool worker_processes = false;  // a range is of a multi-process DataLoader
};
Loading FindLoading(const AnalysisContext& context);

// True if `op` draws a seed, as iter(loader) and its sampler do:
// torch.empty((), dtype=torch.int64).random_().
bool DrawsSeed(const Trace& trace, RowId op);

// Batches that the training thread makes itself without a range around them,
// for example in a C++ loop that calls its dataset directly. Recognised by ops
// that decode and collate (stack, from_blob, casts of bytes) before the model
// starts, and that launch nothing.
struct Collation {
  std::vector<Span> spans;  // at most one per steady step, in time order
  double idle_ns = 0;  // per steady step: idle time of the GPU in the spans; on
                       // a CPU-only run, the whole length of the spans
  double steps_frac = 0;  // share of steady steps with such a span, 0 to 1
};
// Empty if another thread also does such work, because then a loader worker
// makes the batches.
Collation FindCollation(const AnalysisContext& context);

// Finds batches that a CPU-only run prepares on the training thread with any
// ops (random numbers, arithmetic) before its model runs. These ops involve
// neither weights nor autograd nodes, so they need nothing from the step. The
// times exclude ops that choose samples from tensors in memory (randperm,
// index): these are cheap, and a worker would have to copy the batch as well.
// Empty on a run with a GPU, where such ops run in parallel with the step.
Collation FindPreparation(const AnalysisContext& context);

// Returns the loader's name for a sentence, "loader \"train\""; "" if it has
// none.
std::string LoaderName(const AnalysisContext& context);

// Returns the usable cores per rank on this host, at least 1; 0 if unknown.
int CoresForLoading(const AnalysisContext& context);

// An additional worker must save this share of the step to be worth its memory.
inline constexpr double kWorthAWorker = 0.01;

// Returns alternatives with `from` to `most` workers (at most 32 more than
// `from`), fewest first. If workers and threads exceed the cores, each count
// comes a second time with fewer intra-op threads. Then follow multiples of
// `most`, as far as cores are known to be free. Each alternative has the fix
// that sets it.
std::vector<Alternative> WorkersToTry(const AnalysisContext& context, int from,
                                      int most);

// Returns the fix, in C++ and Python, that sets the workers and threads of
// `edit`.
Wording LoaderFix(const AnalysisContext& context, const Edit& edit);

// Why rules about loading are skipped if no loading was recorded.
inline constexpr const char* kNoLoader =
    "no waits for batches were recorded; iterate over "
    "stepscope::Batches(*loader, \"train\"), or a torch DataLoader in Python";

// More workers are never suggested. Bounds estimates from damaged files.
inline constexpr double kMaxWorkers = 256;

}  // namespace stepscope
