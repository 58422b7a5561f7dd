// Writes Chrome trace JSON in Kineto's dialect, schemaVersion 1, in two
// flavours (docs/chrome_trace.md).
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <span>

#include "chrome/writer/chrome_flavour.h"
#include "io/file_sink.h"

namespace stepscope {

// Streams the whole file into `sink`, which keeps write errors for Close().
void WriteChromeTrace(const Trace& trace,
                      std::span<const Annotation> annotations,
                      ChromeFlavour flavour, FileSink& sink);

}  // namespace stepscope
