// The process and thread numbers that the host threads of a Trace have in a
// file. They are the program's own unless a viewer would misread them.
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

// Returns the numbers of each row of threads(), in order, and at the end those
// for events whose thread is not known. All pairs are different.
std::vector<ThreadNumbers> FileThreadsOf(const Trace& trace);

}  // namespace stepscope
