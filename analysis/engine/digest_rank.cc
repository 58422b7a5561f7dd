// DigestRank(): all that AnalyzeRanks() needs of one rank, so that the traces
// of all ranks need not be in memory together.
#include <stepscope/kernel_class.h>
#include <stepscope/ranks.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "drawing/page_details.h"
#include "engine/report_of.h"
#include "ops/by_name.h"
#include "ranks/digest_collectives.h"
#include "ranks/fnv_hash.h"

namespace stepscope {
namespace {

void AddShape(const Argument& argument, FnvHasher& hash) {
  for (int64_t dim : argument.dims) hash.Add(dim);
  for (const Argument& element : argument.elements) AddShape(element, hash);
}

// Returns one hash per step, because only whether ranks differ matters, not
// how.
std::vector<std::pair<int64_t, uint64_t>> StepShapes(
    const AnalysisContext& context) {
  std::vector<std::pair<int64_t, uint64_t>> shapes;
  if (!context.trace.watched(Kind::kOpShapes)) return shapes;
  for (size_t i : context.steps.steady) {
    if (shapes.size() == kMostRankSteps) break;
    const Span& host = context.steps.windows[i].host;
    FnvHasher hash;
    for (RowId row : context.tree.of_thread(context.steps.thread, host)) {
      const Op& op = context.trace.ops()[row];
      if (op.inputs == kNone) continue;
      for (const Argument& argument :
           context.trace.op_inputs()[op.inputs].arguments) {
        AddShape(argument, hash);
      }
    }
    shapes.push_back({context.steps.windows[i].number, hash.value()});
  }
  return shapes;
}

// Host time per step without waits, as measured for the device program. Without
// a device, the step time minus its collectives.
double HostMs(const AnalysisContext& context) {
  if (context.steps.steady.empty()) return -1;
  if (!context.has_gpu) {
    return context.stats.mean_ms - context.MeanNs(Cause::kCommunication) * 1e-6;
  }
  const DeviceProgram* program = context.replay.device();
  return program == nullptr || program->host_only_ns <= 0
             ? -1
             : program->host_only_ns * 1e-6;
}

// The mean clock of the device over the samples of the recording; -1 if there
// are none.
double ClockMhz(const AnalysisContext& context) {
  double sum = 0;
  int64_t count = 0;
  for (const DeviceSample& sample : context.trace.device_samples()) {
    if (!context.ledger || sample.device != context.ledger->device ||
        sample.sm_clock_mhz <= 0) {
      continue;
    }
    sum += sample.sm_clock_mhz;
    ++count;
  }
  return count == 0 ? -1 : sum / static_cast<double>(count);
}

// Kernels per steady step, without those of collectives.
double KernelsPerStep(const AnalysisContext& context) {
  if (context.steps.steady.empty()) return 0;
  ByName is_collective(context.trace, &IsCollectiveKernel);
  int64_t count = 0;
  for (const Kernel& kernel : context.trace.kernels()) {
    if (is_collective(kernel.name)) continue;
    const auto step = std::ranges::upper_bound(
        context.steps.windows, kernel.begin_ns, {},
        [](const StepWindow& window) { return window.tiled.end_ns; });
    count += step != context.steps.windows.end() &&
             kernel.begin_ns >= step->tiled.begin_ns &&
             step->kind == StepKind::kSteady;
  }
  return static_cast<double>(count) /
         static_cast<double>(context.steps.steady.size());
}

}  // namespace

RankDigest DigestRank(const Trace& trace, PageDetails* details) {
  const AnalysisContext context(trace);
  RankDigest digest;
  digest.report = ReportOf(context);
  if (details != nullptr) *details = DrawDetails(context, digest.report);
  DigestCollectives(context, digest);
  digest.sm_clock_mhz = ClockMhz(context);
  digest.kernels = KernelsPerStep(context);
  if (context.steps.windows.size() == 1) {
    digest.only_step_begin_ns = context.steps.windows[0].host.begin_ns;
  }
  digest.host_ms = HostMs(context);
  digest.noise_ms = NoiseOfMeanMs(context.stats);
  // The replay may cover only a part of the steps, and the mean host time of
  // fewer steps varies more.
  digest.host_noise_ms =
      digest.noise_ms *
      std::sqrt(static_cast<double>(context.steps.steady.size()) /
                static_cast<double>(
                    std::max<size_t>(context.replayed.steps.steady.size(), 1)));
  if (context.steps.thread != kNone) {
    digest.step_shapes = StepShapes(context);
  }
  return digest;
}

}  // namespace stepscope
