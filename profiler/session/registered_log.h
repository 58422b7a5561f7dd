// A ThreadLog with what only the slow paths need: who the thread is, and the
// last of its chunks.
#pragma once

#include <stepscope/event_writer.h>

#include <cstdint>
#include <string>

#include "event_chunks.h"

namespace stepscope {

struct RegisteredLog : ThreadLog {
  Chunk* last = nullptr;
  int64_t tid = 0;
  std::string name;     // as read when the thread exited
  bool exited = false;  // kept only for what it recorded
};

}  // namespace stepscope
