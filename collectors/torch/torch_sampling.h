// Whose stack is taken: in the sampled step, of every operator that is inside
// no other one; afterwards, of one in a hundred of these, which shows whether
// the steps run alike, and of every operator that makes the host wait for a
// device, because there the line in the program is the finding.
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

// What the hooks take from now on. Called before they are installed, on the
// thread that trains. True if that is Python frames: Python has called it.
bool SetUpSampling(const TorchOptions& options);

void SetStackStage(StackStage stage);

// OpenOp::note of an operator or scope, from that of the one around it: not 0
// if what runs inside it is inside an operator.
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
// Outermost operators of this thread until the next one is looked at again.
inline thread_local uint32_t t_until_check = 0;
}  // namespace internal

// `outer`: the note of what is open around the operator.
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

// Adds a record of the stack, and in the sampled step of the modules, to the
// operator just added. May wait for the interpreter's lock, if the thread is
// one that the interpreter knows. REQUIRES: not inside a WriteScope.
void TakeSample();

// How many operators of all threads got no stack since the last call, because
// so many had been taken. Any thread.
int64_t TakeUnsampled();

}  // namespace stepscope
