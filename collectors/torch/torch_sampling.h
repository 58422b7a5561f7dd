// Decides which operators get a stack. In the sample step, every top-level
// operator. Afterwards, one in a hundred of these, which shows whether the
// steps are alike. In both, every operator that makes the host wait for a
// device, because for these the line in the program is the finding.
#pragma once

#include <ATen/record_function.h>
#include <stepscope/collectors.h>

#include <atomic>
#include <cstdint>

#include "torch_names.h"

namespace stepscope {

enum class StackStage : uint8_t { kNone, kSample, kCheck };

inline bool TakesSamples(const TorchOptions& options) {
  return options.with_stack || options.with_modules;
}

// Sets what the hooks sample from now on. Must be called before they are
// installed, on the training thread. Returns true if Python frames are sampled,
// because the caller is Python.
bool SetUpSampling(const TorchOptions& options);

void SetStackStage(StackStage stage);

// Returns OpenOp::note for an operator or scope, from the note of the one
// around it. It is not 0 if code that runs inside is inside an operator.
inline uint64_t NoteOf(uint64_t outer, at::RecordScope scope) {
  const bool is_operator = scope != at::RecordScope::BACKWARD_FUNCTION &&
                           scope != at::RecordScope::USER_SCOPE;
  return outer | (is_operator ? 1 : 0);
}

namespace internal {
extern constinit std::atomic<StackStage> g_stack_stage;
extern constinit std::atomic<uint64_t> g_waiting_names;  // a bit for each name
bool WantsStackSlow(const at::RecordFunction& fn, const OpName& name,
                    bool is_outermost);
inline uint64_t BitOfName(const char* name) {
  return uint64_t{1} << (reinterpret_cast<uintptr_t>(name) >> 4 & 63);
}
// The number of top-level operators of this thread until the next check.
inline thread_local uint32_t t_until_check = 0;
}  // namespace internal

// True if the stack of the operator should be taken. `outer` is the note of the
// operator or scope around it.
inline bool WantsStack(const at::RecordFunction& fn, const OpName& name,
                       uint64_t outer) {
  const StackStage stage =
      internal::g_stack_stage.load(std::memory_order_relaxed);
  if (stage == StackStage::kNone) return false;
  const bool is_outermost = outer == 0 && NoteOf(0, fn.scope()) != 0;
  if (is_outermost &&
      (stage == StackStage::kSample || internal::t_until_check-- == 0)) {
    return internal::WantsStackSlow(fn, name, true);
  }
  if ((internal::g_waiting_names.load(std::memory_order_relaxed) &
       internal::BitOfName(name.text)) == 0) [[likely]] {
    return false;
  }
  return internal::WantsStackSlow(fn, name, false);
}

// Adds a record of the stack (in the sample step also of the modules) to the
// operator that was just added. May wait for the interpreter's lock if the
// interpreter knows the thread. REQUIRES: not inside a WriteScope.
void TakeSample();

// Returns how many operators of all threads got no stack since the last call
// because the limit was reached. Any thread may call it.
int64_t TakeUnsampled();

}  // namespace stepscope
