// Which files of one folder are the traces of one run.
#pragma once

#include <stepscope/logdir.h>

#include <cstdint>
#include <string>

namespace stepscope {

// The traces in `folder` itself, one per rank, ordered by rank; every other
// file is in passed_over with the reason. Of several cycles the last is taken,
// or `cycle` if it is not negative. Where a rank has several files (both
// flavours, or compressed and not) one is taken. XSpaces are taken only where
// there is no Chrome trace. trace_files is empty if there is no trace. Opens
// each file once and reads its header.
ResolvedRun TracesIn(const std::string& folder, int32_t cycle);

}  // namespace stepscope
