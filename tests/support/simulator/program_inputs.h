// Parses `in=` of a program's ops into the form that a recorder keeps.
#pragma once

#include <stepscope/trace_builder.h>

#include <string>

namespace stepscope::simulator {

// Parses "float[8x3x2],float[8x3x4x4]@nhwc,-,'[1,1]'": tensors by type and
// sizes, contiguous or channels-last. "float[4x8]+float[2x8]" is a list of
// tensors, and "-" is no value. Other values are in quotation marks and contain
// no blanks.
OpInputs InputsOf(TraceBuilder& builder, const std::string& text);

}  // namespace stepscope::simulator
