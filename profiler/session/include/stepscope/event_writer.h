// How a collector's hook writes slots: the inline half of the event buffers.
// Programs that only mark ranges use range.h instead.
//
// A hook writes inside a WriteScope, which is false while no window is open.
// The scope gives the hook exclusive use of its thread's log: the hook can
// Reserve() slots and fill them, and Push() and Pop() open operators. None of
// these calls blocks or throws. A scope must not contain another scope, a fork,
// or foreign code that may record.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/range.h>
#include <stepscope/slot.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace stepscope {

// An operator that has started on this thread and has not ended. `slot` is null
// if its record was dropped. `note` belongs to the source that pushed the
// operator.
struct OpenOp {
  const void* key;
  Slot* slot;
  uint64_t note;
};

// The log that one thread writes to. While `busy` is set, only this thread
// touches the log. EventBuffers::Close() reads it while `busy` is clear.
struct ThreadLog {
  std::atomic<uint32_t> busy{0};
  bool needs_fence = false;        // no membarrier(2): each write needs a fence
  bool full = false;               // the byte limit was reached
  uint64_t window = ~uint64_t{0};  // the window the fields below belong to
  Slot* cursor = nullptr;          // next free slot of the last chunk
  Slot* limit = nullptr;           // end of the last chunk
  OpenOp* top = nullptr;           // one past the innermost open operator
  OpenOp* open_limit = nullptr;
  OpenOp* open_base = nullptr;
  uint64_t source_thread = 0;  // the pushing source's number of this thread
  uint64_t dropped = 0;        // records that found no room
  uint64_t cut = 0;            // records that were shortened
};

namespace internal {

// This thread's log. Null before its first write and after its last one.
extern constinit thread_local ThreadLog* t_log
    __attribute__((tls_model("initial-exec")));

// Registers the thread, or moves its log to the open window. Returns null if no
// window is open.
ThreadLog* BeginWriteSlow() noexcept;

// Returns n slots in a new chunk, or null if the byte limit is reached.
Slot* ReserveSlow(ThreadLog* log, size_t n) noexcept;

// Makes room for more open operators. False if there is no memory.
bool GrowOpen(ThreadLog* log) noexcept;

// Handles the rare case of Pop() that `key` is not the innermost open operator.
Slot* PopSlow(ThreadLog* log, const void* key, Ticks now) noexcept;

inline ThreadLog* BeginWrite() noexcept {
  ThreadLog* log = t_log;
  if (log == nullptr || log->needs_fence) [[unlikely]]
    return BeginWriteSlow();
  // Close() clears g_window, makes every processor pass a barrier, and then
  // waits for busy to be 0. So either Close() sees this flag, or this thread
  // sees that its window is gone. Only the compiler has to be kept from
  // reordering the two accesses.
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

  // Returns n adjacent slots. Returns null and counts the drop if the byte
  // limit is reached. The caller must fill all of them, including word 3 of the
  // first.
  Slot* Reserve(size_t n) noexcept {
    Slot* slot = log_->cursor;
    if (static_cast<size_t>(log_->limit - slot) < n) [[unlikely]] {
      return internal::ReserveSlow(log_, n);
    }
    log_->cursor = slot + n;
    return slot;
  }

  // Like Reserve(), for at most n slots. Commit() then says how many are kept.
  Slot* Room(size_t n) noexcept {
    Slot* slot = Reserve(n);
    if (slot != nullptr) log_->cursor = slot;
    return slot;
  }
  void Commit(size_t n) noexcept { log_->cursor += n; }

  // `key` has started and is now the innermost open operator. `slot` may be
  // null.
  void Push(const void* key, Slot* slot, uint64_t note = 0) noexcept {
    if (log_->top == log_->open_limit && !internal::GrowOpen(log_)) return;
    *log_->top++ = {key, slot, note};
  }

  // `key` has ended at `now`. Returns the slot that needs the end, or null if
  // there is none: the record was dropped, or the operator started before the
  // window or on another thread. A start on another thread is found when the
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

  // The note of the innermost open operator; 0 if none is open.
  uint64_t open_note() const {
    return log_->top == log_->open_base ? 0 : log_->top[-1].note;
  }

 private:
  ThreadLog* const log_;
};

// Copies the texts of a kTexts record into the slots behind its first one.
// REQUIRES: those slots were reserved.
void CopyText(Slot* first, std::string_view name, std::string_view detail);

// Returns the text, cut to at most kMaxNameBytes at the end of a UTF-8
// character. A cut is counted.
std::string_view Bounded(ThreadLog* log, std::string_view text);

}  // namespace stepscope
