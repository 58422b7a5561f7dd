// The in= of a program's ops as a recorder keeps it.
#pragma once

#include <stepscope/trace_builder.h>

#include <string>

namespace stepscope::simulator {

// "float[8x3x2],float[8x3x4x4]@nhwc,-,'[1,1]'": tensors by type and sizes,
// contiguous or channels-last; "float[4x8]+float[2x8]": a list of tensors; "-"
// is no value; other values stand between quotation marks and hold no blanks.
OpInputs InputsOf(TraceBuilder& builder, const std::string& text);

}  // namespace stepscope::simulator
