#include "drawing/device_tables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "evidence/kernel_evidence.h"
#include "steps/steady_steps.h"
#include "words/labels.h"

namespace stepscope {
namespace {

constexpr size_t kRows = 60;

const char* PrecisionWord(Precision precision) {
  // In the order of Precision.
  constexpr const char* kNames[] = {"",     "fp64", "fp32", "tf32",
                                    "fp16", "bf16", "fp8",  "int8"};
  return kNames[static_cast<size_t>(precision)];
}

// The divisor for per-step figures.
double StepsCounted(const AnalysisContext& context) {
  return static_cast<double>(std::max<size_t>(context.steps.steady.size(), 1));
}

// True for work that a steady step launched; without steps, for all work. Work
// whose launch is unknown belongs to the step in which the device ran it.
bool Counts(const AnalysisContext& context, const DeviceWork& work) {
  if (context.steps.empty()) return true;
  const bool known = work.call != kNone;
  return SteadyStepAt(context.steps,
                      known ? context.trace.runtime_calls()[work.call].begin_ns
                            : work.begin_ns,
                      known ? &StepWindow::host : &StepWindow::tiled) !=
         context.steps.windows.size();
}

// Sums over the calls of one kernel.
struct KernelSum {
  KernelTraits traits;
  KernelClass kind = KernelClass::kUnknown;
  Precision precision = Precision::kUnknown;
  bool eligible = false;
  double ns = 0, calls = 0;
  double occupied_ns = 0, occupancy_known_ns = 0;  // occupied: time * occupancy
  double flops = 0, flops_ns = 0;  // of the calls whose work is known
  double bytes = 0, bytes_ns = 0;
  double ideal_ns = 0, ideal_known_ns = 0;
};

void AddCallOf(const Kernel& kernel, KernelSum& sum) {
  const auto ns = static_cast<double>(kernel.end_ns - kernel.begin_ns);
  sum.ns += ns;
  ++sum.calls;
  if (kernel.occupancy_frac < 0) return;
  sum.occupied_ns += ns * static_cast<double>(kernel.occupancy_frac);
  sum.occupancy_known_ns += ns;
}

void AddWorkOf(const KernelUse& use, const DevicePeaks& peaks, KernelSum& sum) {
  sum.eligible |= use.eligible;
  // Uses what the kernel's name says, or else what its op says.
  if (sum.kind == KernelClass::kUnknown) sum.kind = use.kind;
  if (sum.precision == Precision::kUnknown) sum.precision = use.precision;
  double ideal = -1;
  if (use.flops > 0) {
    sum.flops += use.flops;
    sum.flops_ns += use.ns;
    const double rate = NominalFlops(peaks, use.precision);
    if (rate > 0) ideal = use.flops / rate;
  }
  if (use.bytes > 0) {
    sum.bytes += use.bytes;
    sum.bytes_ns += use.ns;
    if (peaks.bytes_per_ns > 0) {
      ideal = std::max(ideal, use.bytes / peaks.bytes_per_ns);
    }
  }
  if (ideal < 0) return;
  sum.ideal_ns += ideal;
  sum.ideal_known_ns += use.ns;
}

// Averages the sums into a row. A roofline share above 1 (cost overestimated)
// is capped.
PageKernel RowOf(std::string_view name, const KernelSum& sum, double steps) {
  constexpr size_t kLongestName = 2000;
  PageKernel row;
  row.name = name.substr(0, kLongestName);
  row.kind = KernelClassName(sum.kind);
  row.precision = PrecisionWord(sum.precision);
  if (sum.traits.tensor_cores != TensorCores::kUnknown) {
    row.tensor_cores = sum.traits.tensor_cores == TensorCores::kYes;
  }
  row.eligible = sum.eligible;
  row.ms = sum.ns * 1e-6 / steps;
  row.calls = sum.calls / steps;
  if (sum.occupancy_known_ns > 0) {
    row.occupancy_frac = sum.occupied_ns / sum.occupancy_known_ns;
  }
  if (sum.flops_ns > 0) row.flops_per_s = sum.flops / sum.flops_ns * 1e9;
  if (sum.bytes_ns > 0) row.bytes_per_s = sum.bytes / sum.bytes_ns * 1e9;
  if (sum.ideal_known_ns > 0) {
    row.roofline_frac = std::min(1.0, sum.ideal_ns / sum.ideal_known_ns);
  }
  return row;
}

}  // namespace

void ListKernels(const AnalysisContext& context, PageDetails& details) {
  const Trace& trace = context.trace;
  const double steps = StepsCounted(context);
  std::map<NameId, KernelSum> sums;
  for (const Kernel& kernel : trace.kernels()) {
    if (!Counts(context, kernel)) continue;
    const auto [at, is_new] = sums.try_emplace(kernel.name);
    if (is_new) {
      at->second.traits = TraitsOfKernel(trace.name(kernel.name));
      at->second.kind = at->second.traits.kind;
      at->second.precision = at->second.traits.precision;
    }
    AddCallOf(kernel, at->second);
  }
  // Returns before the peaks are set, because a page without kernels has no
  // table of kernels.
  if (sums.empty()) return;
  // Roofline shares need the peaks of exactly this device.
  const DevicePeaks peaks =
      context.kernels.peaks.exact ? context.kernels.peaks : DevicePeaks();
  details.peaks_device = peaks.device;
  details.peaks_exact = peaks.exact;
  for (const KernelUse& use : context.kernels.uses) {
    const NameId name = trace.kernels()[use.kernel].name;
    KernelSum& sum = sums[name];
    AddWorkOf(use, peaks, sum);
    if (!use.eligible) continue;
    details.eligible_ms += use.ns * 1e-6 / steps;
    if (use.tensor_cores == TensorCores::kYes) {
      details.tensor_cores_ms += use.ns * 1e-6 / steps;
    }
  }
  // Negative, so that sorting puts the longest first.
  std::vector<std::pair<double, NameId>> order;
  for (const auto& [name, sum] : sums) {
    order.push_back({-sum.ns, name});
    details.kernels_ms += sum.ns * 1e-6 / steps;
  }
  std::ranges::sort(order);
  details.kernel_count = static_cast<int64_t>(order.size());
  if (order.size() > kRows) order.resize(kRows);
  for (const auto& [ns, name] : order) {
    details.kernels.push_back(RowOf(trace.name(name), sums[name], steps));
  }
}

void ListCopies(const AnalysisContext& context, PageDetails& details) {
  const double share = 1 / StepsCounted(context);
  std::map<std::string, PageCopy> rows;
  const auto add = [&](const auto& work, const std::string& kind) {
    if (!Counts(context, work)) return;
    PageCopy& row = rows[kind];
    row.kind = kind;
    row.calls += share;
    row.ms += share * (work.end_ns - work.begin_ns) * 1e-6;
    row.bytes += share * static_cast<double>(std::max<int64_t>(work.bytes, 0));
  };
  for (const Copy& copy : context.trace.copies()) add(copy, CopyInWords(copy));
  for (const Memset& set : context.trace.memsets()) add(set, "memset");
  for (const auto& [kind, row] : rows) details.copies.push_back(row);
  std::ranges::stable_sort(details.copies, std::greater(), &PageCopy::ms);
}

void ListCollectives(const AnalysisContext& context, PageDetails& details) {
  const double share = 1 / StepsCounted(context);
  std::map<std::pair<CollectiveKind, NameId>, PageCollective> rows;
  for (const Collective& one : context.collectives) {
    if (one.step != kNoStep &&
        context.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    // Collectives between the steps belong to no step.
    if (one.step == kNoStep && !context.steps.empty()) continue;
    const auto [at, is_new] = rows.try_emplace({one.kind, one.group});
    PageCollective& row = at->second;
    if (is_new) {
      row.kind = CollectiveName(one.kind);
      row.group = context.trace.name(one.group).substr(0, 200);
      row.group_size = one.group_size;
      row.bytes = 0;
    }
    row.calls += share;
    row.ms += share * one.moved.length() * 1e-6;
    row.exposed_ms += share * one.exposed_ns * 1e-6;
    // If the size of one call is unknown, the sum is unknown. Without that
    // call, the sum would look complete.
    row.bytes = one.bytes < 0 || row.bytes < 0
                    ? -1
                    : row.bytes + share * static_cast<double>(one.bytes);
  }
  for (auto& [key, row] : rows) details.collectives.push_back(std::move(row));
  std::ranges::stable_sort(details.collectives, std::greater(),
                           &PageCollective::ms);
  if (details.collectives.size() > kRows) details.collectives.resize(kRows);
}

}  // namespace stepscope
