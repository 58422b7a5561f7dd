// The plane /host:metadata of an XSpace: the synthetic program of XProgram as a
// small HLO module.
//
// It also has one instruction in a "gradients" scope for which nothing ran.
// Without such an instruction XProf does not take a profile for training, and
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
