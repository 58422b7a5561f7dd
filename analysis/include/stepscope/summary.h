// TraceSummary: what is in a Trace, counted and added up, with no judgement.
// `stepscope info` prints it. Times are ns; "busy" is the union of spans, so
// work that overlaps counts once.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

struct DeviceSummary {
  int64_t streams = 0;
  int64_t kernels = 0;
  int64_t copies = 0;
  int64_t memsets = 0;
  int64_t kernel_sum_ns = 0;
  int64_t kernel_busy_ns = 0;
  int64_t busy_ns = 0;  // kernels, copies and memsets
  int64_t span_ns = 0;  // first begin to last end
  int64_t collectives = 0;
  int64_t collective_sum_ns = 0;
  int64_t collective_busy_ns = 0;
  int64_t exposed_ns = 0;  // collectives beside no other kernel
};

struct StepSummary {
  std::vector<int64_t> numbers;  // in time order
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
};

struct CopySummary {
  int64_t count = 0;
  int64_t bytes = 0;  // as far as they are known
  int64_t ns = 0;
};

struct LoaderSummary {
  int64_t waits = 0;
  int64_t ns = 0;
  int64_t in_steps_ns = 0;
  std::map<std::string, int64_t> names;
};

// The most that tensors had in use at one moment of a step.
struct MemorySummary {
  std::string device;  // "cpu", "gpu 0"
  int64_t step = -1;   // its number; -1 where the Trace has no steps
  int64_t peak_bytes = 0;
  int64_t reserved_bytes = -1;  // at that moment; -1 if unknown
  std::string op;  // that took the last of it; empty if it was held from before
  bool is_counted = false;  // sizes added up: the file tells no totals
};

struct TraceSummary {
  RunInfo run;
  StepSummary steps;
  std::map<int32_t, DeviceSummary> devices;  // those that worked
  // Host to device by the kind of host memory: pageable, pinned, or unknown.
  CopySummary uploads_pageable;
  CopySummary uploads_pinned;
  CopySummary uploads_unknown;
  std::map<std::string, CopySummary> copies;  // "pageable -> device"
  LoaderSummary loader;
  std::vector<MemorySummary> memory;  // by step, then device
  int64_t ops_distinct = 0;
  int64_t ops_with_shapes = 0;
  int64_t ops_with_stacks = 0;
  int64_t work_without_call = 0;  // device work whose launch is not there
  int64_t allocations = 0;        // of the rows in allocations(): not releases
  std::vector<std::pair<std::string, int64_t>> rows;  // rows by kind
  std::vector<std::string> watched;                   // kinds
  std::vector<Loss> losses;
};

TraceSummary Summarize(const Trace& trace);
std::vector<MemorySummary> MemoryOf(const Trace& trace);

// One JSON object; keys as in analysis/README.md. Trailing newline.
std::string ToJson(const TraceSummary& summary);
// About twenty lines for a person.
std::string ToText(const TraceSummary& summary);

}  // namespace stepscope
