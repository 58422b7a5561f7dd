// Does the process use its cores, and does the training thread wait for a core
// or for Python's garbage collector?
// Source: "Optimization and Performance Tuning with PyTorch": use all cores,
// balance threads and workers.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "context/contention.h"
#include "context/noise.h"
#include "context/rule.h"
#include "evidence/stalls/stall_sum.h"
#include "replay/model/loader.h"
#include "words/quantities.h"

namespace stepscope {
namespace host_rules {
namespace {

// If ops that can use more threads take less than this share of the step, more
// threads gain little.
constexpr double kParallelShare = 0.30;
constexpr double kTwoThreads = 1.9;  // times as fast as one, as in replay
constexpr double kDemand = 1.25;     // threads and workers per core

// Pauses count as rare if they cost this many times as much over all steps as
// over the steady ones. Pauses in every step cost about as much in both.
constexpr double kRarePauses = 1.5;
// Pauses without a recorded cause are reported from 1 % of the step on.
constexpr double kLeastPauses = 0.01;
constexpr double kLeastPauseNs = 100'000;
constexpr char kFixGc[] =
    "gc.freeze() and gc.disable() after the set-up, then gc.collect() every N "
    "steps, in the same step on all ranks";

Alternative WithThreads(int count) {
  const std::string threads = std::to_string(count);
  Alternative more{.edit = {.threads = count}};
  more.wording.fix_cpp =
      "at::set_num_threads(" + threads +
      ");  // before the first op, or OMP_NUM_THREADS=" + threads;
  more.wording.fix_python =
      "torch.set_num_threads(" + threads + ")  # or OMP_NUM_THREADS=" + threads;
  return more;
}

// Returns the time in ns per step of ops that can use more threads.
double ParallelNs(const CpuProgram& program) {
  double parallel = 0;
  for (const auto& step : program.steps) {
    for (const Work& work : step) {
      if (work.kind == WorkKind::kParallel) parallel += work.ns;
    }
  }
  return parallel /
         static_cast<double>(std::max<size_t>(program.steps.size(), 1));
}

// Asks for cores and threads, which torch.profiler's files do not contain, or
// for one of them where the other is known.
Verdict AskForCores(const AnalysisContext& m, double parallel) {
  const int cores = m.trace.run().usable_cores;
  const int threads = m.replay.program().threads;
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence = "Ops that can use more threads take " +
                     Milliseconds(parallel * 1e-6) + " of the step (" +
                     Percent(parallel / m.step_ns()) + ")";
  std::string cpp = "if at::get_num_threads() is less than ";
  std::string python = "if torch.get_num_threads() is less than ";
  std::string options;
  if (cores > 0) {
    finding.evidence += ", and " + Count(cores, "core") +
                        " are usable, but the recording does not show how many "
                        "threads the ops use.";
    cpp += std::to_string(cores);
    python += std::to_string(cores);
    options = "--threads T";
  } else if (threads > 0) {
    finding.evidence += " and run on " + Count(threads, "thread") +
                        ", but the recording does not show how many cores are "
                        "usable.";
    cpp = "if more than " + Count(threads, "core") + " are usable";
    python = "if len(os.sched_getaffinity(0)) is more than " +
             std::to_string(threads);
    options = "--cores N";
  } else {
    finding.evidence +=
        ", but the recording shows neither how many threads they use nor how "
        "many cores are usable.";
    cpp += "the usable cores";
    python += "len(os.sched_getaffinity(0))";
    options = "--cores N --threads T";
  }
  finding.evidence +=
      " With a thread per core, which is the default, nothing is gained; on "
      "one thread they take 1.9 times as long as on two.";
  finding.assumption =
      threads > 0 ? "at best: twice as many cores are usable"
                  : "at best: ops run on one thread, and two cores are free";
  const std::string predicts =
      ", analyze " + options + " predicts what more threads gain";
  finding.fix_cpp = cpp + predicts;
  finding.fix_python = python + predicts;
  finding.wrong_if = "there are as many threads as cores, which is the default";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = parallel * (1 - 1 / kTwoThreads),
                    .at_most = FindingSeverity::kLow,
                    .asks = true});
}

// For a run whose cores other programs use part of the time. No recording shows
// how many cores are left for more threads. contended-cores claims the waits
// for a core as its gain, so they are subtracted from this one (kYielding).
Verdict IfOthersLeaveCores(double parallel, int threads, Alternative more,
                           Finding finding) {
  const int most = more.edit.threads;
  finding.confidence = Confidence::kHint;
  finding.assumption = "at best: the other programs leave " +
                       Count(most - threads, "core") +
                       " free, and these ops share the work of " +
                       Count(most, "thread") + " equally";
  finding.wrong_if = "the other programs keep the cores";
  finding.settings = {{"intra_op_threads", int64_t{most}}};
  finding.fix_cpp = std::move(more.wording.fix_cpp);
  finding.fix_python = std::move(more.wording.fix_python);
  return FireBound(std::move(finding),
                   parallel * (1 - static_cast<double>(threads) / most));
}

Verdict CheckCoresIdle(const AnalysisContext& m) {
  const CpuProgram& program = m.replay.program();
  const int all_cores = m.trace.run().usable_cores;
  const double step = m.step_ns();
  const double parallel = ParallelNs(program);
  if (all_cores <= 0 || program.threads <= 0) {
    // No op runs on less than one thread.
    if (all_cores == 1) return Clean();
    if (parallel >= kParallelShare * step) return AskForCores(m, parallel);
    return Skip(all_cores <= 0
                    ? "the number of usable cores was not recorded"
                    : "the number of intra-op threads was not recorded");
  }
  const int ranks = std::max(1, m.trace.run().local_ranks);
  const int workers = std::max(0, program.workers);
  if (int64_t{program.threads} * ranks + workers >= all_cores) return Clean();
  if (parallel < kParallelShare * step) return Clean();
  if (m.contention.by_further_threads) return Clean();

  // Also try fewer threads, because small ops can be faster on fewer threads
  // than there are cores.
  const int most = std::max(program.threads + 1, all_cores / ranks - workers);
  std::vector<Alternative> alternatives = {WithThreads(most)};
  for (int threads = most / 2; threads > program.threads; threads /= 2) {
    alternatives.push_back(WithThreads(threads));
  }
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "Ops run on " + Count(program.threads, "thread") +
      (workers > 0 ? " next to " + Count(workers, "loader worker")
                   : std::string()) +
      ", but " + Count(all_cores, "core") + (all_cores == 1 ? " is" : " are") +
      " usable. Ops that can use more threads take " +
      Milliseconds(parallel * 1e-6) + " of the " + Milliseconds(step * 1e-6) +
      " step (" + Percent(parallel / step) + ").";
  finding.assumption =
      "these ops run 1.9 times as fast on two threads as on one, and 1.7 times "
      "(1.4 to 1.9) as fast with each further doubling";
  finding.wrong_if = "other programs need the cores that look idle here";
  if (m.contention.by_others) {
    return IfOthersLeaveCores(parallel, program.threads,
                              std::move(alternatives.front()),
                              std::move(finding));
  }
  return Fire(Found{.finding = std::move(finding),
                    .alternatives = std::move(alternatives)});
}

// Returns the largest number of intra-op threads that was set; -1 if unknown.
int IntraOpThreads(const Trace& trace) {
  int threads = -1;
  for (const Settings& row : trace.settings()) {
    threads = std::max(threads, static_cast<int>(row.intra_op_threads));
  }
  return threads;
}

// Returns edits with fewer threads or workers. The replay only tells whether
// they would cost as much as they gain. It cannot predict the gain, because a
// recording does not show how much time oversubscription costs, or whether ops
// or workers lose it.
std::vector<Edit> FewerThreadsOrWorkers(const AnalysisContext& m, int threads,
                                        int workers, int ranks, int cores) {
  const CpuProgram& program = m.replay.program();
  std::vector<Edit> edits;
  if (m.has_gpu || program.workers < 1 || program.batch_cpu_ns <= 0) {
    return edits;
  }
  // Threads beyond this rank's share of the cores had no core to run on, so the
  // recorded rate was reached with as many threads as the share.
  const int64_t share = std::clamp(cores / ranks, 1, threads);
  const int64_t left = std::max(1, (cores - workers) / ranks);
  edits.push_back({.threads = static_cast<int>(
                       std::max<int64_t>(1, threads * left / share))});
  for (int fewer = program.workers - 1; fewer > 0; fewer /= 2) {
    edits.push_back({.workers = fewer});
  }
  return edits;
}

Verdict CheckOversubscription(const AnalysisContext& m) {
  const int cores = m.trace.run().usable_cores;
  const int threads = IntraOpThreads(m.trace);
  if (cores <= 0 || threads <= 0) {
    return Skip("the number of usable cores or of threads was not recorded");
  }
  double delay = 0, rows = 0;
  int workers = std::max(0, LoaderWorkers(m.trace));
  for (const HostUsage& usage : m.trace.host_usage()) {
    workers = std::max(workers, usage.loader_workers);
    if (usage.run_delay_ns < 0) continue;
    for (size_t i : m.steps.steady) {
      if (m.steps.windows[i].number != usage.step) continue;
      delay += usage.run_delay_ns;
      ++rows;
    }
  }
  if (rows == 0) {
    return Skip("the scheduler's delays were not recorded");
  }
  delay /= rows;
  const int ranks = std::max(1, m.trace.run().local_ranks);
  // 64 bits, because a trace file may contain any number.
  const int64_t demand = int64_t{threads} * ranks + workers;
  if (demand <= kDemand * cores || delay < kLargeDelayFrac * m.step_ns()) {
    return Clean();
  }
  const std::string fewer =
      std::to_string(std::max(1, (cores - workers) / ranks));
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      Count(threads, "intra-op thread") +
      (ranks > 1 ? " in each of " + Count(ranks, "rank") : std::string()) +
      (workers > 0 ? " and " + Count(workers, "loader worker") : "") +
      " share " + Count(cores, "core") +
      ": the training thread is ready to run but has no core for " +
      Milliseconds(delay * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step (" +
      Percent(delay / m.step_ns()) + ").";
  finding.assumption = "at best: the training thread always has a core";
  finding.fix_cpp = "at::set_num_threads(" + fewer +
                    ") or OMP_NUM_THREADS=" + fewer +
                    "; fewer workers; pin ranks to NUMA nodes";
  finding.fix_python = "torch.set_num_threads(" + fewer +
                       ") or OMP_NUM_THREADS=" + fewer +
                       "; fewer num_workers; pin ranks to NUMA nodes";
  finding.wrong_if = "programs outside this job occupy the cores";
  const std::string otherwise =
      "use more cores, or make the loader compute less";
  return Fire(
      Found{.finding = std::move(finding),
            .bound_ns = delay,
            .trials = FewerThreadsOrWorkers(m, threads, workers, ranks, cores),
            .if_small = {.evidence = " Fewer threads or workers would cost at "
                                     "least as much as they gain.",
                         .fix_cpp = otherwise,
                         .fix_python = otherwise}});
}

// Returns the mean per step over all steps except warm-up. Includes outliers,
// because a pause can turn a step into an outlier.
double GarbageNs(const AnalysisContext& m) {
  double ns = 0, steps = 0;
  for (size_t i = 0; i < m.steps.windows.size(); ++i) {
    if (m.steps.windows[i].kind == StepKind::kWarmUp) continue;
    ns += static_cast<double>(m.splits[i][Cause::kGc]);
    ++steps;
  }
  return ns / std::max(steps, 1.0);
}

Finding DescribeGarbage(const AnalysisContext& m, double ns) {
  Finding finding;
  finding.confidence = Confidence::kProven;
  int64_t count = 0;
  for (const Range& range : m.trace.ranges()) {
    if (m.trace.name(range.name) != "Python GC") continue;
    ++count;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, range.begin_ns, range.end_ns, "Python GC"});
    }
  }
  finding.evidence = "Python's garbage collector runs " + Count(count, "time") +
                     " and delays training by " + Milliseconds(ns * 1e-6) +
                     " per step.";
  finding.assumption = "the training loop creates no reference cycles";
  finding.fix_cpp = "none: only Python has a garbage collector";
  finding.fix_python = kFixGc;
  finding.wrong_if = "memory grows without the collector";
  return finding;
}

// Reports pauses in single steps. `all`: ns per step, over all steps.
Verdict CheckRarePauses(const AnalysisContext& m, double all) {
  if (all * 1e-6 < std::max(0.01 * m.stats.all_mean_ms, 0.1)) return Clean();
  Finding finding = DescribeGarbage(m, all);
  const StallSum sum = SumOf(m, StallKind::kGarbage);
  if (sum.count > 0) {
    finding.examples = sum.examples;
    finding.evidence += " " + Count(sum.count, "step") +
                        (sum.every.empty() ? "" : " (" + sum.every + ")") +
                        (sum.count == 1 ? " takes " : " take ") +
                        Milliseconds(sum.each_ns * 1e-6) +
                        " longer because of it.";
  }
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all,
                    .baseline_ms = m.gain_step_ms(m.stats.all_mean_ms)});
}

// Checks for steps that stop without running an op or a function that other
// steps do not run, although no collector events were recorded. A full
// collection also looks like this.
Verdict CheckUnexplainedPauses(const AnalysisContext& m) {
  const char* kNoEvents =
      "no garbage collector events were recorded (torch.profiler records them "
      "from PyTorch 2.9 on, with with_stack=True and record_python_gc_info in "
      "its experimental configuration)";
  const Stalls& stalls = m.stalls;
  const StallSum sum = SumOf(m, StallKind::kPause);
  if (sum.count < 2 || sum.lost_ns < kLeastPauses * stalls.usual_ns ||
      sum.lost_ns < kLeastPauseNs) {
    return Skip(kNoEvents);
  }
  const bool frames = !m.trace.python_frames().empty();
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.examples = sum.examples;
  finding.evidence =
      StepsInWords(sum, stalls) + " stop for " +
      Milliseconds(sum.each_ns * 1e-6) + " on average, " +
      Milliseconds(sum.lost_ns * 1e-6) +
      " per step over all steps. Meanwhile no op runs" +
      (frames ? ", and no Python function that the other steps do not run. "
              : ". ") +
      "A full run of Python's garbage collector looks like this; its events "
      "were not recorded.";
  finding.assumption = "at best: the steps no longer stop";
  finding.fix_cpp = "none: only Python has a garbage collector";
  finding.fix_python = std::string(kFixGc) +
                       "; gc.callbacks, or record_python_gc_info in "
                       "torch.profiler, shows whether it is the collector";
  finding.wrong_if =
      "these steps do work of their own between ops, such as saving or "
      "plotting, or another program took the cores";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = sum.most_ns,
                    .baseline_ms = m.gain_step_ms(sum.step_ns * 1e-6)});
}

Verdict CheckGarbageCollection(const AnalysisContext& m) {
  const bool recorded =
      std::ranges::any_of(m.trace.ranges(), [&](const Range& range) {
        return m.trace.name(range.name) == "Python GC";
      });
  // A C++ program has no collector.
  if (!recorded && m.trace.run().language != "c++") {
    return CheckUnexplainedPauses(m);
  }
  const double steady = m.MeanNs(Cause::kGc);
  const double all = GarbageNs(m);
  // If pauses turn steps into outliers, the mean steady step hides most of
  // them.
  if (all > kRarePauses * steady) return CheckRarePauses(m, all);
  if (steady * 1e-6 < MinReportableGainMs(m)) return Clean();
  Edit edit;
  for (const Range& range : m.trace.ranges()) {
    if (m.has_gpu && m.trace.name(range.name) == "Python GC" &&
        range.thread != kNone) {
      edit.cuts.push_back({range.thread, {range.begin_ns, range.end_ns}, 0});
    }
  }
  return Fire(DescribeGarbage(m, steady), std::move(edit), steady);
}

constexpr Rule kRules[] = {
    {.id = "cpu-oversubscription",
     .question = "Does the training thread wait for a core because too many "
                 "threads run?",
     .needs = {Kind::kHostUsage},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckOversubscription,
     .reference =
         "Optimization and Performance Tuning with PyTorch: balanced CPU use",
     .detect = "the intra-op threads of all ranks plus the loader workers "
               "exceed 1.25 times the usable cores, and the training thread "
               "waits for a core for 5 % of the step",
     .avoid =
         "the threads exist but do not run. The finding is only a note where "
         "replay predicts that fewer of them would cost as much as they gain",
     .fix_cpp = "at::set_num_threads, OMP_NUM_THREADS, fewer workers",
     .fix_python = "torch.set_num_threads, OMP_NUM_THREADS, fewer workers"},
    {.id = "gc-pause",
     .question = "Does Python's garbage collector delay the step?",
     .needs = {},
     .causes = {Cause::kGc},
     .check = &CheckGarbageCollection,
     .reference = "CPython documentation: gc.freeze",
     .detect =
         "Python GC events take 1 % of the step on the training thread, "
         "counting the steps that they turn into outliers. If a Python program "
         "was recorded without such events, the finding is a hint: in at least "
         "two steps, no op runs for 5 ms and for half of the time by which the "
         "step exceeds the median, and this costs 1 % over all steps",
     .avoid = "meanwhile, these steps save the model, or run a range or Python "
              "function that other steps do not run",
     .fix_cpp = "none: only Python has a garbage collector",
     .fix_python = "gc.freeze(), gc.disable() and gc.collect() every N steps, "
                   "on all ranks together",
     .change = "no garbage collection in the steps"},
    {.id = "cores-idle",
     .question = "Do ops leave usable cores idle?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckCoresIdle,
     .reference =
         "Optimization and Performance Tuning with PyTorch: use all cores",
     .detect =
         "the intra-op threads of all ranks and the loader workers leave cores "
         "idle, and ops that can use more threads take 30 % of the step. If "
         "cores or threads were not recorded, the finding asks for them. If "
         "other programs use the cores, it is a hint with an upper bound, from "
         "which the bound of contended-cores is subtracted",
     .avoid = "the run uses a GPU: its launching thread needs only one core; "
              "or further threads of the program use the cores",
     .fix_cpp = "at::set_num_threads, OMP_NUM_THREADS",
     .fix_python = "torch.set_num_threads, OMP_NUM_THREADS"}};

}  // namespace
}  // namespace host_rules

extern const std::span<const Rule> kHost = host_rules::kRules;

}  // namespace stepscope
