// Writes the header object "stepscope". It holds what neither Kineto's dialect
// nor an XSpace can express (docs/chrome_trace.md lists its keys), and
// own_header_reader.h reads it back.
#pragma once

#include <stepscope/trace.h>

#include <span>
#include <string>
#include <string_view>

#include "rows/file_threads.h"

namespace stepscope {

// Appends `  "stepscope": {...},` and a new line. `flavour` is "tb" or
// "kineto"; `drawn` is FileThreadsOf(trace).
void WriteOwnHeader(const Trace& trace, std::string_view flavour,
                    std::span<const ThreadNumbers> drawn, std::string& out);

}  // namespace stepscope
