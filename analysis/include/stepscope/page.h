// A page: one HTML file that shows a Report, or a Comparison, in any browser.
// The file is self-contained: it never requests anything.
//
//   PageDetails details;
//   const Report report = Analyze(trace, &details);
//   WriteText(ToHtml(report, details), "report.html");
#pragma once

#include <stepscope/compare.h>
#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// A stretch of one lane, in microseconds since PageStep::begin_ns.
struct PageBlock {
  double begin_us = 0;
  double length_us = 0;
  const char* cause = "";  // a key of time_split_ms; a literal
  uint32_t name = 0;       // in PageDetails::names
};

// A host thread, a stream of a device, or the critical path.
struct PageLane {
  std::string name;
  std::vector<PageBlock> blocks;  // in time order, simplified for drawing
};

// One drawn step; in a recording without steps, the whole recording.
struct PageStep {
  int64_t number = -1;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<PageLane> lanes;
};

// Which of the drawn steps shows the example of a finding.
struct PageExample {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  size_t step = 0;  // in PageDetails::steps
};

// All calls of one kernel. Times, counts and amounts in this and the next two
// structs are per steady step; without steps, totals over the recording.
struct PageKernel {
  std::string name;
  std::string kind;       // "matmul", "elementwise", ...
  std::string precision;  // "bf16", ...; empty if unknown
  int tensor_cores = -1;  // 1: runs on Tensor Cores; 0: does not; -1 unknown
  bool eligible = false;  // its shapes and types suit Tensor Cores
  double ms = 0;
  double calls = 0;
  double occupancy_frac = -1;  // mean over its time; -1 unknown
  double flops_per_s = -1;     // over the calls whose work is known; -1: none
  double bytes_per_s = -1;
  // Share of the device's peak that the kernel reaches, 0 to 1: in arithmetic
  // or in memory traffic, whichever is larger; -1 if unknown.
  double roofline_frac = -1;
};

struct PageCopy {
  std::string kind;  // "pageable -> device", "memset"
  double ms = 0;
  double calls = 0;
  double bytes = 0;
};

struct PageCollective {
  std::string kind;   // "all-reduce"
  std::string group;  // its ranks, or its name
  int32_t group_size = -1;
  double ms = 0;
  double exposed_ms = 0;
  double calls = 0;
  double bytes = -1;  // -1: unknown for some
};

// What tensors use on one device during the step with the highest peak.
struct PageMemory {
  struct Owner {
    std::string op;  // the operator that allocated it; empty if there is none
    int64_t bytes = 0;
    int64_t blocks = 0;
  };
  std::string device;  // "cpu", "gpu 0"
  int64_t step = -1;
  double length_us = 0;
  double peak_us = 0;
  int64_t peak_bytes = 0;
  std::vector<double> time_us;  // points of the curve, since the step's start
  std::vector<int64_t> bytes;   // in use from each point on
  std::vector<Owner> owners;    // live at the peak, the largest first
  int64_t older_bytes = 0;  // part of the peak allocated before the recording
};

// The driver's and the allocator's figures of one device. -1: not in a sample.
struct PageSample {
  double time_ms = 0;  // since the first sample
  double sm_clock_mhz = -1;
  double power_w = -1;
  double temperature_c = -1;
  double sm_active_frac = -1;  // hardware counters, as in DeviceSample
  double tensor_active_frac = -1;
  double dram_frac = -1;
  int64_t allocated_bytes = -1;
  int64_t reserved_bytes = -1;
};
struct PageDevice {
  int32_t ordinal = 0;
  double power_limit_w = -1;
  std::vector<PageSample> samples;  // thinned out for drawing
};

// What the operating system counted in one step. -1: unknown.
struct PageHost {
  int64_t step = -1;
  double process_cores = -1;         // CPU time of the process / length
  double training_thread_frac = -1;  // share of the step on a core
  double run_delay_frac = -1;  // share of the step ready to run without a core
  double loader_cores = -1;
  double read_bytes_per_s = -1;
};

struct PageLoader {
  std::string name;
  std::string kind;  // "in-process", "threads", "processes"
  int32_t workers = -1;
  int64_t batch_size = -1;
};

// What a page shows of a Trace besides its Report: drawings, and tables that no
// other report has. The size is bounded, however large the Trace is.
struct PageDetails {
  int32_t rank = -1;  // the rank that is shown, if there are several
  std::vector<std::string> names = {""};
  std::vector<PageStep> steps;  // a typical one first, then those of examples
  std::vector<PageExample> examples;
  std::string peaks_device;  // whose peaks roofline_frac refers to
  bool peaks_exact = false;
  std::vector<PageKernel> kernels;  // at most 60, the longest time first
  int64_t kernel_count = 0;         // different kernels
  double kernels_ms = 0;            // time of all kernels
  double eligible_ms = 0;           // time of those that suit Tensor Cores
  double tensor_cores_ms = 0;       // the part of eligible_ms on Tensor Cores
  std::vector<PageCopy> copies;
  std::vector<PageCollective> collectives;  // at most 60
  std::vector<PageMemory> memory;           // by device
  std::vector<PageDevice> devices;
  std::vector<PageHost> host;
  std::vector<PageLoader> loaders;
};

// Like Analyze(trace), and fills `details` with what a page needs besides the
// report. Never fails; any number of threads.
Report Analyze(const Trace& trace, PageDetails* details);

// Returns the page as valid UTF-8: at most 600 KB, plus 4.4 KB for each further
// rank. It is safe to open whatever the names in the Trace are, because texts
// are data of the page, never markup. Long texts are cut. Deterministic. Never
// fails; any thread.
std::string ToHtml(const Report& report, const PageDetails& details);
std::string ToHtml(const Comparison& comparison);

}  // namespace stepscope
