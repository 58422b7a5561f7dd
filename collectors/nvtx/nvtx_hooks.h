// The functions that NVTX calls.
//
// While nothing is recorded each costs one relaxed load. While a window is open
// each writes one record to its thread's event buffer (nvtx_slots.h), without a
// lock or an allocation. Names of domains, strings, categories, threads and
// streams are always kept, under a lock: programs set them once.
#pragma once

namespace stepscope {

// Whether ranges are recorded. A forked child starts with false.
void SetNvtxRecording(bool on) noexcept;

}  // namespace stepscope
