// The recorders that a benchmark compares: nothing, a RecordFunction callback
// that does nothing (the least that any recorder can cost), stepscope, and
// Kineto through its C++ API. The last two are also measured before their
// windows.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/event_buffer.h>
#include <stepscope/trace_builder.h>

#include <memory>
#include <string>

namespace stepscope::bench {

enum class Recorder {
  kNothing,
  kEmpty,
  kOurs,
  kKineto,
  kOursWaiting,     // a Profile in its wait steps
  kKinetoPrepared,  // what torch.profiler does before its first active step
};

struct RecordOptions {
  bool shapes = false;
  bool memory = false;
  bool all_threads = false;  // Kineto: not only its own thread
};

// Records from construction until one of the Stop functions.
class RecorderScope {
 public:
  virtual ~RecorderScope() = default;

  // Ends the recording and writes it to one uncompressed Chrome file at `path`.
  // Returns when the file is complete.
  virtual void StopAndExport(const std::string& path) = 0;
  // Ends the recording and keeps it in memory, to measure its size.
  virtual void StopAndKeep() = 0;
};

std::unique_ptr<RecorderScope> Start(Recorder recorder,
                                     const RecordOptions& options);

}  // namespace stepscope::bench
