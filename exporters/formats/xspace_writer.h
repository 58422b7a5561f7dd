// XSpace protobuf (proto/xplane.proto) laid out so that XProf 2.24 shows the
// right thing: own step groups, tiled step spans on GPU planes, waits for data
// as input, memory events, advice as banner and rows. exporters/README.md
// tells which plane holds what.
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <span>
#include <string>

#include "../file_sink.h"

namespace stepscope {

// Streams the whole file into `sink`; write errors stay with the sink. `host`
// is the part of the file's name before ".xplane.pb", which XProf takes for
// the host.
void WriteXSpace(const Trace& trace, std::span<const Annotation> annotations,
                 const std::string& host, FileSink& sink);

}  // namespace stepscope
