// HostSamples: the data that the host collector's hook copies, not yet decoded:
// one sample per step, with the texts of /proc concatenated in one string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// A part of HostSamples::text. Empty: the file could not be read.
struct TextSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// A worker of a loader: a thread of this process, or a child process.
struct WorkerSample {
  int64_t id = 0;  // tid or pid
  bool is_process = false;
  TextSpan schedstat;
  TextSpan io;
};

struct HostSample {
  int64_t step = -1;  // the step that ended; -1: the sample before the first
  int64_t time_ns = 0;
  int64_t process_cpu_ns = -1;
  int64_t thread_cpu_ns = -1;
  int64_t involuntary_switches = -1;
  TextSpan schedstat;
  TextSpan io;
  bool children_known = false;  // child processes could be listed
  uint32_t first_worker = 0;
  uint32_t worker_count = 0;
};

struct HostSamples {
  std::string text;
  std::vector<HostSample> samples;
  std::vector<WorkerSample> workers;
  int64_t dropped = 0;  // steps without a sample, for lack of room

  std::string_view at(TextSpan span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

}  // namespace stepscope
