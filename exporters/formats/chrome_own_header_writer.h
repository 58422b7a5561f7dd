// The header object "stepscope" of a Chrome trace: what Kineto's dialect cannot
// say (exporters/README.md lists its keys). chrome_own_header_reader.cc reads
// it back.
#pragma once

#include <stepscope/trace.h>

#include <string>

#include "chrome_rows.h"
#include "chrome_trace_writer.h"

namespace stepscope {

// Appends `  "stepscope": {...},` and a new line.
void WriteOwnHeader(const Trace& trace, ChromeFlavour flavour,
                    const ChromeRows& rows, std::string& out);

}  // namespace stepscope
