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

// True if a range on any thread belongs to a DataLoader with worker processes.
bool NamesWorkerProcesses(const Trace& trace);

// True if a Loader row says that batches are made by child processes.
bool WorkersAreProcesses(const Trace& trace);

// The rows of ranges() in which `thread` waits for a batch or makes it: its
// loader ranges, or phases named "data" if the recording has none. Waits for
// the first batch of a validation pass are left out, because no worker can
// shorten them.
std::vector<RowId> BatchRanges(const Trace& trace, RowId thread);

// True if `waits` (ns) are only the handing over of finished batches: their
// mean is short, and less than twice the shortest waits. If workers are too
// slow, the loop waits until they are done, so the waits vary with what the
// loop does in the meantime.
bool IsHandOver(std::vector<double> waits);

// How fast the recorded workers can be, however fast everything else becomes.
struct LoaderRate {
  // The least time from step to step that the workers allow. If the loop waits
  // for batches throughout, this is the time between them; otherwise the CPU
  // time of a step's batches / the cores that the workers can use. 0: unknown,
  // or the training thread makes the batches itself.
  double period_ns = 0;
  // The workers were fast enough, and nothing in the recording shows how much
  // faster they can be.
  bool unknown = false;
};
// `cores`: usable by this process; 0: unknown. `step_ns`: the mean steady step.
LoaderRate MeasureLoaderRate(const Trace& trace, const Steps& steps, int cores,
                             double step_ns);

}  // namespace stepscope
