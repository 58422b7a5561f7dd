#include <absl/strings/str_cat.h>
#include <stepscope/event_buffer.h>
#include <stepscope/event_writer.h>

#include <cstring>
#include <utility>

#include "event_chunks.h"
#include "event_recording.h"
#include "thread_registry.h"

namespace stepscope {
namespace internal {

constinit std::atomic<uint64_t> g_window{0};

}  // namespace internal

struct EventBuffers::Window {
  uint64_t number;
};

EventBuffers::EventBuffers(std::unique_ptr<Window> window)
    : window_(std::move(window)) {}

absl::StatusOr<std::unique_ptr<EventBuffers>> EventBuffers::Open(
    const Options& options) {
  if (options.max_buffer_bytes < static_cast<int64_t>(kChunkBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "event buffers: max_buffer_bytes is ", options.max_buffer_bytes,
        ", less than one chunk of ", kChunkBytes,
        "; give it at least that, 256 MiB is the default"));
  }
  absl::StatusOr<uint64_t> number =
      ThreadRegistry::Get().Open(options.max_buffer_bytes);
  if (!number.ok()) return number.status();
  return std::unique_ptr<EventBuffers>(
      new EventBuffers(std::make_unique<Window>(Window{*number})));
}

EventBuffers::~EventBuffers() {
  if (window_ != nullptr) Close();
}

std::unique_ptr<Recording> EventBuffers::Close() {
  const uint64_t number = std::exchange(window_, nullptr)->number;
  return ThreadRegistry::Get().Close(number);
}

void CopyText(Slot* first, std::string_view name, std::string_view detail) {
  char* text = reinterpret_cast<char*>(first + 1);
  std::memcpy(text, name.data(), name.size());
  if (!detail.empty()) {
    std::memcpy(text + name.size(), detail.data(), detail.size());
  }
}

std::string_view Bounded(ThreadLog* log, std::string_view text) {
  if (text.size() <= kMaxNameBytes) [[likely]]
    return text;
  ++log->cut;
  size_t size = kMaxNameBytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) {
    --size;
  }
  return text.substr(0, size);
}

RangeToken OpenRange(RangeKind kind, std::string_view name,
                     std::string_view detail) noexcept {
  if (!IsRecording()) return {};
  WriteScope scope;
  if (!scope) return {};
  name = Bounded(scope.log(), name);
  detail = Bounded(scope.log(), detail);
  Slot* slot = scope.Reserve(1 + SlotsForBytes(name.size() + detail.size()));
  if (slot == nullptr) return {};
  slot->word[2] = std::bit_cast<uint64_t>(
      TextFields{.name_bytes = static_cast<uint16_t>(name.size()),
                 .detail_bytes = static_cast<uint16_t>(detail.size()),
                 .kind_or_thread = static_cast<uint32_t>(kind)});
  slot->word[3] = PackTail(SlotKind::kRange, 0);
  CopyText(slot, name, detail);
  slot->word[1] = 0;
  slot->word[0] = NowTicks();
  return {.slot = slot, .window = scope.log()->window};
}

void CloseRange(const RangeToken& token) noexcept {
  if (token.slot == nullptr) return;
  const Ticks now = NowTicks();
  WriteScope scope;
  // Another window's chunks may be gone.
  if (!scope || scope.log()->window != token.window) return;
  static_cast<Slot*>(token.slot)->word[1] = now;
}

void SetSymbolizer(Symbolizer symbolize) {
  ThreadRegistry::Get().SetSymbolizer(std::move(symbolize));
}

void AddSlotDecoder(SlotDecoder decode) {
  ThreadRegistry::Get().AddSlotDecoder(std::move(decode));
}

}  // namespace stepscope
