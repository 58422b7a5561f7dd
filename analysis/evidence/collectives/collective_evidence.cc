#include "evidence/collectives/collective_evidence.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evidence/gradient_passes.h"
#include "ops/contains.h"
#include "replay/gpu/device_program.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Returns the op that issued the collective and at most two ops around it, such
// as "autograd::engine::... > c10d::allreduce_"; the kind of collective if no
// op was recorded.
std::string WhereIssued(const AnalysisContext& m, const Collective& one) {
  std::string text;
  int names = 0;
  for (RowId row = one.op; row != kNone && names < 3;
       row = m.trace.ops()[row].parent, ++names) {
    std::string name(m.trace.name(m.trace.ops()[row].name));
    if (!text.empty()) name.append(" > ").append(text);
    text = std::move(name);
  }
  return text.empty() ? CollectiveName(one.kind) : text;
}

}  // namespace

// Ranks examples by exposed time, because a collective hidden by computation
// costs nothing.
void Illustrate(const AnalysisContext& m,
                const std::function<bool(const Collective&)>& wanted,
                Finding& finding) {
  std::vector<const Collective*> order;
  for (const Collective& one : m.collectives) {
    if (one.step != kNoStep && wanted(one)) order.push_back(&one);
  }
  const size_t count = std::min<size_t>(3, order.size());
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(count), {},
      [](const Collective* one) { return -one->exposed_ns; });
  for (size_t i = 0; i < count; ++i) {
    const Collective& one = *order[i];
    finding.examples.push_back(
        {m.steps.windows[one.step].number, one.moved.begin_ns, one.moved.end_ns,
         std::string(CollectiveName(one.kind)) +
             (one.bytes >= 0 ? " of " + Bytes(one.bytes) : std::string()) +
             ", " + Milliseconds(one.exposed_ns * 1e-6) + " exposed"});
  }
  if (!order.empty()) finding.where = WhereIssued(m, *order[0]);
}

double HidingBoundNs(const AnalysisContext& m, double exposed_ns,
                     Finding& finding) {
  const RunInfo& run = m.trace.run();
  const bool one_thread =
      !m.trace.settings().empty() &&
      std::ranges::all_of(m.trace.settings(), [](const Settings& row) {
        return row.intra_op_threads == 1;
      });
  if (m.has_gpu || !one_thread || run.usable_cores <= 0) return exposed_ns;
  double wall = 0, busy = 0;
  for (const HostUsage& usage : m.trace.host_usage()) {
    if (usage.end_ns <= usage.begin_ns || usage.process_cpu_ns < 0) continue;
    wall += static_cast<double>(usage.end_ns - usage.begin_ns);
    busy += static_cast<double>(usage.process_cpu_ns);
  }
  if (wall <= 0) return exposed_ns;
  // Ranks on the same machine share its cores.
  const double cores = std::max(1.0, static_cast<double>(run.usable_cores) /
                                         std::max(1, run.local_ranks));
  const double idle_ns = std::max(0.0, 1 - busy / cores / wall) * m.step_ns();
  if (idle_ns >= exposed_ns) return exposed_ns;
  finding.evidence += " This rank's share of the cores is idle for " +
                      Milliseconds(idle_ns * 1e-6) +
                      " per step: hiding communication cannot gain more.";
  return idle_ns;
}

std::vector<bool> NeededAtOnce(const AnalysisContext& m) {
  std::vector<bool> needed(m.collectives.size());
  const DeviceProgram* program = m.replay.device();
  if (program == nullptr) return needed;
  const std::vector<DeviceNode>& activities = program->activities;
  for (size_t i = 0; i < m.collectives.size(); ++i) {
    const Collective& one = m.collectives[i];
    if (one.kind != CollectiveKind::kAllReduce || one.gradient ||
        one.kernel == kNone) {
      continue;
    }
    const uint32_t at = ActivityOf(*program, KernelOf(one));
    if (at == kNoActivity) continue;
    // Activities are in the order of their launches. Uploads of the next batch
    // need no result.
    uint32_t next = at + 1;
    while (next < activities.size() &&
           (activities[next].collective ||
            activities[next].ref.table != ActivityTable::kKernel)) {
      ++next;
    }
    if (next == activities.size()) continue;
    const auto waits = program->waits.begin() + activities[next].first_wait;
    needed[i] = std::find(waits, waits + activities[next].wait_count, at) !=
                waits + activities[next].wait_count;
  }
  return needed;
}

Verdict AnswerWithoutCollectives(const AnalysisContext& m) {
  if (m.trace.run().world_size > 1) {
    return Skip("no collective was recorded");
  }
  return Clean();
}

// Searches names, because FSDP, FSDP2 and DeepSpeed ZeRO 3 name their ranges
// and ops. Sequence parallelism also gathers and scatters (activations, not
// parameters), but without such names.
bool ShardsParameters(const Trace& trace) {
  std::vector<bool> named(trace.name_count());
  for (NameId name = 0; name < trace.name_count(); ++name) {
    const std::string_view text = trace.name(name);
    for (std::string_view word :
         {"FullyShardedDataParallel", "FSDP::", "fsdp::", "DeepSpeedZero"}) {
      if (Contains(text, word)) named[name] = true;
    }
  }
  const auto any = [&](const auto& rows) {
    return std::ranges::any_of(
        rows, [&](const auto& row) { return named[row.name]; });
  };
  return any(trace.ranges()) || any(trace.ops()) || any(trace.python_frames());
}

}  // namespace stepscope
