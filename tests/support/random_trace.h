// RandomTrace: makes a Trace with rows of every kind from a seed. It is as
// valid as a recorded one: ops of a thread nest, launches have unique
// correlation IDs, releases follow their allocations, and backward nodes name a
// forward op. The same seed and options give the same Trace.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

namespace stepscope {

struct RandomTraceOptions {
  uint64_t seed = 1;
  int steps = 3;          // 0: no step marks
  int ops_per_step = 40;  // about, on the training thread
  int threads = 3;
  bool gpu = true;
  // Names with quotes, control characters, emoji, and very long names. They are
  // valid UTF-8 unless bad_utf8 is set; then a file cannot hold them unchanged.
  bool hostile_names = true;
  bool bad_utf8 = false;
  // Ranges that overlap ops and each other only in part, as scopes in user code
  // may.
  bool crossing_ranges = true;
  int32_t rank = 0;
};

Trace RandomTrace(const RandomTraceOptions& options);

}  // namespace stepscope
