// RandomTrace: a Trace with rows of every kind, made up from a seed, as valid
// as a recorded one: ops of a thread nest, launches have unique correlation
// ids, releases follow their allocations, backward nodes name a forward op.
// The same seed and options give the same Trace.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

namespace stepscope {

struct RandomTraceOptions {
  uint64_t seed = 1;
  int steps = 3;          // 0: no step marks
  int ops_per_step = 40;  // on the training thread, about
  int threads = 3;
  bool gpu = true;
  // Names with quotes, control characters, emoji, great length. Valid UTF-8
  // unless bad_utf8 is set too; then a file cannot hold them unaltered.
  bool hostile_names = true;
  bool bad_utf8 = false;
  // Ranges that cross ops and each other, as scopes of user code may.
  bool crossing_ranges = true;
  int32_t rank = 0;
};

Trace RandomTrace(const RandomTraceOptions& options);

}  // namespace stepscope
