// Which files of one folder are the traces of one run.
#pragma once

#include <stepscope/logdir.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// The traces in `folder` itself, one per rank, ordered by rank; the other files
// are in passed_over with the reason, bounded as BoundNotes() does. Of several
// cycles the last is taken, or `cycle` if it is not negative. Where a rank has
// several files (both flavours, or compressed and not) one is taken. XSpaces
// are taken only where there is no Chrome trace. trace_files is empty if there
// is no trace. Opens each file once and reads its header.
ResolvedRun TracesIn(const std::string& folder, int32_t cycle);

// Leaves of many notes the first, and a note "<folder>: <n> more".
void BoundNotes(const std::string& folder, std::vector<std::string>* notes);

}  // namespace stepscope
