// The process and thread numbers under which the host threads of a Trace stand
// in a file. They are the program's own unless a viewer would misread them.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

namespace stepscope {

struct ThreadNumbers {
  int64_t pid = 0;
  int64_t tid = 0;
};

// Thread numbers that no operating system gives out start here.
inline constexpr int64_t kFirstExtraTid = 900'000'000;

// One per row of threads(), in order, and one more for events whose thread is
// not known. All are different.
std::vector<ThreadNumbers> FileThreadsOf(const Trace& trace);

}  // namespace stepscope
