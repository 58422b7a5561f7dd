// How a collector's hook writes slots: the inline half of the event buffers.
// Programs that only mark ranges use range.h.
//
// A hook writes inside a WriteScope, which is false while no window is open.
// The scope gives the hook exclusive use of its thread's log: Reserve() slots
// and fill them, Push() and Pop() open operators. Nothing here blocks or
// throws. A scope must not contain another scope, a fork, or foreign code that
// may record.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/range.h>
#include <stepscope/slot.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace stepscope {

// An operator that has started on this thread and not ended. `slot` is null if
// its record was dropped. `note` belongs to the source that pushed it.
struct OpenOp {
  const void* key;
  Slot* slot;
  uint64_t note;
};

// What one thread writes to. While `busy` is set only this thread touches it;
// EventBuffers::Close() reads it while `busy` is clear.
struct ThreadLog {
  std::atomic<uint32_t> busy{0};
  bool needs_fence = false;        // no membarrier(2): each write needs a fence
  bool full = false;               // the byte limit was reached
  uint64_t window = ~uint64_t{0};  // the window the fields below belong to
  Slot* cursor = nullptr;          // next free slot of the last chunk
  Slot* limit = nullptr;           // its end
  OpenOp* top = nullptr;           // one past the innermost open operator
  OpenOp* open_limit = nullptr;
  OpenOp* open_base = nullptr;
  uint64_t source_thread = 0;  // the pushing source's number of this thread
  uint64_t dropped = 0;        // records that found no room
  uint64_t cut = 0;            // records that were shortened
};

namespace internal {

// This thread's log; null before its first write and after its last.
extern constinit thread_local ThreadLog* t_log
    __attribute__((tls_model("initial-exec")));

// Registers the thread, or moves its log to the open window. Null if there is
// none.
ThreadLog* BeginWriteSlow() noexcept;

// A chunk for n more slots, or null if the byte limit is reached.
Slot* ReserveSlow(ThreadLog* log, size_t n) noexcept;

// Room for more open operators; false if there is no memory.
bool GrowOpen(ThreadLog* log) noexcept;

// The rare case of Pop(): `key` is not the innermost open operator.
Slot* PopSlow(ThreadLog* log, const void* key, Ticks now) noexcept;

inline ThreadLog* BeginWrite() noexcept {
  ThreadLog* log = t_log;
  if (log == nullptr || log->needs_fence) [[unlikely]]
    return BeginWriteSlow();
  // Close() clears g_window, then makes every processor pass a barrier, then
  // waits for busy to be 0. So either it sees this flag, or we see its window
  // gone; the compiler must only keep the order.
  log->busy.store(1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (g_window.load(std::memory_order_acquire) != log->window) [[unlikely]] {
    log->busy.store(0, std::memory_order_release);
    return BeginWriteSlow();
  }
  return log;
}

}  // namespace internal

class WriteScope {
 public:
  WriteScope() noexcept : log_(internal::BeginWrite()) {}
  ~WriteScope() {
    if (log_ != nullptr) log_->busy.store(0, std::memory_order_release);
  }
  WriteScope(const WriteScope&) = delete;
  WriteScope& operator=(const WriteScope&) = delete;

  explicit operator bool() const { return log_ != nullptr; }
  ThreadLog* log() { return log_; }

  // n adjacent slots; null if the byte limit is reached, and the drop is
  // counted. The caller fills all of them, including word 3 of the first.
  Slot* Reserve(size_t n) noexcept {
    Slot* slot = log_->cursor;
    if (static_cast<size_t>(log_->limit - slot) < n) [[unlikely]] {
      return internal::ReserveSlow(log_, n);
    }
    log_->cursor = slot + n;
    return slot;
  }

  // As Reserve(), for at most n slots: Commit() says how many are kept.
  Slot* Room(size_t n) noexcept {
    Slot* slot = Reserve(n);
    if (slot != nullptr) log_->cursor = slot;
    return slot;
  }
  void Commit(size_t n) noexcept { log_->cursor += n; }

  // `key` has started; it is the innermost open operator from now on. `slot`
  // may be null.
  void Push(const void* key, Slot* slot, uint64_t note = 0) noexcept {
    if (log_->top == log_->open_limit && !internal::GrowOpen(log_)) return;
    *log_->top++ = {key, slot, note};
  }

  // `key` has ended at `now`. Returns the slot that needs the end, or null if
  // there is none: the record was dropped, or the operator started on another
  // thread or before the window. A start on another thread is found when the
  // window is decoded (slot_ends.h).
  Slot* Pop(const void* key, Ticks now) noexcept {
    OpenOp* top = log_->top;
    if (top != log_->open_base && top[-1].key == key) [[likely]] {
      log_->top = top - 1;
      return top[-1].slot;
    }
    return internal::PopSlow(log_, key, now);
  }

  // True if `key` is the innermost open operator and has this slot.
  bool IsInnermost(const void* key, const Slot* slot) const {
    return log_->top != log_->open_base && log_->top[-1].key == key &&
           log_->top[-1].slot == slot;
  }

  // The note of the innermost open operator, 0 if none is open.
  uint64_t open_note() const {
    return log_->top == log_->open_base ? 0 : log_->top[-1].note;
  }

 private:
  ThreadLog* const log_;
};

// Copies a kTexts record's texts into the slots behind its first one. REQUIRES:
// they were reserved.
void CopyText(Slot* first, std::string_view name, std::string_view detail);

// The text, cut to kMaxNameBytes at a whole UTF-8 character; counts a cut.
std::string_view Bounded(ThreadLog* log, std::string_view text);

}  // namespace stepscope
