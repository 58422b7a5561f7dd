// Parses the texts of an XSpace's device events: launch shapes, sizes and kinds
// of copies, contexts. Knows the spellings of all versions of XLA and our own.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <string_view>

#include "xspace/reader/xspace_plane_reader.h"

namespace stepscope {

bool IsCopyEvent(const XEventField& event);
bool IsMemsetEvent(const XEventField& event);

// "regs:32 static_shared:0 dynamic_shared:64 grid:1,2,3 block:4,5,6 occ_pct:50"
void ReadKernelDetails(std::string_view details, Kernel* kernel);
// Reads bytes, kinds of memory and whether the copy was asynchronous from the
// stat memcpy_details ("num_bytes:64\nkind_src:pageable kind_dst:device
// async:0", "size:64 ..."). If it has no kinds, reads these from the name
// ("MEMCPYHtoD", "MemcpyH2D").
void ReadCopyDetails(const XEventField& event, Copy* copy);
// Returns the bytes in details of either spelling; -1 if they are missing.
int64_t ReadBytes(std::string_view details);
// "$$5" -> 5; 0 for anything else.
int32_t ReadContext(std::string_view text);

}  // namespace stepscope
