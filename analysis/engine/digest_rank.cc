// DigestRank(): all that AnalyzeRanks() needs of one rank, so that the traces
// of all ranks need not be in memory together.
#include <stepscope/ranks.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "device/collectives.h"
#include "drawing/page_details.h"
#include "engine/report_of.h"
#include "ranks/fnv_hash.h"
#include "words/labels.h"

namespace stepscope {
namespace {

class Hash {
 public:
  void Add(std::string_view text) {
    value_ = FnvHash(std::string_view("\0", 1), FnvHash(text, value_));
  }
  void Add(int64_t number) {
    for (int i = 0; i < 8; ++i) {
      const char byte = static_cast<char>(number >> (8 * i));
      value_ = FnvHash({&byte, 1}, value_);
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = kFnvOfNothing;
};

// After these no rank has the result before all have contributed, so they end
// at the same moment everywhere and serve to align clocks. A broadcast's root
// may leave early.
bool EndsTogether(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll;
}

// Keeps the collectives of the first steps, as many as a digest may have. All
// ranks keep the same steps, because they run the same collectives. A loss says
// what was cut.
void LimitCollectives(std::vector<RankCollective>& list, Report& report) {
  if (list.size() <= kMostRankCollectives) return;
  const size_t all = list.size();
  size_t kept = kMostRankCollectives;
  while (kept > 0 && list[kept - 1].step == list[kept].step) --kept;
  if (kept == 0) kept = kMostRankCollectives;  // of one huge step
  list.resize(kept);
  report.losses.push_back(
      {.name = "collectives-cut",
       .detail = "ranks are compared by the first " + std::to_string(kept) +
                 " of " + std::to_string(all) + " collectives, up to step " +
                 std::to_string(list.back().step) +
                 "; record fewer steps to "
                 "compare all of them",
       .count = static_cast<int64_t>(all - kept),
       .severity = Severity::kNote});
}

// All that a comparison needs of a collective, in a few bytes: the traces of
// many ranks do not fit into memory together.
std::vector<RankCollective> SteadyCollectives(const AnalysisContext& context) {
  std::vector<RankCollective> list;
  std::map<std::pair<int64_t, uint64_t>, int32_t> ordinals;
  for (const Collective& one : context.collectives) {
    if (one.step == kNoStep ||
        context.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    Hash group;
    group.Add(context.trace.name(one.group));
    group.Add(static_cast<int64_t>(one.kind));
    group.Add(one.integer ? 1 : 0);
    RankCollective shared;
    shared.step = context.steps.windows[one.step].number;
    shared.group = group.value();
    shared.ordinal = ordinals[{shared.step, shared.group}]++;
    shared.ends_together = EndsTogether(one.kind);
    shared.kernel = one.kernel;
    shared.begin_ns = one.moved.begin_ns;
    shared.end_ns = one.moved.end_ns;
    shared.exposed_ns = one.exposed_ns;
    list.push_back(shared);
  }
  return list;
}

void AddShape(const Argument& argument, Hash& hash) {
  for (int64_t dim : argument.dims) hash.Add(dim);
  for (const Argument& element : argument.elements) AddShape(element, hash);
}

// One hash per step: whether ranks differ is all that matters, not how.
std::vector<std::pair<int64_t, uint64_t>> StepShapes(
    const AnalysisContext& context) {
  std::vector<std::pair<int64_t, uint64_t>> shapes;
  if (!context.trace.watched(Kind::kOpShapes)) return shapes;
  for (size_t i : context.steps.steady) {
    if (shapes.size() == kMostRankSteps) break;
    const Span& host = context.steps.windows[i].host;
    Hash hash;
    const auto rows = context.tree.of_thread(context.steps.thread);
    const auto begin_of = [&](RowId row) {
      return context.trace.ops()[row].begin_ns;
    };
    for (auto it = std::ranges::lower_bound(rows, host.begin_ns, {}, begin_of);
         it != rows.end() && begin_of(*it) < host.end_ns; ++it) {
      const Op& op = context.trace.ops()[*it];
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

// Host time per step without waits: from the device program, which has removed
// them; without a device, the step less its collectives.
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

}  // namespace

RankDigest DigestRank(const Trace& trace, PageDetails* details) {
  const AnalysisContext context(trace);
  RankDigest digest;
  digest.report = ReportOf(context);
  if (details != nullptr) *details = DrawDetails(context, digest.report);
  digest.collectives = SteadyCollectives(context);
  LimitCollectives(digest.collectives, digest.report);
  digest.host_ms = HostMs(context);
  digest.noise_ms = NoiseOfMeanMs(context.stats);
  // The replay covers a part of the steps, so the mean host time of that part
  // varies more.
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
