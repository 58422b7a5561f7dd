// The recorders a benchmark compares: nothing, a RecordFunction callback that
// does nothing (the least any recorder can cost), stepscope, and Kineto through
// its C++ API; and the latter two before their windows.
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
  bool all_threads = false;  // Kineto records its own thread only unless told
};

// Records from its making to its end.
class RecorderScope {
 public:
  virtual ~RecorderScope() = default;

  // Ends the recording and turns it into one plain Chrome file at `path`.
  // Returns when the file is complete.
  virtual void StopAndExport(const std::string& path) = 0;
  // Ends the recording and keeps what it holds in memory, for its size.
  virtual void StopAndKeep() = 0;
};

std::unique_ptr<RecorderScope> Start(Recorder recorder,
                                     const RecordOptions& options);

}  // namespace stepscope::bench
