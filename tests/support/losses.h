// Finds losses of a Trace by name.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

// Returns the count of the first loss of that name; 0 if there is none.
inline int64_t LossCount(const Trace& trace, std::string_view name) {
  for (const Loss& loss : trace.losses()) {
    if (loss.name == name) return loss.count;
  }
  return 0;
}

}  // namespace stepscope
