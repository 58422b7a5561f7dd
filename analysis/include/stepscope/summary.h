// TraceSummary: counts and totals of what a Trace contains, without judgement.
// `stepscope info` prints it. Times are ns. "Busy" is the union of spans:
// overlapping activities count once.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

// The activities of one GPU: kernels, copies and memsets.
struct DeviceSummary {
  int64_t streams = 0;
  int64_t kernels = 0;
  int64_t copies = 0;
  int64_t memsets = 0;
  int64_t kernel_sum_ns = 0;   // overlaps count more than once
  int64_t kernel_busy_ns = 0;  // kernels alone
  int64_t busy_ns = 0;         // kernels, copies and memsets
  int64_t span_ns = 0;         // first start to last end
  int64_t collectives = 0;     // kernels of collectives, included above
  int64_t collective_sum_ns = 0;
  int64_t collective_busy_ns = 0;
  int64_t exposed_ns = 0;  // collectives while no other kernel runs
};

// The marked steps. If no steps are marked, all members are empty or 0.
struct StepSummary {
  std::vector<int64_t> numbers;  // in time order
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
};

struct CopySummary {
  int64_t count = 0;
  int64_t bytes = 0;  // copies of unknown size count 0
  int64_t ns = 0;     // sum of durations
};

// Waits of the training loop for its data loader.
struct LoaderSummary {
  int64_t waits = 0;
  int64_t ns = 0;                        // sum of durations
  int64_t in_steps_ns = 0;               // the part inside marked steps
  std::map<std::string, int64_t> names;  // range name -> count
};

// Peak memory of the tensors on one device in one step.
struct MemorySummary {
  std::string device;           // "cpu", "gpu 0"
  int64_t step = -1;            // its number; -1 where the Trace has no steps
  int64_t peak_bytes = 0;       // in use at the peak
  int64_t reserved_bytes = -1;  // held by the allocator then; -1 if unknown
  // The op that allocated last before the peak; empty if the peak was held
  // since before the step.
  std::string op;
  // True if only memory that was allocated during the recording counts, because
  // the trace has no totals or the device is the CPU, whose totals LibTorch
  // counts from the start of the recording. Parameters and optimizer state were
  // usually allocated earlier and are then missing.
  bool is_counted = false;
};

struct TraceSummary {
  RunInfo run;
  StepSummary steps;
  std::map<int32_t, DeviceSummary> devices;  // by ordinal; with activity only
  // Host-to-device copies by the kind of host memory.
  CopySummary uploads_pageable;
  CopySummary uploads_pinned;
  CopySummary uploads_unknown;
  std::map<std::string, CopySummary> copies;  // "pageable -> device"
  LoaderSummary loader;
  std::vector<MemorySummary> memory;  // by step, then device
  int64_t ops_distinct = 0;           // different operator names
  int64_t ops_with_shapes = 0;
  int64_t ops_with_stacks = 0;
  int64_t work_without_call = 0;  // GPU activities without a recorded launch
  int64_t allocations = 0;        // rows that allocate; releases are left out
  std::vector<std::pair<std::string, int64_t>> rows;  // kind of event -> count
  std::vector<std::string> watched;  // kinds that were being recorded
  std::vector<Loss> losses;          // what is missing from the recording
};

// Never fails. Threads: any number of calls may share one const Trace.
TraceSummary Summarize(const Trace& trace);

// Peak memory per step and device, in time order; empty if allocations were not
// recorded. Never fails; threads as Summarize().
std::vector<MemorySummary> MemoryOf(const Trace& trace);

// One JSON object (docs/json.md, `info`, version 1) with a trailing newline.
std::string ToJson(const TraceSummary& summary);
// About twenty lines for a person.
std::string ToText(const TraceSummary& summary);

}  // namespace stepscope
