// Chooses the files of a folder that are the traces of one run.
#pragma once

#include <stepscope/logdir.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Returns the traces in `folder` itself, one per rank, sorted by rank. The
// other files are in passed_over, each with the reason; BoundNotes() limits
// this list. If the folder has several cycles, takes `cycle`, or the last
// complete one if `cycle` is negative. If a rank has several files (both
// flavours, or compressed and not), takes one of them. Takes XSpaces only if
// there is no Chrome trace. trace_files is empty if there is no trace. Opens
// each file once and reads its header.
ResolvedRun TracesIn(const std::string& folder, int32_t cycle);

// Shortens a long list to its first notes and a note "<folder>: <n> more".
void BoundNotes(const std::string& folder, std::vector<std::string>* notes);

}  // namespace stepscope
