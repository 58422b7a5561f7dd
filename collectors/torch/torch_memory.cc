#include "torch_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <stepscope/event_writer.h>
#include <stepscope/range.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <atomic>
#include <cstdio>

#include "torch_slots.h"

namespace stepscope {

using c10::DebugInfoKind;
using c10::ThreadLocalDebugInfo;
using torch::profiler::impl::ActiveProfilerType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;
using torch::profiler::impl::ProfilerStateBase;

// LibTorch treats everything in PROFILER_STATE as one of its own profilers and
// calls it. This class is therefore such a profiler, which reports that it is
// disabled.
class MemoryHook : public ProfilerStateBase {
 public:
  MemoryHook()
      : ProfilerStateBase(ProfilerConfig(ProfilerState::Disabled,
                                         /*report_input_shapes=*/false,
                                         /*profile_memory=*/true)) {}

  ActiveProfilerType profilerType() override {
    return ActiveProfilerType::NONE;
  }

  void Stop() { is_on_.store(false, std::memory_order_relaxed); }

  void reportMemoryUsage(void* address, int64_t bytes, size_t total_allocated,
                         size_t total_reserved, c10::Device device) override {
    if (!is_on_.load(std::memory_order_relaxed)) return;
    WriteScope scope;
    if (!scope) return;
    // The usual event of a host allocator fits into one slot, because its
    // device and its reserved total need not be written.
    if (device.is_cpu() && !device.has_index() && total_reserved == 0) {
      Slot* slot = scope.Reserve(1);
      if (slot == nullptr) return;
      *slot = {
          {NowTicks(), reinterpret_cast<uint64_t>(address),
           static_cast<uint64_t>(bytes),
           PackTail(kHostMemorySlot, static_cast<int64_t>(total_allocated))}};
      return;
    }
    Slot* slot = scope.Reserve(2);
    if (slot == nullptr) return;
    slot[0] = {
        {NowTicks(), reinterpret_cast<uint64_t>(address),
         static_cast<uint64_t>(bytes),
         PackTail(kMemorySlot,
                  PackDevice(static_cast<int>(device.type()),
                             device.has_index() ? device.index() : -1))}};
    slot[1] = {{total_allocated, total_reserved, 0, 0}};
  }

  // Records a range of length 0, which marks the place in the program.
  void reportOutOfMemory(int64_t bytes, size_t total_allocated,
                         size_t total_reserved, c10::Device device) override {
    if (!is_on_.load(std::memory_order_relaxed)) return;
    char detail[160];
    std::snprintf(detail, sizeof(detail),
                  "device=%d, asked_bytes=%lld, allocated_bytes=%zu, "
                  "reserved_bytes=%zu",
                  device.has_index() ? device.index() : -1,
                  static_cast<long long>(bytes), total_allocated,
                  total_reserved);
    CloseRange(OpenRange(RangeKind::kUser, "out of memory", detail));
  }

 private:
  std::atomic<bool> is_on_{true};
};

std::shared_ptr<MemoryHook> StartMemoryHook() {
  if (ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE) != nullptr) {
    return nullptr;
  }
  auto hook = std::make_shared<MemoryHook>();
  ThreadLocalDebugInfo::_push(DebugInfoKind::PROFILER_STATE, hook);
  return hook;
}

bool StopMemoryHook(const std::shared_ptr<MemoryHook>& hook) {
  // Threads that inherited the hook may keep it longer, but it records nothing
  // from now on.
  hook->Stop();
  if (ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE) != hook.get()) {
    return false;
  }
  try {
    ThreadLocalDebugInfo::_pop(DebugInfoKind::PROFILER_STATE);
  } catch (const std::exception&) {
    // Something else was pushed on top and is still there. The hook stays below
    // it and records nothing.
  }
  return true;
}

}  // namespace stepscope
