#include <stepscope/event_writer.h>
#include <stepscope/range.h>

#include <bit>
#include <cstring>

namespace stepscope {
namespace internal {

// The number of the open window, or 0 if none is open. Every hook reads it
// first. While nothing is recorded, this load is the only cost of a range.
constinit std::atomic<uint64_t> g_window{0};

}  // namespace internal

void CopyText(Slot* first, std::string_view name, std::string_view detail) {
  char* text = reinterpret_cast<char*>(first + 1);
  std::memcpy(text, name.data(), name.size());
  if (!detail.empty()) {
    std::memcpy(text + name.size(), detail.data(), detail.size());
  }
}

// Cuts a text that is too long, at the start of a UTF-8 character. (Bytes
// 10xxxxxx continue a character.)
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
                 .about = static_cast<uint32_t>(kind)});
  slot->word[3] = PackTail(kRangeSlot, 0);
  CopyText(slot, name, detail);
  // The end stays 0 until CloseRange(), so that a range that is still open is
  // decoded as unfinished.
  slot->word[1] = 0;
  slot->word[0] =
      NowTicks();  // last, so that the copy is not part of the range
  return {.slot = slot, .window = scope.log()->window};
}

// May run on another thread than OpenRange() did, because LibTorch ends some
// user scopes elsewhere. It therefore uses the slot in the token instead of the
// thread's stack of open operators.
void CloseRange(const RangeToken& token) noexcept {
  if (token.slot == nullptr) return;
  const Ticks now = NowTicks();  // first, for the same reason
  WriteScope scope;
  // If the token is from another window, its chunks may already be freed.
  if (!scope || scope.log()->window != token.window) return;
  static_cast<Slot*>(token.slot)->word[1] = now;
}

}  // namespace stepscope
