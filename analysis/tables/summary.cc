// Summarize(): what `stepscope info` prints.
#include <stepscope/kernel_class.h>
#include <stepscope/memory_peaks.h>
#include <stepscope/summary.h>

#include <algorithm>
#include <set>

#include "device/device_ledger.h"
#include "ops/by_name.h"
#include "ops/intervals.h"
#include "words/labels.h"

namespace stepscope {
namespace {

// The spans of one device, collected before they are merged.
struct DeviceSpans {
  std::vector<Span> collectives;
  std::vector<Span> kernels;  // without collectives
  std::vector<Span> transfers;
  std::set<int64_t> streams;
  int64_t begin_ns = INT64_MAX;
  int64_t end_ns = INT64_MIN;

  void See(const DeviceWork& work) {
    streams.insert(work.stream);
    begin_ns = std::min(begin_ns, work.begin_ns);
    end_ns = std::max(end_ns, work.end_ns);
  }
};

std::vector<Span> Union(std::vector<Span> a, const std::vector<Span>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return Merge(std::move(a));
}

// Sums over the whole trace, not only the steady steps, because a summary shows
// what a file contains.
class Summarizer {
 public:
  explicit Summarizer(const Trace& trace) : trace_(trace) {}

  TraceSummary Run() {
    summary_.run = trace_.run();
    Steps();
    Devices();
    Copies();
    Loaders();
    summary_.memory = MemoryOf(trace_);
    Ops();
    Rows();
    summary_.losses.assign(trace_.losses().begin(), trace_.losses().end());
    return std::move(summary_);
  }

 private:
  void Steps();
  void Devices();
  void Copies();
  void Loaders();
  void Ops();
  void Rows();

  const Trace& trace_;
  TraceSummary summary_;
  std::vector<Span> step_spans_;
};

void Summarizer::Steps() {
  StepSummary& steps = summary_.steps;
  for (const Step& step : trace_.steps()) {
    const int64_t length_ns = step.end_ns - step.begin_ns;
    const bool first = steps.numbers.empty();
    steps.min_ns = first ? length_ns : std::min(steps.min_ns, length_ns);
    steps.max_ns = std::max(steps.max_ns, length_ns);
    steps.total_ns += length_ns;
    steps.numbers.push_back(step.number);
    step_spans_.push_back({step.begin_ns, step.end_ns});
  }
  step_spans_ = Merge(std::move(step_spans_));
}

void Summarizer::Devices() {
  std::map<int32_t, DeviceSpans> spans;
  ByName is_collective(trace_, &IsCollectiveKernel);
  for (const Kernel& kernel : trace_.kernels()) {
    DeviceSummary& device = summary_.devices[kernel.device];
    DeviceSpans& of = spans[kernel.device];
    of.See(kernel);
    ++device.kernels;
    const int64_t length_ns = kernel.end_ns - kernel.begin_ns;
    // The sums count overlapping work of several streams twice; the busy times
    // below, which are lengths of unions, do not.
    device.kernel_sum_ns += length_ns;
    const bool collective = is_collective(kernel.name);
    if (collective) {
      ++device.collectives;
      device.collective_sum_ns += length_ns;
    }
    (collective ? of.collectives : of.kernels)
        .push_back({kernel.begin_ns, kernel.end_ns});
  }
  const auto transfer = [&](const DeviceWork& work) {
    spans[work.device].See(work);
    spans[work.device].transfers.push_back({work.begin_ns, work.end_ns});
  };
  for (const Copy& copy : trace_.copies()) {
    ++summary_.devices[copy.device].copies;
    transfer(copy);
  }
  for (const Memset& set : trace_.memsets()) {
    ++summary_.devices[set.device].memsets;
    transfer(set);
  }
  for (auto& [ordinal, of] : spans) {
    DeviceSummary& device = summary_.devices[ordinal];
    device.streams = static_cast<int64_t>(of.streams.size());
    device.span_ns = of.end_ns - of.begin_ns;
    const std::vector<Span> collectives = Merge(std::move(of.collectives));
    const std::vector<Span> others = Merge(std::move(of.kernels));
    const std::vector<Span> kernels = Union(collectives, others);
    device.collective_busy_ns = Length(collectives);
    // A collective is exposed while no other kernel runs, because then the step
    // waits for it.
    device.exposed_ns = Length(Subtract(collectives, others));
    device.kernel_busy_ns = Length(kernels);
    device.busy_ns = Length(Union(kernels, of.transfers));
  }
}

void Summarizer::Copies() {
  const auto add = [](CopySummary& sum, const Copy& copy) {
    ++sum.count;
    sum.bytes += std::max<int64_t>(copy.bytes, 0);
    sum.ns += copy.end_ns - copy.begin_ns;
  };
  for (const Copy& copy : trace_.copies()) {
    add(summary_.copies[CopyInWords(copy)], copy);
    // Host memory is counted by kind only for uploads, because pinned memory
    // lets them overlap with computing.
    if (copy.destination != MemoryKind::kDevice) continue;
    if (copy.source == MemoryKind::kPageable)
      add(summary_.uploads_pageable, copy);
    if (copy.source == MemoryKind::kPinned) add(summary_.uploads_pinned, copy);
    if (copy.source == MemoryKind::kHost) add(summary_.uploads_unknown, copy);
  }
  const auto count = [&](const auto& rows) {
    // A correlation id connects device work with its launch. Without the
    // launch, the work cannot be attributed to an op.
    for (const auto& row : rows)
      summary_.work_without_call += row.call == kNone;
  };
  count(trace_.kernels());
  count(trace_.copies());
  count(trace_.memsets());
}

void Summarizer::Loaders() {
  std::vector<Span> waits;
  for (const Range& range : trace_.ranges()) {
    if (range.kind != RangeKind::kLoader) continue;
    LoaderSummary& loader = summary_.loader;
    ++loader.waits;
    loader.ns += range.end_ns - range.begin_ns;
    ++loader.names[std::string(trace_.name(range.name))];
    waits.push_back({range.begin_ns, range.end_ns});
  }
  // Computed separately, because a loop may also wait between two steps.
  summary_.loader.in_steps_ns =
      Length(Intersect(Merge(std::move(waits)), step_spans_));
}

void Summarizer::Ops() {
  std::vector<bool> seen(trace_.name_count());
  for (const Op& op : trace_.ops()) {
    summary_.ops_distinct += !seen[op.name];
    seen[op.name] = true;
    summary_.ops_with_shapes += op.inputs != kNone;
    summary_.ops_with_stacks += op.stack != kNone;
  }
  // Releases are negative.
  for (const Allocation& event : trace_.allocations())
    summary_.allocations += event.bytes > 0;
}

void Summarizer::Rows() {
  const auto add = [&](const char* kind, size_t count) {
    if (count > 0)
      summary_.rows.emplace_back(kind, static_cast<int64_t>(count));
  };
  add("threads", trace_.threads().size());
  add("steps", trace_.steps().size());
  add("ranges", trace_.ranges().size());
  add("ops", trace_.ops().size());
  add("python_frames", trace_.python_frames().size());
  add("runtime_calls", trace_.runtime_calls().size());
  add("kernels", trace_.kernels().size());
  add("copies", trace_.copies().size());
  add("memsets", trace_.memsets().size());
  add("syncs", trace_.syncs().size());
  add("communications", trace_.communications().size());
  add("allocations", trace_.allocations().size());
  add("overheads", trace_.overheads().size());
  add("streams", trace_.streams().size());
  add("device_memory", trace_.device_memory().size());
  add("device_samples", trace_.device_samples().size());
  add("settings", trace_.settings().size());
  add("host_usage", trace_.host_usage().size());
  add("loaders", trace_.loaders().size());
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (trace_.watched(static_cast<Kind>(kind)))
      summary_.watched.emplace_back(KindName(static_cast<Kind>(kind)));
  }
}

}  // namespace

std::vector<MemorySummary> MemoryOf(const Trace& trace) {
  std::vector<MemorySummary> all;
  for (const MemoryPeak& peak : MemoryPeaks(trace)) {
    MemorySummary memory;
    memory.device = MemoryDeviceName(peak);
    if (peak.step != kNone) memory.step = trace.steps()[peak.step].number;
    memory.peak_bytes = peak.bytes;
    memory.reserved_bytes = peak.reserved_bytes;
    if (peak.op != kNone) memory.op = trace.name(trace.ops()[peak.op].name);
    memory.is_counted = peak.is_counted || peak.device_type == 0;
    all.push_back(std::move(memory));
  }
  return all;
}

TraceSummary Summarize(const Trace& trace) { return Summarizer(trace).Run(); }

}  // namespace stepscope
