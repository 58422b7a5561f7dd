// The functions that NVTX calls.
//
// While nothing is recorded, each function costs one relaxed load. While a
// window is open, each writes one record to its thread's event buffer
// (nvtx_slots.h), without a lock or an allocation. Names of domains, strings,
// categories, threads and streams are always kept, under a lock, because
// programs set them only once.
#pragma once

namespace stepscope {

// Switches the recording of ranges on or off. In a forked child it is off.
void SetNvtxRecording(bool on) noexcept;

}  // namespace stepscope
