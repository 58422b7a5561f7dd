// The functions NVTX calls, and what switches them.
//
// Off, each costs one relaxed load. On, it writes one record to its thread's
// event buffer (nvtx_slots.h): no lock, no allocation. What names things
// (domains, registered strings, categories, threads, streams) is kept at all
// times, under a lock: programs do that once.
#pragma once

namespace stepscope {

// Whether ranges are recorded. A forked child starts with false.
void SetNvtxRecording(bool on) noexcept;

}  // namespace stepscope
