#include "nvtx_hooks.h"

#include <pthread.h>
#include <stepscope/event_writer.h>
#include <stepscope/nvtx.h>

#include <atomic>
#include <cstring>
#include <span>
#include <string_view>

#include "nvtx_event.h"
#include "nvtx_name_hooks.h"
#include "nvtx_names.h"
#include "nvtx_slots.h"
#include "nvtx_steps.h"

namespace stepscope {
namespace {

// Global, because NVTX's callbacks have no user pointer. One load reads both
// switches; 0 means that a callback returns at once.
constinit std::atomic<uint32_t> g_mode{0};
constexpr uint32_t kRecord = 1;
constexpr uint32_t kSteps = 2;
// Set once, before kSteps.
constinit std::atomic<NvtxSteps*> g_steps{nullptr};

void EnsureForkHandler() {
  // The window and the listener belong to the parent.
  [[maybe_unused]] static const int installed =
      pthread_atfork(nullptr, nullptr, [] { g_mode.store(0); });
}

// Returns the range's id, or 0 if the event was not recorded.
uint64_t Record(NvtxEvent what, const void* domain,
                const NvtxMessage& event) noexcept {
  WriteScope scope;
  if (!scope) return 0;
  const std::string_view text = Bounded(scope.log(), event.text);
  const bool has_payload = event.payload != NvtxPayload::kNone;
  const size_t following = (has_payload ? kNvtxPayloadBytes : 0) + text.size();
  Slot* slot = scope.Reserve(1 + SlotsForBytes(following));
  if (slot == nullptr) return 0;
  char* out = reinterpret_cast<char*>(slot + 1);
  if (has_payload) {
    std::memcpy(out, &event.payload_bits, kNvtxPayloadBytes);
    out += kNvtxPayloadBytes;
  }
  if (!text.empty()) std::memcpy(out, text.data(), text.size());
  slot->word[3] = PackNvtx(what, event.payload, event.category, following);
  slot->word[2] = reinterpret_cast<uint64_t>(event.registered);
  slot->word[1] = reinterpret_cast<uint64_t>(domain);
  // Read the time last, so that writing the record is not part of the range.
  slot->word[0] = NowTicks();
  return NvtxRangeId(slot, scope.log()->window);
}

// Records an end. `about` is the domain of a pop or the id of a started range.
void RecordEnd(NvtxEvent what, uint64_t about) noexcept {
  const Ticks now = NowTicks();
  WriteScope scope;
  if (!scope) return;
  // The id contains the start's slot and its window, so no table of open ranges
  // is needed.
  if (what == NvtxEvent::kEnd) about = NvtxStartOf(about, scope.log()->window);
  Slot* slot = scope.Reserve(1);
  if (slot == nullptr) return;
  *slot = {{now, about, 0, PackNvtx(what, NvtxPayload::kNone, 0, 0)}};
}

// The listener is called before a step's range is pushed and after it is
// popped, so that the recording contains the range of the first step.
int Push(uint32_t mode, const void* domain, const NvtxMessage& event) noexcept {
  if ((mode & kSteps) != 0) [[unlikely]] {
    g_steps.load()->OnPush(domain, event.name());
    mode = g_mode.load(std::memory_order_relaxed);
  }
  if ((mode & kRecord) != 0) Record(NvtxEvent::kPush, domain, event);
  // The same result as without a tool, so that the program does not behave
  // differently.
  return NVTX_NO_PUSH_POP_TRACKING;
}

int Pop(uint32_t mode, const void* domain) noexcept {
  if ((mode & kRecord) != 0) {
    RecordEnd(NvtxEvent::kPop, reinterpret_cast<uint64_t>(domain));
  }
  if ((mode & kSteps) != 0) [[unlikely]]
    g_steps.load()->OnPop(domain);
  return NVTX_NO_PUSH_POP_TRACKING;
}

uint64_t Start(uint32_t mode, const void* domain,
               const NvtxMessage& event) noexcept {
  bool is_step = false;
  if ((mode & kSteps) != 0) [[unlikely]] {
    is_step = g_steps.load()->OnStart(domain, event.name());
    mode = g_mode.load(std::memory_order_relaxed);
  }
  uint64_t id = 0;
  if ((mode & kRecord) != 0) id = Record(NvtxEvent::kStart, domain, event);
  if (is_step) {
    if (id == 0) id = NvtxSteps::kUnrecordedId;
    g_steps.load()->SetStartedId(id);
  }
  return id;
}

void End(uint32_t mode, uint64_t id) noexcept {
  if (id == 0) return;  // the range began outside a window
  if ((mode & kRecord) != 0 && id != NvtxSteps::kUnrecordedId) {
    RecordEnd(NvtxEvent::kEnd, id);
  }
  if ((mode & kSteps) != 0) [[unlikely]]
    g_steps.load()->OnEnd(id);
}

void Mark(uint32_t mode, const void* domain,
          const NvtxMessage& event) noexcept {
  if ((mode & kSteps) != 0) [[unlikely]] {
    g_steps.load()->OnMark(domain, event.name());
    mode = g_mode.load(std::memory_order_relaxed);
  }
  if ((mode & kRecord) != 0) Record(NvtxEvent::kMark, domain, event);
}

uint32_t Mode() noexcept { return g_mode.load(std::memory_order_relaxed); }

// One function for each NVTX function, with the same name.

void MarkEx(const nvtxEventAttributes_t* attributes) noexcept {
  WideBuffer wide;
  if (const uint32_t mode = Mode()) {
    Mark(mode, nullptr, FromAttributes(attributes, wide));
  }
}
void MarkA(const char* message) noexcept {
  if (const uint32_t mode = Mode()) Mark(mode, nullptr, FromText(message));
}
void MarkW(const wchar_t* message) noexcept {
  WideBuffer wide;
  if (const uint32_t mode = Mode()) {
    Mark(mode, nullptr, FromWide(message, wide));
  }
}
nvtxRangeId_t RangeStartEx(const nvtxEventAttributes_t* attributes) noexcept {
  WideBuffer wide;
  const uint32_t mode = Mode();
  if (mode == 0) return 0;
  return Start(mode, nullptr, FromAttributes(attributes, wide));
}
nvtxRangeId_t RangeStartA(const char* message) noexcept {
  const uint32_t mode = Mode();
  return mode == 0 ? 0 : Start(mode, nullptr, FromText(message));
}
nvtxRangeId_t RangeStartW(const wchar_t* message) noexcept {
  WideBuffer wide;
  const uint32_t mode = Mode();
  return mode == 0 ? 0 : Start(mode, nullptr, FromWide(message, wide));
}
void RangeEnd(nvtxRangeId_t id) noexcept {
  if (const uint32_t mode = Mode()) End(mode, id);
}
int RangePushEx(const nvtxEventAttributes_t* attributes) noexcept {
  WideBuffer wide;
  const uint32_t mode = Mode();
  if (mode == 0) return NVTX_NO_PUSH_POP_TRACKING;
  return Push(mode, nullptr, FromAttributes(attributes, wide));
}
int RangePushA(const char* message) noexcept {
  const uint32_t mode = Mode();
  if (mode == 0) return NVTX_NO_PUSH_POP_TRACKING;
  return Push(mode, nullptr, FromText(message));
}
int RangePushW(const wchar_t* message) noexcept {
  WideBuffer wide;
  const uint32_t mode = Mode();
  if (mode == 0) return NVTX_NO_PUSH_POP_TRACKING;
  return Push(mode, nullptr, FromWide(message, wide));
}
int RangePop() noexcept {
  const uint32_t mode = Mode();
  return mode == 0 ? NVTX_NO_PUSH_POP_TRACKING : Pop(mode, nullptr);
}
void DomainMarkEx(nvtxDomainHandle_t domain,
                  const nvtxEventAttributes_t* attributes) noexcept {
  WideBuffer wide;
  if (const uint32_t mode = Mode()) {
    Mark(mode, domain, FromAttributes(attributes, wide));
  }
}
nvtxRangeId_t DomainRangeStartEx(
    nvtxDomainHandle_t domain,
    const nvtxEventAttributes_t* attributes) noexcept {
  WideBuffer wide;
  const uint32_t mode = Mode();
  if (mode == 0) return 0;
  return Start(mode, domain, FromAttributes(attributes, wide));
}
void DomainRangeEnd(nvtxDomainHandle_t, nvtxRangeId_t id) noexcept {
  if (const uint32_t mode = Mode()) End(mode, id);
}
int DomainRangePushEx(nvtxDomainHandle_t domain,
                      const nvtxEventAttributes_t* attributes) noexcept {
  WideBuffer wide;
  const uint32_t mode = Mode();
  if (mode == 0) return NVTX_NO_PUSH_POP_TRACKING;
  return Push(mode, domain, FromAttributes(attributes, wide));
}
int DomainRangePop(nvtxDomainHandle_t domain) noexcept {
  const uint32_t mode = Mode();
  return mode == 0 ? NVTX_NO_PUSH_POP_TRACKING : Pop(mode, domain);
}

}  // namespace

void SetNvtxRecording(bool on) noexcept {
  EnsureForkHandler();
  if (on) {
    g_mode.fetch_or(kRecord);
  } else {
    g_mode.fetch_and(~kRecord);
  }
}

void ListenForNvtxSteps(std::string_view range, NvtxStepListener* listener) {
  EnsureForkHandler();
  g_steps.store(new NvtxSteps(range, listener));
  g_mode.fetch_or(kSteps, std::memory_order_release);
}

// NVTX calls this once per binary that uses it. The hooks are put into the
// binary's own table of functions and stay there for good.
int AttachNvtx(const void* (*get_export_table)(unsigned int)) noexcept {
  EnsureForkHandler();
  // Constructs the names now. If they were constructed at the first name and
  // another thread forked meanwhile, the child would wait for the construction
  // forever.
  NvtxNames::Get();
  if (get_export_table == nullptr) return 0;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(*callbacks)) {
    return 0;
  }
  const auto table_of = [&](NvtxCallbackModule module) {
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (callbacks->GetModuleFunctionTable(module, &table, &size) == 0) size = 0;
    return NvtxTable(table, size);
  };
  const auto core = table_of(NVTX_CB_MODULE_CORE);
  if (core.empty()) return 0;
  PutHook(core, NVTX_CBID_CORE_MarkEx, &MarkEx);
  PutHook(core, NVTX_CBID_CORE_MarkA, &MarkA);
  PutHook(core, NVTX_CBID_CORE_MarkW, &MarkW);
  PutHook(core, NVTX_CBID_CORE_RangeStartEx, &RangeStartEx);
  PutHook(core, NVTX_CBID_CORE_RangeStartA, &RangeStartA);
  PutHook(core, NVTX_CBID_CORE_RangeStartW, &RangeStartW);
  PutHook(core, NVTX_CBID_CORE_RangeEnd, &RangeEnd);
  PutHook(core, NVTX_CBID_CORE_RangePushEx, &RangePushEx);
  PutHook(core, NVTX_CBID_CORE_RangePushA, &RangePushA);
  PutHook(core, NVTX_CBID_CORE_RangePushW, &RangePushW);
  PutHook(core, NVTX_CBID_CORE_RangePop, &RangePop);
  const auto core2 = table_of(NVTX_CB_MODULE_CORE2);
  PutHook(core2, NVTX_CBID_CORE2_DomainMarkEx, &DomainMarkEx);
  PutHook(core2, NVTX_CBID_CORE2_DomainRangeStartEx, &DomainRangeStartEx);
  PutHook(core2, NVTX_CBID_CORE2_DomainRangeEnd, &DomainRangeEnd);
  PutHook(core2, NVTX_CBID_CORE2_DomainRangePushEx, &DomainRangePushEx);
  PutHook(core2, NVTX_CBID_CORE2_DomainRangePop, &DomainRangePop);
  PutNameHooks(core, core2, table_of(NVTX_CB_MODULE_CUDA),
               table_of(NVTX_CB_MODULE_CUDART));
  return 1;
}

}  // namespace stepscope
