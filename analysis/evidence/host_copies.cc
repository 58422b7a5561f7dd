#include "evidence/host_copies.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "device/blocking.h"
#include "ops/contains.h"
#include "ops/host_memory.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// 1 MiB: latency dominates smaller copies.
constexpr int64_t kLargeBytes = 1 << 20;

// Bandwidth in GB/s that copies from pinned memory reach in practice in an x16
// slot of each PCIe generation: about three quarters of the nominal 16, 32 and
// 64 GB/s. kBus maps parts of device names to these rates. The first match
// counts, so longer names come first.
constexpr double kPcie3 = 12, kPcie4 = 24, kPcie5 = 50;
constexpr std::pair<std::string_view, double> kBus[] = {
    {"H100", kPcie5},  {"H200", kPcie5},   {"GH200", kPcie5},
    {"H800", kPcie5},  {"H20", kPcie5},    {"B100", kPcie5},
    {"B200", kPcie5},  {"B300", kPcie5},   {"MI300", kPcie5},
    {"MI325", kPcie5}, {"MI35", kPcie5},   {"RTX 50", kPcie5},
    {"A100", kPcie4},  {"A800", kPcie4},   {"A10", kPcie4},
    {"A30", kPcie4},   {"A40", kPcie4},    {"L4", kPcie4},
    {"RTX A", kPcie4}, {"RTX 30", kPcie4}, {"RTX 40", kPcie4},
    {"MI100", kPcie4}, {"MI2", kPcie4},    {"V100", kPcie3},
    {"P100", kPcie3},  {"T4", kPcie3},     {"RTX 20", kPcie3},
    {"TITAN", kPcie3}, {"GTX", kPcie3},    {"MI50", kPcie3},
    {"MI60", kPcie3}};

// Marks the ops of the rows of `table` and all ops around them. Walking up
// stops at the first marked op, because everything around it is marked as well.
template <typename Table>
void MarkOpsAround(const Trace& trace, const Table& table,
                   std::vector<bool>& marked) {
  for (const auto& row : table) {
    for (RowId op = row.op; op != kNone && !marked[op];
         op = trace.ops()[op].parent) {
      marked[op] = true;
    }
  }
}

}  // namespace

std::optional<MemoryKind> HostMemoryOf(const Copy& copy, Direction direction) {
  const bool up = direction == Direction::kToDevice;
  const MemoryKind host = up ? copy.source : copy.destination;
  const MemoryKind other = up ? copy.destination : copy.source;
  if (!IsHostMemory(host) || IsHostMemory(other)) return {};
  return host;
}

std::vector<HostCopy> FindHostCopies(const AnalysisContext& context,
                                     Direction direction) {
  if (!context.ledger) return {};
  const Trace& trace = context.trace;
  const DeviceLedger& ledger = *context.ledger;
  std::vector<bool> steady(context.steps.windows.size());
  for (size_t i : context.steps.steady) steady[i] = true;
  std::vector<size_t> wait_of(trace.copies().size(), SIZE_MAX);
  for (size_t i = 0; i < context.waits.all.size(); ++i) {
    if (context.waits.all[i].copy != kNone)
      wait_of[context.waits.all[i].copy] = i;
  }
  const auto first_issued = std::ranges::find_if(
      trace.copies(), [](const Copy& copy) { return copy.call != kNone; });
  std::vector<HostCopy> copies;
  for (RowId row = 0; row < trace.copies().size(); ++row) {
    const Copy& copy = trace.copies()[row];
    if (!HostMemoryOf(copy, direction) || copy.device != ledger.device) {
      continue;
    }
    // A copy issued before the recording began counts for no step, although it
    // may hold one up.
    const bool earlier = copy.call == kNone &&
                         first_issued != trace.copies().end() &&
                         copy.begin_ns < first_issued->begin_ns;
    // A copy belongs to the step that issued it, not to the one it runs in.
    const int64_t asked = copy.call == kNone
                              ? copy.begin_ns
                              : trace.runtime_calls()[copy.call].begin_ns;
    const auto after = std::ranges::upper_bound(
        context.steps.windows, asked, {},
        [](const StepWindow& step) { return step.host.begin_ns; });
    if (after == context.steps.windows.begin()) continue;
    const size_t step =
        static_cast<size_t>(after - context.steps.windows.begin()) - 1;
    if (asked >= context.steps.windows[step].host.end_ns) continue;
    const Span span{copy.begin_ns, copy.end_ns};
    copies.push_back(
        {.copy = row,
         .wait = wait_of[row],
         .step = step,
         .steady = steady[step] && !earlier,
         .on_compute_stream = ledger.kernel_streams.contains(copy.stream),
         // A copy costs the step nothing while any kernel runs.
         .exposed_ns = span.length() - LengthIn(ledger.kernels, span)});
  }
  return copies;
}

HostCopySums SumHostCopies(const AnalysisContext& context,
                           const std::vector<HostCopy>& copies,
                           const HostCopyFilter& filter) {
  HostCopySums sums;
  if (context.steps.steady.empty()) return sums;
  const double share = 1.0 / static_cast<double>(context.steps.steady.size());
  for (const HostCopy& one : copies) {
    if (!one.steady || !filter(one)) continue;
    const Copy& copy = context.trace.copies()[one.copy];
    sums.count += share;
    sums.bytes += share * static_cast<double>(std::max<int64_t>(copy.bytes, 0));
    sums.copy_ns += share * static_cast<double>(copy.end_ns - copy.begin_ns);
    sums.exposed_ns += share * static_cast<double>(one.exposed_ns);
    if (one.wait == SIZE_MAX) continue;
    // The copy itself holds up the host only after it has started.
    const HostWait& wait = context.waits.all[one.wait];
    sums.queued_ns += share * static_cast<double>(wait.queued_ns);
    sums.held_ns +=
        share * static_cast<double>(wait.blocked_ns - wait.queued_ns);
  }
  return sums;
}

double ShareOfStepsWith(const AnalysisContext& context,
                        const std::vector<HostCopy>& copies,
                        const HostCopyFilter& filter, int64_t bytes) {
  if (context.steps.steady.empty()) return 0;
  std::vector<int64_t> by_step(context.steps.windows.size());
  for (const HostCopy& one : copies) {
    if (!filter(one)) continue;
    by_step[one.step] +=
        std::max<int64_t>(context.trace.copies()[one.copy].bytes, 0);
  }
  double count = 0;
  for (size_t i : context.steps.steady) count += by_step[i] >= bytes;
  return count / static_cast<double>(context.steps.steady.size());
}

void AddCopyExamples(const AnalysisContext& m,
                     std::vector<const HostCopy*> copies, Finding& finding) {
  const auto length = [&](const HostCopy* one) {
    const Copy& copy = m.trace.copies()[one->copy];
    return copy.end_ns - copy.begin_ns;
  };
  std::ranges::stable_sort(copies, std::greater(), length);
  for (size_t i = 0; i < std::min<size_t>(3, copies.size()); ++i) {
    const Copy& copy = m.trace.copies()[copies[i]->copy];
    finding.examples.push_back(
        {m.steps.windows[copies[i]->step].number, copy.begin_ns, copy.end_ns,
         (copy.bytes > 0 ? Bytes(static_cast<double>(copy.bytes)) + " by "
                         : std::string()) +
             (copy.op == kNone
                  ? std::string("a copy")
                  : std::string(m.trace.name(m.trace.ops()[copy.op].name)))});
  }
}

// Prefer the rate that this run reaches, because the width of its slot is not
// recorded.
BusRate PinnedRate(const Trace& trace, Direction direction) {
  double bytes = 0, ns = 0;
  for (const Copy& copy : trace.copies()) {
    if (HostMemoryOf(copy, direction) != MemoryKind::kPinned ||
        copy.bytes < kLargeBytes) {
      continue;
    }
    bytes += static_cast<double>(copy.bytes);
    ns += static_cast<double>(copy.end_ns - copy.begin_ns);
  }
  if (ns > 0) return {bytes / ns, true};
  return {DeviceBusRate(trace), false};
}

double DeviceBusRate(const Trace& trace) {
  for (const Device& device : trace.run().devices) {
    for (const auto& [name, rate] : kBus) {
      if (Contains(device.name, name)) return rate;
    }
  }
  return 0;
}

std::vector<bool> OpsThatLaunch(const Trace& trace) {
  std::vector<bool> launches(trace.ops().size());
  MarkOpsAround(trace, trace.kernels(), launches);
  MarkOpsAround(trace, trace.copies(), launches);
  MarkOpsAround(trace, trace.memsets(), launches);
  return launches;
}

std::vector<bool> OpsThatCall(const Trace& trace) {
  std::vector<bool> calls(trace.ops().size());
  MarkOpsAround(trace, trace.runtime_calls(), calls);
  return calls;
}

}  // namespace stepscope
