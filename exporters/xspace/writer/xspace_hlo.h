// The plane /host:metadata of an XSpace: the made-up program as a small HLO
// module.
//
// It has at least one instruction in a "gradients" scope, which stands for
// nothing that ran: XProf decides by it whether a profile is of training, and
// otherwise hides the step time and the step graph.
#pragma once

#include "io/file_sink.h"
#include "xspace/writer/xspace_context.h"
#include "xspace/writer/xspace_program.h"

namespace stepscope {

// False, with nothing written, if the file has no room left.
bool WriteHloPlane(const XContext& context, const XProgram& program,
                   XSpaceFile& file);

}  // namespace stepscope
