// TraceFolder: which files of one folder are the traces of one run.
#pragma once

#include <stepscope/logdir.h>

#include <cstdint>
#include <string>

namespace stepscope {

// The traces that lie in `folder` itself, one per rank, ordered by rank; every
// other file is in passed_over with the reason. Of files of several cycles the
// last is taken (`cycle` chooses another), of two flavours or spellings of one
// rank one. XSpaces are taken where there is no Chrome trace. No trace at all:
// trace_files is empty.
ResolvedRun TracesIn(const std::string& folder, int32_t cycle);

}  // namespace stepscope
