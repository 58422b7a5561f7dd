#include "engine/compare_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/report_of.h"
#include "engine/time_by_place.h"
#include "ops/intervals.h"

namespace stepscope {
namespace {

// Ops, kernels and modules that differ by less than this share of the longer
// step are left out.
constexpr double kShownFrac = 0.005;
constexpr size_t kMaxRows = 200;

// Kernel, copy and memset time of the steady steps, by name.
void AddKernels(const AnalysisContext& context, bool is_after,
                std::map<std::string, ComparedTime>& rows) {
  if (context.steps.steady.empty()) return;
  // Per steady step.
  const double share = 1.0 / context.steps.steady.size();
  std::vector<Span> spans;
  for (size_t i : context.steps.steady)
    spans.push_back(context.steps.windows[i].tiled);
  // Work that starts in a steady step counts in full, because the step waits
  // for it.
  spans = Merge(std::move(spans));
  const auto add = [&](const DeviceWork& work, std::string_view name) {
    if (LengthIn(spans, {work.begin_ns, work.begin_ns + 1}) == 0) return;
    ComparedTime& row = rows[std::string(name)];
    row.name = name;
    (is_after ? row.after_ms : row.before_ms) +=
        share * (work.end_ns - work.begin_ns) * 1e-6;
    (is_after ? row.after_calls : row.before_calls) += share;
  };
  for (const Kernel& kernel : context.trace.kernels()) {
    add(kernel, context.trace.name(kernel.name));
  }
  for (const Copy& copy : context.trace.copies()) {
    const std::string_view name = context.trace.name(copy.name);
    add(copy, name.empty() ? "copy" : name);
  }
  for (const Memset& memset : context.trace.memsets()) add(memset, "memset");
}

// Self time of ops in the steady steps, by name: of their kernels on a run with
// a GPU, because host time depends on how far the host runs ahead.
void AddOps(const AnalysisContext& context, const OpTimes& times, bool is_after,
            std::map<std::string, ComparedTime>& rows) {
  for (const TopOp& op : OpsByTime(context, times)) {
    ComparedTime& row = rows[op.name];
    row.name = op.name;
    (is_after ? row.after_ms : row.before_ms) +=
        context.has_gpu ? op.gpu_self_ms_per_step : op.self_ms_per_step;
    (is_after ? row.after_calls : row.before_calls) += op.calls_per_step;
  }
}

// Reads all modules, not only those that the reports list: a module that only
// one of the two reports lists would look added or removed.
void AddModules(const AnalysisContext& context, const OpTimes& times,
                bool is_after, std::map<std::string, ComparedTime>& rows) {
  for (const PlaceTime& module : TimeByModule(context, times, SIZE_MAX)) {
    ComparedTime& row = rows[module.name];
    row.name = module.name;
    (is_after ? row.after_ms : row.before_ms) +=
        context.has_gpu ? module.gpu_self_ms_per_step : module.self_ms_per_step;
    (is_after ? row.after_calls : row.before_calls) += module.calls_per_step;
  }
}

// Returns Comparison::shared_ops_frac. It is the smaller of the two shares,
// because one program may contain the other.
double SharedOpsFrac(const std::map<std::string, ComparedTime>& ops) {
  ComparedTime shared, all;
  for (const auto& [name, op] : ops) {
    all.before_ms += op.before_ms;
    all.after_ms += op.after_ms;
    if (op.before_calls <= 0 || op.after_calls <= 0) continue;
    shared.before_ms += op.before_ms;
    shared.after_ms += op.after_ms;
  }
  if (all.before_ms <= 0 || all.after_ms <= 0) return -1;
  return std::min(shared.before_ms / all.before_ms,
                  shared.after_ms / all.after_ms);
}

// Sorts by the size of the difference in either direction, because what became
// slower is as interesting as what became faster.
std::vector<ComparedTime> LargestDifferences(
    const std::map<std::string, ComparedTime>& rows, double least_ms) {
  std::vector<ComparedTime> order;
  for (const auto& [name, row] : rows) {
    if (std::abs(row.after_ms - row.before_ms) >= least_ms) {
      order.push_back(row);
    }
  }
  std::ranges::stable_sort(order, {}, [](const ComparedTime& row) {
    return -std::abs(row.after_ms - row.before_ms);
  });
  if (order.size() > kMaxRows) order.resize(kMaxRows);
  return order;
}

}  // namespace

void CompareTables(const AnalysisContext& before, const AnalysisContext& after,
                   const Report& first, const Report& second,
                   Comparison& comparison) {
  const double least_ms = kShownFrac * std::max(comparison.before.mean_ms,
                                                comparison.after.mean_ms);
  std::map<std::string, ComparedTime> causes, ops, kernels, modules;
  for (const auto& [key, ms] : first.time_split_ms) {
    causes[key].name = key;
    causes[key].before_ms = ms;
  }
  for (const auto& [key, ms] : second.time_split_ms) {
    causes[key].name = key;
    causes[key].after_ms = ms;
  }
  const OpTimes times_before = TimesOf(before), times_after = TimesOf(after);
  AddOps(before, times_before, false, ops);
  AddOps(after, times_after, true, ops);
  AddKernels(before, false, kernels);
  AddKernels(after, true, kernels);
  // If only one trace has modules, all of them would look added or removed.
  if (!first.modules.empty() && !second.modules.empty()) {
    AddModules(before, times_before, false, modules);
    AddModules(after, times_after, true, modules);
  }
  comparison.shared_ops_frac = SharedOpsFrac(ops);
  comparison.causes = LargestDifferences(causes, 0);
  comparison.ops = LargestDifferences(ops, least_ms);
  comparison.kernels = LargestDifferences(kernels, least_ms);
  comparison.modules = LargestDifferences(modules, least_ms);
}

}  // namespace stepscope
