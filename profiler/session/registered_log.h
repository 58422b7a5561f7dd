// RegisteredLog: a ThreadLog with the fields that only slow paths need, such as
// the thread's identity and its chunks.
#pragma once

#include <stepscope/event_writer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "event_chunks.h"

namespace stepscope {

// How long the end of a window waits, at most, for threads inside a write.
inline constexpr std::chrono::milliseconds kMostWriteWait{1000};

struct RegisteredLog : ThreadLog {
  Chunk* last = nullptr;  // each links to the one before it
  int64_t tid = 0;
  std::string name;     // as read when the thread exited
  bool exited = false;  // the thread is gone; its records are kept
  // The thread was inside a write when the window closed. Its chunks are
  // therefore still here, but nothing reads them.
  std::atomic<bool> abandoned{false};
};

}  // namespace stepscope
