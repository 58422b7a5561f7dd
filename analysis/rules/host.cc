// Does the process use the machine it runs on?
// Source: "Optimization and Performance Tuning with PyTorch": use all cores.
#include <algorithm>
#include <string>

#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kParallelShare = 0.30;

Verdict CheckCoresIdle(const Measured& m) {
  const CpuProgram& program = m.replay.program();
  const int all_cores = m.trace.run().usable_cores;
  if (all_cores <= 0) {
    return CouldNotLookBecause("the number of usable cores was not recorded");
  }
  if (program.threads <= 0) {
    return CouldNotLookBecause(
        "the number of intra-op threads was not recorded");
  }
  const int ranks = std::max(1, m.trace.run().local_ranks);
  const int workers = std::max(0, program.workers);
  if (program.threads * ranks + workers >= all_cores) return Clean();
  double parallel = 0;
  for (const auto& step : program.steps) {
    for (const Work& work : step) {
      if (work.kind == WorkKind::kParallel) parallel += work.ns;
    }
  }
  parallel /= std::max<size_t>(program.steps.size(), 1);
  const double step = m.step_ns();
  if (parallel < kParallelShare * step) return Clean();

  // Fewer threads than all can be better where ops are small.
  const int most = std::max(program.threads + 1, all_cores / ranks - workers);
  std::vector<Edit> edits = {{.threads = most}};
  for (int threads = most / 2; threads > program.threads; threads /= 2) {
    edits.push_back({.threads = threads});
  }
  if (m.replay.check().speaks) {
    std::ranges::stable_sort(
        edits, {}, [&](const Edit& edit) { return m.replay.StepNs(edit); });
  }
  const std::string threads = std::to_string(edits[0].threads);
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "Ops run on " + Count(program.threads, "thread") + " although " +
      Count(all_cores, "core") + (all_cores == 1 ? " is" : " are") + " usable" +
      (workers > 0 ? " and " + Count(workers, "loader worker") +
                         (workers == 1 ? " runs" : " run")
                   : std::string()) +
      ". Ops that can use more take " + Milliseconds(parallel * 1e-6) +
      " of the " + Milliseconds(step * 1e-6) + " step (" +
      Percent(parallel / step) + ").";
  finding.assumption =
      "doubling the threads makes these ops 1.7 times as fast (1.4 to 1.9)";
  finding.fix_cpp = "at::set_num_threads(" + threads +
                    ");  // before the first op, or OMP_NUM_THREADS=" + threads;
  finding.fix_python =
      "torch.set_num_threads(" + threads + ")  # or OMP_NUM_THREADS=" + threads;
  finding.wrong_if = "other programs need the cores that look idle here";
  finding = Sized(m, std::move(finding), edits[0], 0);
  return Fire(std::move(finding), std::move(edits));
}

constexpr Rule kRules[] = {
    {.id = "cores-idle",
     .question = "Do ops leave usable cores idle?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp},
     .check = &CheckCoresIdle,
     .reference = "Optimization and Performance Tuning with PyTorch: use all "
                  "cores"}};

}  // namespace

extern const std::span<const Rule> kHost = kRules;

}  // namespace stepscope
