// Does something outside the program slow it down: reduced clocks of the
// device, or other programs on its cores? No tuning guide covers this. The
// driver reports power and heat limits as throttle reasons. What they cost
// shows in kernels of the same shape that take longer in late steps than in
// early ones. For cores, Linux counts how long a thread that is ready to run
// has no core (Documentation/scheduler/sched-stats.rst).
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "context/rule.h"
#include "device/device_ledger.h"
#include "evidence/program/op_pace.h"
#include "ops/by_name.h"
#include "words/quantities.h"

namespace stepscope {
namespace clocks_rules {
namespace {

constexpr double kThrottledShare = 0.10;  // of the samples
constexpr double kDrift = 0.03;           // of the kernels' time
// NVML's throttle reasons. Heat has one bit for the software's limit and one
// for the hardware's.
constexpr int64_t kPowerCap = 4, kHardwareSlowdown = 8, kHeat = 32 | 64;
constexpr size_t kStepsForDrift = 3;
// Ops that one core would do faster count from this share of the step on. Our
// own choice: in the programs of tests/advice/programs that have a core for
// each thread, it is at most 1 %.
constexpr double kStalledShare = 0.10;

// Kernels of equal name, grid and block do the same work, so their times are
// comparable.
using Shape =
    std::tuple<NameId, std::array<int32_t, 3>, std::array<int32_t, 3>>;
struct OneStep {
  double ns = 0;
  int64_t calls = 0;
};
// The times of one shape over the steady steps. "Early" is the first third of
// the steps, "late" the last third.
struct Times {
  double early_ns = 0, late_ns = 0;
  int64_t early = 0, late = 0;
  std::map<size_t, OneStep> by_step = {};  // early steps only
  // The mean time of a call in the fastest early step.
  double least_ns() const {
    double least = early_ns / static_cast<double>(early);
    for (const auto& [step, one] : by_step) {
      least = std::min(least, one.ns / static_cast<double>(one.calls));
    }
    return least;
  }
};

struct Drift {
  double share = 0;  // late / early - 1, over all equal kernels
  // Time per step lost in the last third, compared with the fastest early step.
  // The rest of the run is assumed to be like the last third.
  double ns_per_step = 0;
};

Drift KernelDrift(const AnalysisContext& m) {
  const std::vector<size_t>& steady = m.steps.steady;
  const size_t third = std::max<size_t>(1, steady.size() / 3);
  std::map<Shape, Times> shapes;
  ByName is_collective(m.trace, &IsCollectiveKernel);
  for (const Kernel& kernel : m.trace.kernels()) {
    // Leave out collectives, because they wait for other ranks at any clock
    // rate.
    if (kernel.device != m.ledger->device || is_collective(kernel.name)) {
      continue;
    }
    const auto window = std::ranges::upper_bound(
        m.steps.windows, kernel.begin_ns, {},
        [](const StepWindow& w) { return w.tiled.end_ns; });
    if (window == m.steps.windows.end()) continue;
    const auto at = std::ranges::find(
        steady, static_cast<size_t>(window - m.steps.windows.begin()));
    if (at == steady.end()) continue;
    const auto position = static_cast<size_t>(at - steady.begin());
    Times& times = shapes[{kernel.name, kernel.grid, kernel.block}];
    const double ns = static_cast<double>(kernel.end_ns - kernel.begin_ns);
    if (position < third) {
      times.early_ns += ns;
      ++times.early;
      OneStep& first = times.by_step[position];
      first.ns += ns;
      ++first.calls;
    } else if (position >= steady.size() - third) {
      times.late_ns += ns;
      ++times.late;
    }
  }
  double early = 0, late = 0, lost = 0;
  for (const auto& [shape, times] : shapes) {
    if (times.early == 0 || times.late == 0) continue;
    const double mean = times.early_ns / times.early;
    early += mean * times.late;
    late += times.late_ns;
    lost += times.late_ns - times.least_ns() * static_cast<double>(times.late);
  }
  if (early <= 0) return {};
  return {late / early - 1, std::max(0.0, lost / static_cast<double>(third))};
}

Verdict CheckThrottle(const AnalysisContext& m) {
  int64_t known = 0, power = 0, hardware = 0, heat = 0, throttled = 0;
  int32_t least_mhz = INT32_MAX, most_mhz = -1;
  for (const DeviceSample& sample : m.trace.device_samples()) {
    if (sample.device != m.ledger->device) continue;
    if (sample.sm_clock_mhz > 0) {
      least_mhz = std::min(least_mhz, sample.sm_clock_mhz);
      most_mhz = std::max(most_mhz, sample.sm_clock_mhz);
    }
    if (sample.throttle_reasons < 0) continue;
    ++known;
    power += (sample.throttle_reasons & kPowerCap) != 0;
    hardware += (sample.throttle_reasons & kHardwareSlowdown) != 0;
    heat += (sample.throttle_reasons & kHeat) != 0;
    throttled += (sample.throttle_reasons &
                  (kPowerCap | kHardwareSlowdown | kHeat)) != 0;
  }
  if (known == 0) {
    return Skip("no throttle reasons were recorded");
  }
  if (m.steps.steady.size() < kStepsForDrift) {
    return Skip("there are too few steady steps to see kernels slow down");
  }
  if (throttled < kThrottledShare * known) return Clean();
  const Drift drift = KernelDrift(m);
  if (drift.share < kDrift) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "The device limits its clocks in " + std::to_string(throttled) + " of " +
      Count(known, "sample") + " (power cap in " + std::to_string(power) +
      ", hardware slowdown in " + std::to_string(hardware) +
      (heat > 0 ? ", heat in " + std::to_string(heat) : "") + ")" +
      (most_mhz > 0 ? ", from " + std::to_string(most_mhz) + " MHz down to " +
                          std::to_string(least_mhz) + " MHz"
                    : std::string()) +
      ". The same kernels take " + Percent(drift.share) +
      " longer in the last third of the steps than in the first.";
  finding.assumption =
      "at best, kernels stay as fast as in the fastest early step; the rest of "
      "the run is like the last third of the steps";
  finding.fix_cpp = finding.fix_python =
      "improve the cooling, raise the power limit (nvidia-smi -pl), or set "
      "application clocks that the device can hold (nvidia-smi -ac); compare "
      "with other ranks";
  finding.wrong_if = "the kernels' inputs changed while their shapes did not";
  // Throttling itself makes the steps vary, so their noise must not suppress
  // the finding.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = drift.ns_per_step,
                    .regardless = true});
}

// Files of torch.profiler have no delays of the scheduler. But where threads
// have no core, an op that runs on several of them waits for the slowest one,
// and then takes many times as long as one core would.
Verdict CheckStalledOps(const AnalysisContext& m) {
  const StalledOps stalled = FindStalledOps(m);
  if (stalled.ns < kStalledShare * m.step_ns()) return Clean();
  const bool has_cores = m.contention.delay_ns >= 0;
  const double one_core_ns = stalled.whole_ns - stalled.ns;
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "Simple ops and matrix products take " +
                     Milliseconds(stalled.whole_ns * 1e-6) + " of the " +
                     Milliseconds(m.step_ns() * 1e-6) +
                     " step, of which one core, however old, needs at most " +
                     Milliseconds(one_core_ns * 1e-6) + ": " + stalled.longest +
                     " takes " + Milliseconds(stalled.longest_ns * 1e-6) +
                     " a call.";
  finding.assumption =
      "at best: these ops take as long as on one slow core; free cores need "
      "less";
  const std::string flush =
      "numbers below 1e-38 (denormal ones) take a core many times as long: ";
  const std::string cpp_flush = flush +
                                "at::globalContext().setFlushDenormal(true) "
                                "rounds them to 0";
  const std::string python_flush =
      flush + "torch.set_flush_denormal(True) rounds them to 0";
  const std::string others =
      "; if other programs use the cores (top), move them or this run "
      "elsewhere; else, ";
  if (has_cores) {
    finding.evidence += " The threads did not wait for cores.";
    finding.fix_cpp = cpp_flush;
    finding.fix_python = python_flush;
  } else {
    finding.evidence +=
        " On several threads, an op waits for the slowest one, which often has "
        "no core.";
    finding.fix_cpp =
        "use no more threads than there are usable cores for this process: "
        "at::set_num_threads(N), or OMP_NUM_THREADS=N" +
        others + cpp_flush;
    finding.fix_python =
        "use no more threads than len(os.sched_getaffinity(0)), divided by the "
        "processes that share them: torch.set_num_threads(N), or "
        "OMP_NUM_THREADS=N" +
        others + python_flush;
  }
  finding.wrong_if = "the process runs under an emulator or a debugging tool";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = stalled.ns,
                    .regardless = true});
}

constexpr char kIncluded[] =
    " The other times in this report include the waits.";

void DescribeOthers(const Contention& found, Finding& finding) {
  finding.evidence += "The run itself has only " +
                      Count(found.own_threads, "thread") + " for " +
                      Count(found.cores, "core") +
                      ", so other programs use them." + kIncluded;
  const std::string who =
      "find the programs that use the cores (top, ps -eo pcpu,comm "
      "--sort=-pcpu), and move them or this run elsewhere; taskset keeps them "
      "apart. If both must share the cores, use fewer threads: ";
  const std::string why =
      ", because an op that runs on several threads waits for the slowest of "
      "them";
  finding.fix_cpp = who + "at::set_num_threads(N)" + why;
  finding.fix_python = who + "torch.set_num_threads(N)" + why;
  finding.wrong_if =
      "the run has threads besides its intra-op threads and loader workers "
      "that compute";
}

// Ops and loader have a core per thread, but the run keeps more cores busy.
void DescribeFurtherThreads(const Contention& found, Finding& finding) {
  finding.evidence +=
      "The run keeps " + Number(found.busy_cores) + " of " +
      Count(found.cores, "core") +
      " busy. Intra-op threads and loader workers "
      "are no more than the cores (" +
      std::to_string(found.own_threads) +
      "), so further threads of the program compute beside them." + kIncluded;
  const std::string which =
      "find out which threads compute (top -H -p PID), and let them do less or "
      "start later; ";
  finding.fix_cpp = which +
                    "if they must run, leave cores to them: "
                    "at::set_num_threads(N)";
  finding.fix_python =
      which +
      "py-spy dump --pid PID shows what Python threads do; if they must run, "
      "leave cores to them: torch.set_num_threads(N)";
  finding.wrong_if =
      "the process may use less CPU time than its cores could give (a quota)";
}

Verdict CheckContention(const AnalysisContext& m) {
  const Contention& found = m.contention;
  if (!found.is_large && !m.has_gpu && m.trace.watched(Kind::kOpShapes)) {
    return CheckStalledOps(m);
  }
  if (found.delay_ns < 0) {
    return Skip("the scheduler's delays were not recorded");
  }
  if (!found.is_large) return Clean();
  if (found.own_threads < 0 || found.cores <= 0) {
    return Skip("the number of usable cores or of threads was not recorded");
  }
  // If ops and loader have too many threads, cpu-oversubscription reports it.
  if (!found.by_others && !found.by_further_threads) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "The training thread is ready to run but has no core for " +
      Milliseconds(found.delay_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step (" +
      Percent(found.delay_ns / m.step_ns()) + ")" +
      (found.switches < 0 ? ""
                          : ", and loses its core " + Number(found.switches) +
                                " times a step") +
      ". ";
  finding.assumption = "at best: the training thread always has a core";
  if (found.by_others) {
    DescribeOthers(found, finding);
  } else {
    DescribeFurtherThreads(found, finding);
  }
  // Contention causes noise, so the noise must not suppress the finding.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = found.delay_ns,
                    .regardless = true});
}

constexpr Rule kRules[] = {
    {.id = "contended-cores",
     .question = "Do its threads have the cores that they need?",
     .needs = {},
     .causes = {Cause::kContended, Cause::kCompute},
     .check = &CheckContention,
     .reference = "Linux, Documentation/scheduler/sched-stats.rst",
     .detect =
         "the training thread waits for a core for 5 % of the step, although "
         "the intra-op threads of all ranks and the loader workers are no more "
         "than the usable cores: other programs use the cores or, if the run "
         "leaves them too little time for that, further threads of the "
         "program. "
         "Then no other finding counts as proven. On a "
         "CPU-only run also: simple ops and matrix products take 10 % of the "
         "step longer than a core with 0.5 GB/s and 2 GFLOP/s would",
     .avoid = "the run's own threads exceed its cores (cpu-oversubscription); "
              "without sizes of tensors, how fast ops are is not known",
     .fix_cpp = "keep other programs off the cores, or use fewer threads",
     .fix_python = "keep other programs off the cores, or use fewer threads"},
    {.id = "clock-throttle",
     .question = "Does the device reduce its clocks because of power or heat?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kDeviceSample, Kind::kKernel},
     .causes = {Cause::kCompute},
     .check = &CheckThrottle,
     .reference = "NVML API reference: nvmlClocksEventReasons",
     .detect = "10 % of the samples show a power cap, heat or hardware "
               "slowdown, and kernels of equal name, grid and block are at "
               "least 3 % slower "
               "in the last third of the steps than in the first",
     .avoid = "clocks are low only because the device is idle",
     .fix_cpp = "improve cooling, raise the power limit, or set application "
                "clocks",
     .fix_python = "improve cooling, raise the power limit, or set application "
                   "clocks"}};

}  // namespace
}  // namespace clocks_rules

extern const std::span<const Rule> kClocks = clocks_rules::kRules;

}  // namespace stepscope
