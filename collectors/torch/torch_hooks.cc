#include "torch_hooks.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <stepscope/event_writer.h>
#include <torch/version.h>

#include <exception>
#include <memory>
#include <string_view>

#include "torch_comms.h"
#include "torch_inputs.h"
#include "torch_names.h"
#include "torch_sampling.h"
#include "torch_slots.h"

namespace stepscope {
namespace {

Slot* AddSchemaOp(WriteScope& scope, const char* name, int64_t sequence) {
  Slot* slot = scope.Reserve(1);
  if (slot == nullptr) return nullptr;
  slot->word[2] = reinterpret_cast<uint64_t>(name);
  slot->word[3] = PackTail(kOpSlot, sequence);
  return slot;
}

Slot* AddText(WriteScope& scope, SlotTag tag, std::string_view name,
              uint32_t about, int64_t sequence) {
  name = Bounded(scope.log(), name);
  Slot* slot = scope.Reserve(1 + SlotsForBytes(name.size()));
  if (slot == nullptr) return nullptr;
  slot->word[2] = std::bit_cast<uint64_t>(TextFields{
      .name_bytes = static_cast<uint16_t>(name.size()), .about = about});
  slot->word[3] = PackTail(tag, sequence);
  CopyText(slot, name, {});
  return slot;
}

Slot* AddNamed(WriteScope& scope, const at::RecordFunction& fn,
               std::string_view name) {
  if (fn.scope() == at::RecordScope::USER_SCOPE) {
    return AddText(scope, kRangeSlot, name, kClassifyLater, 0);
  }
  return AddText(scope, kTextOpSlot, name,
                 PackTextOp(fn.scope() == at::RecordScope::BACKWARD_FUNCTION,
                            fn.forwardThreadId()),
                 fn.seqNr());
}

template <bool kShapes, bool kStacks>
std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& fn) {
  bool wants_stack = false;
  bool is_comms = false;
  Slot* slot = nullptr;
  {
    WriteScope scope;
    if (!scope) return nullptr;
    scope.log()->source_thread = fn.threadId();
    const OpName name = NameOf(fn);
    slot = OutlivesWindow(name) ? AddSchemaOp(scope, name.text, fn.seqNr())
                                : AddNamed(scope, fn, name.text);
    uint64_t note = 0;
    if constexpr (kStacks) {
      const uint64_t outer = scope.open_note();
      note = NoteOf(outer, fn.scope());
      wants_stack = slot != nullptr && WantsStack(fn, name, outer);
    }
    // Push even if there was no room for the record, so that the end finds its
    // start.
    scope.Push(&fn, slot, note);
    if (slot == nullptr) return nullptr;
    if constexpr (kShapes) AddInputs(scope, fn);
    is_comms = !name.has_schema && IsComms(fn);
    // The clock is read last here and first in OnEnd(), so that the time for
    // recording is not part of the operator.
    slot->word[0] = NowTicks();
    if (!wants_stack && !is_comms) [[likely]]
      return nullptr;
  }
  // Runs outside the scope above, because it is rare and calls foreign code.
  // Meanwhile this thread records nothing else, but the window may close, which
  // frees the slot. If the slot still exists, the operator's begin is set again
  // afterwards.
  if (is_comms) AddComms(fn);
  if constexpr (kStacks) {
    if (wants_stack) TakeSample();
  }
  WriteScope scope;
  if (scope && scope.IsInnermost(&fn, slot)) slot->word[0] = NowTicks();
  return nullptr;
}

void OnEnd(const at::RecordFunction& fn, at::ObserverContext*) {
  const Ticks now = NowTicks();
  WriteScope scope;
  if (!scope) return;
  if (Slot* slot = scope.Pop(&fn, now)) slot->word[1] = now;
}

// True if operators may wait for a device, which is possible only after
// something was allocated on it. The number of devices is not used, because
// asking for it would start the driver.
bool HasDeviceInUse() {
  const auto type = at::getAccelerator();
  if (!type.has_value()) return false;
  try {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
    return true;  // these versions have no DeviceAllocator to ask
#else
    auto* const allocator =
        dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(*type));
    return allocator == nullptr || allocator->initialized();
#endif
  } catch (const std::exception&) {
    return true;  // some devices have an allocator of another kind
  }
}

at::RecordFunctionCallback::StartCallback StartFor(
    const TorchOptions& options) {
  const bool stacks = TakesSamples(options);
  if (options.record_shapes) {
    return stacks ? &OnStart<true, true> : &OnStart<true, false>;
  }
  return stacks ? &OnStart<false, true> : &OnStart<false, false>;
}

}  // namespace

at::RecordFunctionCallback MakeTorchCallback(const TorchOptions& options) {
  ProbeNames();
  // The arguments tell which operators wait for a device (torch_sampling.h).
  // Without a device in use they would be collected for nothing.
  const bool may_wait = TakesSamples(options) && HasDeviceInUse();
  return at::RecordFunctionCallback(StartFor(options), &OnEnd)
      .needsInputs(options.record_shapes || may_wait)
      .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
               at::RecordScope::TORCHSCRIPT_FUNCTION,
               at::RecordScope::CUSTOM_CLASS, at::RecordScope::USER_SCOPE,
               at::RecordScope::LITE_INTERPRETER,
               at::RecordScope::STATIC_RUNTIME_OP,
               at::RecordScope::STATIC_RUNTIME_MODEL});
}

}  // namespace stepscope
