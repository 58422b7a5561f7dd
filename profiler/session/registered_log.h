// RegisteredLog: a ThreadLog with what only the slow paths need, the thread's
// identity and its chunks.
#pragma once

#include <stepscope/event_writer.h>

#include <cstdint>
#include <string>

#include "event_chunks.h"

namespace stepscope {

struct RegisteredLog : ThreadLog {
  Chunk* last = nullptr;  // each links to the one before it
  int64_t tid = 0;
  std::string name;     // as read when the thread exited
  bool exited = false;  // the thread is gone; its records are kept
};

}  // namespace stepscope
