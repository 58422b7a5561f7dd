// The plane /host:metadata of an XSpace with a tiny HLO module.
//
// XProf decides by it whether a profile is of training; without one its
// overview page hides the step time and the step graph. The module holds one
// instruction in a "gradients" scope and stands for nothing that ran.
#pragma once

#include <stepscope/trace.h>

#include "../file_sink.h"

namespace stepscope {

void WriteHloPlane(const Trace& trace, FileSink& sink);

}  // namespace stepscope
