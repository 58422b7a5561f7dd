// Chrome trace JSON in Kineto's dialect, schemaVersion 1, in two flavours. What
// each reader needs of it is written in exporters/README.md.
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <span>

#include "../file_sink.h"

namespace stepscope {

enum class ChromeFlavour {
  kTb,      // as torch-tb-profiler 0.4.3 understands it
  kKineto,  // as Kineto writes it today
};

// Streams the whole file into `sink`; write errors stay with the sink.
void WriteChromeTrace(const Trace& trace,
                      std::span<const Annotation> annotations,
                      ChromeFlavour flavour, FileSink& sink);

}  // namespace stepscope
