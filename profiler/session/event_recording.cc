// Takes the slots of all threads when a window closes, and passes them to the
// decoders.
#include <absl/strings/str_cat.h>
#include <stepscope/event_recording.h>

#include <algorithm>
#include <new>
#include <utility>

#include "event_chunks.h"
#include "range_decode.h"
#include "registered_log.h"

namespace stepscope {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

SlotThread ThreadOf(const RegisteredLog& log) {
  SlotThread thread;
  thread.tid = log.tid;
  thread.source_thread = log.source_thread;
  thread.name = log.name;
  for (Chunk* chunk = log.last; chunk != nullptr; chunk = chunk->previous) {
    // Only full chunks know where their records end; in the last one they end
    // at the cursor.
    Slot* end = chunk->used_end != nullptr ? chunk->used_end : log.cursor;
    thread.chunks.emplace_back(chunk->begin(), end);
  }
  // Chunks link backwards, but decoders need them in the order of writing.
  std::reverse(thread.chunks.begin(), thread.chunks.end());
  // Operators that had not ended when the window closed. Another thread may
  // have delivered their end (slot_ends.h).
  for (const OpenOp* open = log.open_base; open != log.top; ++open) {
    if (open->slot != nullptr) thread.open.emplace_back(open->slot, open->key);
  }
  return thread;
}

}  // namespace

// Frees the chunks only now, because decoders read them in place until the
// Trace has been built.
EventRecording::~EventRecording() {
  for (Chunk* last : last_chunks_) UnmapChunks(last);
  UnmapUnused(unused_);
}

void EventRecording::SetClosed(int64_t pid, Ticks closed, int64_t max_bytes) {
  slots_.pid = pid;
  slots_.closed = closed;
  max_bytes_ = max_bytes;
}

void EventRecording::TakeThread(const RegisteredLog& log) noexcept {
  bool is_owned = false;
  try {
    last_chunks_.push_back(log.last);
    is_owned = true;
    slots_.threads.push_back(ThreadOf(log));
  } catch (const std::bad_alloc&) {
    if (!is_owned) UnmapChunks(log.last);
    ++lost_threads_;
    return;
  }
  dropped_ += static_cast<int64_t>(log.dropped);
  cut_ += static_cast<int64_t>(log.cut);
}

void EventRecording::AddTo(TraceBuilder& builder, const ClockMap& clock) const {
  builder.Watch(Kind::kRange);
  const int64_t bad_records = DecodeRanges(slots_, clock, builder);
  if (dropped_ > 0) {
    builder.Add(Loss{
        .name = "buffer-full",
        .detail = absl::StrCat(
            "the event buffers' ",
            max_bytes_ < kMebibyte ? max_bytes_ >> 10 : max_bytes_ >> 20,
            max_bytes_ < kMebibyte ? " KiB" : " MiB",
            " were full, and the newest ", dropped_,
            " events were dropped: totals of the last steps are too low; raise "
            "max_buffer_bytes, or record fewer steps"),
        .count = dropped_,
        .severity = Severity::kError});
  }
  if (cut_ > 0) {
    builder.Add(
        Loss{.name = "text-cut",
             .detail = absl::StrCat(
                 cut_, " names or argument lists were longer than a record (",
                 kMaxNameBytes, " bytes of text, ", kMaxRecordWords * 8,
                 " bytes of arguments) and were cut; nothing else is missing"),
             .count = cut_,
             .severity = Severity::kNote});
  }
  if (unfinished_ > 0) {
    builder.Add(Loss{
        .name = "unfinished-threads",
        .detail = absl::StrCat(
            unfinished_,
            " threads were in the middle of an event when the window closed "
            "and did not finish it within ",
            kMostWriteWait.count(),
            " ms, so all that they recorded is missing; they were stopped, or "
            "more threads were busy than there are cores"),
        .count = unfinished_,
        .severity = Severity::kError});
  }
  if (lost_threads_ > 0) {
    builder.Add(Loss{
        .name = "out-of-memory",
        .detail = absl::StrCat(
            "memory ran out when the window closed: what ", lost_threads_,
            " threads recorded is missing; lower max_buffer_bytes, or record "
            "fewer steps"),
        .count = lost_threads_,
        .severity = Severity::kError});
  }
  if (bad_records > 0) {
    builder.Add(Loss{
        .name = "bad-record",
        .detail = absl::StrCat(
            bad_records,
            " records of the event buffers were invalid and were left out; "
            "this is a bug in stepscope, please report it"),
        .count = bad_records,
        .severity = Severity::kError});
  }
}

}  // namespace stepscope
