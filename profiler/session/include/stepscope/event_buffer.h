// The event buffers: every thread that records owns a list of chunks of 32-byte
// slots (stepscope/slot.h) and writes to nothing else.
//
// Thread rules. A writer takes no lock, makes no system call but one mmap per
// chunk, and raises a flag of its own around each write. Close() shuts the
// window, makes all processors see that, waits until every flag is down, and
// only then takes the chunks: a write is either complete and in the recording,
// or was never begun. A thread may exit at any time; its chunks stay. In a
// forked child the window is closed and the parent's chunks are left alone.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/collector.h>
#include <stepscope/event.h>
#include <stepscope/slot_decode.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

namespace stepscope {

namespace internal {
// The number of the open window, 0 while none is. Never reused.
extern std::atomic<uint64_t> g_window;
}  // namespace internal

// The open window. At most one in a process.
class EventBuffers {
 public:
  struct Options {
    // All chunks of all threads together. When they are full, the newest events
    // are dropped and counted in a Loss "buffer-full".
    int64_t max_buffer_bytes = int64_t{256} << 20;
  };

  // Opens the window: from now on, threads record. FailedPrecondition if one is
  // open already; InvalidArgument if max_buffer_bytes holds no chunk.
  static absl::StatusOr<std::unique_ptr<EventBuffers>> Open(
      const Options& options);

  // Closes the window and throws away what it holds, unless Close() did.
  ~EventBuffers();
  EventBuffers(const EventBuffers&) = delete;
  EventBuffers& operator=(const EventBuffers&) = delete;

  // Closes the window and hands over what was recorded; waits for writes under
  // way (well under a microsecond each), decodes nothing. Any thread may call
  // it. REQUIRES: called at most once.
  std::unique_ptr<Recording> Close();

 private:
  struct Window;
  explicit EventBuffers(std::unique_ptr<Window> window);
  std::unique_ptr<Window> window_;
};

// True while a window is open. One relaxed load: ask it before preparing the
// text of a range.
inline bool IsRecording() noexcept {
  return internal::g_window.load(std::memory_order_relaxed) != 0;
}

// A range that was opened; empty if nothing was recorded.
struct RangeToken {
  void* slot = nullptr;
  uint64_t window = 0;
};

// Opens a range on the calling thread: name and detail are copied, at most
// kMaxNameBytes each (slot.h); a longer text is cut and the cut counted. Does
// nothing while no window is open.
RangeToken OpenRange(RangeKind kind, std::string_view name,
                     std::string_view detail = {}) noexcept;

// Closes it. Harmless for an empty token, and when its window has closed.
void CloseRange(const RangeToken& token) noexcept;

// Sets what names the stacks of the open window (opt-in stacks stay unnamed,
// and are left out, without one). Forgotten when the window closes.
void SetSymbolizer(Symbolizer symbolize);

// Has the open window's slots decoded by `decode`, too: for kinds of slots that
// are one collector's own. Does nothing, and is forgotten, as above.
void AddSlotDecoder(SlotDecoder decode);

}  // namespace stepscope
