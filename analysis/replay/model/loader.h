// What a recording says about the loader that feeds the training thread: how
// many workers it has, and how fast they can be.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "steps/steps.h"

namespace stepscope {

// The number of workers of the loader that feeds the training thread: from its
// Loader row, from the host's usage samples, or 0 if a loader range names a
// single-process loader; -1 if none of them says.
int LoaderWorkers(const Trace& trace);

// How many batches each worker of that loader makes ahead; -1 if its Loader row
// does not say.
int LoaderBatchesAhead(const Trace& trace);

// True if a range on any thread is of a DataLoader with worker processes.
bool NamesWorkerProcesses(const Trace& trace);

// The rows of ranges() in which `thread` waits for a batch or makes it: its
// loader ranges, or phases named "data" if the recording has none. Waits for
// the first batch of a validation pass are left out, because no worker can
// shorten them.
std::vector<RowId> BatchRanges(const Trace& trace, RowId thread);

// True if the mean of `waits` (ns) is short, and hardly longer than the
// shortest ones, as taking finished batches is. Workers that are too slow make
// the loop wait until they are done, so those waits vary with what the loop
// does meanwhile.
bool IsHandOver(std::vector<double> waits);

// How fast the recorded workers can be, whatever else becomes faster.
struct LoaderRate {
  // The least time from step to step: that between the batches where the loop
  // waits for them throughout, else the CPU time of a step's batches over the
  // cores that the workers can use. 0: not known, or the training thread makes
  // the batches itself.
  double period_ns = 0;
  // They have been fast enough so far, and nothing recorded tells how much
  // faster they can be.
  bool unknown = false;
};
// `cores`: usable by this process; 0: unknown. `step_ns`: the mean steady step.
LoaderRate MeasureLoaderRate(const Trace& trace, const Steps& steps, int cores,
                             double step_ns);

}  // namespace stepscope
