// The texts that XProf parses to learn about a device activity.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <string_view>

namespace stepscope {

// "HtoD", "DtoH", "DtoD", "PtoP", or "?" if neither the name nor the kinds of
// memory determine it.
std::string XCopyDirection(const Copy& copy, std::string_view name);
// "num_bytes:4096\nkind_src:pinned kind_dst:device async:1"
std::string XCopyDetails(const Copy& copy);
// "regs:96 static_shared:0 ... grid:1,2,3 block:4,5,6 occ_pct:37.5"
std::string XKernelDetails(const Kernel& kernel);
// Returns the first tensor of the op that launched the kernel, for example
// "(half[64,3,224,224])". Without it, returns "(half)" for a 16-bit kernel,
// else "". XProf counts a kernel as 16-bit if this text contains "half".
std::string XKernelShape(const Trace& trace, const Kernel& kernel);

}  // namespace stepscope
