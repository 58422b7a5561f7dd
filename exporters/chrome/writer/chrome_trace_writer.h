// Writes Chrome trace JSON in Kineto's dialect, schemaVersion 1, in two
// flavours (docs/chrome_trace.md).
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <span>

#include "chrome/writer/chrome_event_writer.h"
#include "chrome/writer/chrome_flavour.h"
#include "io/file_sink.h"

namespace stepscope {

// Streams the whole file into `sink`, which keeps write errors for Close().
void WriteChromeTrace(const Trace& trace,
                      std::span<const Annotation> annotations,
                      ChromeFlavour flavour, FileSink& sink);

// Writes the rows of `trace` and its ranges on the device, in time order.
// Returns false after a write error.
bool WriteChromeRows(const Trace& trace, ChromeEventWriter& events,
                     FileSink& sink);

}  // namespace stepscope
