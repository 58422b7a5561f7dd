// The plane /host:metadata of an XSpace: the synthetic program of XProgram as a
// small HLO module.
//
// It has one instruction in a "gradients" scope that stands for nothing that
// ran. XProf takes a profile for training only if there is one, and otherwise
// hides the step time and the step graph.
#pragma once

#include "io/file_sink.h"
#include "xspace/writer/xspace_context.h"
#include "xspace/writer/xspace_program.h"

namespace stepscope {

// False, with nothing written, if the file has no room left.
bool WriteHloPlane(const XContext& context, const XProgram& program,
                   XSpaceFile& file);

}  // namespace stepscope
