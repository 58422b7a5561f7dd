// Can the numbers be trusted? These rules claim no gain. They withdraw or
// qualify the gains of the other rules.
// Sources: pytorch PR 192094 and kineto PR 1545 (records lost or left over);
// "17 tips", number 13 (profilers slow training down); the ResNet-18 case study
// (a longer warm-up).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/backlog.h"
#include "device/whole_recording.h"
#include "evidence/missing_rows.h"
#include "evidence/recording_load.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace data_quality_rules {
namespace {

constexpr double kBadTimes = 0.001;  // of the records
constexpr double kUnmatched = 0.01;  // of the GPU's activities
// An estimated cost may be twice too large. It is reported only if half of it
// would still matter.
constexpr double kDistortedByEstimate = 0.10;
constexpr double kDistorted = 0.05, kVeryDistorted = 0.15;
constexpr size_t kWaitsToLeaveOneOut = 4;
constexpr double kOverheadOffline = 0.03;
// One-off work is warned of from this share of a lone step on, as it is from
// this share of what makes one step longer than the others (steps.cc).
constexpr double kOneOffShare = 0.3;
// The most that recording an event costs, with shapes, memory and stacks on. On
// a shared machine, steps may differ by far more for other reasons.
constexpr double kMostNsPerEvent = 3'000;
// What recording an event takes on many machines: torch.profiler added 1.9 to 5
// us per op or call (tests/bench/torch_profiler_cost.py, and 14 programs on an
// H200). It is told if it may take this share of the host's time and cannot be
// estimated from the recording.
constexpr double kNsPerOpOffline = 4'000;
constexpr double kDenseShare = 0.5;
constexpr char kBothActivities[] =
    "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])";

Finding StatusFinding(FindingStatus status, Confidence confidence) {
  Finding finding;
  finding.status = status;
  finding.confidence = confidence;
  return finding;
}

// Returns how many rows end before they begin. Adds the number of all rows to
// `rows`.
int64_t BadTimes(const Trace& trace, int64_t& rows) {
  int64_t bad = 0;
  const auto count = [&](const auto& table) {
    for (const auto& row : table) bad += row.end_ns < row.begin_ns;
    rows += static_cast<int64_t>(table.size());
  };
  count(trace.ops());
  count(trace.runtime_calls());
  count(trace.kernels());
  count(trace.copies());
  count(trace.memsets());
  return bad;
}

// Names what makes recording cheaper: turning off the options that are on, or
// else `other`.
std::string RecordLess(const AnalysisContext& m, const std::string& other) {
  std::vector<std::string> on;
  if (!m.trace.python_frames().empty()) on.push_back("with_stack");
  if (!m.trace.allocations().empty()) on.push_back("profile_memory");
  std::string text =
      on.empty() ? other : "turn " + ListedWithAnd(on) + " off, or " + other;
  if (m.trace.watched(Kind::kOpShapes)) {
    text +=
        "; record_shapes costs time, too, but without it rules about sizes "
        "say nothing";
  }
  return text;
}

// What a recording lacks, and the change that mends the first of it. The first
// call of Mend() counts.
struct Lack {
  std::string errors, warnings;
  std::string fix_cpp, fix_python;

  void Add(bool is_error, const std::string& text) {
    std::string& list = is_error ? errors : warnings;
    list += (list.empty() ? "" : " ") + text;
  }
  void Mend(std::string cpp, std::string python) {
    if (!fix_cpp.empty() || !fix_python.empty()) return;
    fix_cpp = std::move(cpp);
    fix_python = std::move(python);
  }
  void Mend(const std::string& both) { Mend(both, both); }
};

// True if the file ends before the recording does.
bool IsCut(const Trace& trace) {
  return std::ranges::any_of(trace.losses(), [](const Loss& loss) {
    return loss.name == "truncated-file" || loss.name == "damaged-file";
  });
}

void AddLosses(const Trace& trace, Lack& lack) {
  for (const Loss& loss : trace.losses()) {
    if (CollectorDidNotRun(loss) || loss.severity == Severity::kNote) continue;
    const bool dropped = loss.name == "buffer-full";
    lack.Add(loss.severity == Severity::kError || dropped, LossInWords(loss));
    if (dropped) {
      lack.Mend(
          "raise max_buffer_bytes, record fewer active steps, or turn shapes "
          "and memory off");
    }
    if (loss.name == "wrong-checksum") {
      lack.Mend("copy the file again, or record it again");
    }
  }
  if (IsCut(trace)) lack.Mend("copy the file again, or record it again");
  int64_t rows = 0;
  const int64_t bad = BadTimes(trace, rows);
  if (bad > kBadTimes * rows) {
    lack.Add(true, Count(bad, "record") + " of " + std::to_string(rows) +
                       " have impossible times.");
    lack.Mend("record again, with a newer profiler");
  }
}

// Work that was launched before the recording began has no recorded launch.
void AddUnmatched(const AnalysisContext& m, Lack& lack) {
  int64_t unmatched = m.ledger ? m.ledger->unmatched : 0;
  if (unmatched > 0) {
    unmatched -= ActivitiesLaunchedBefore(m.trace, m.ledger->device,
                                          m.steps.windows.front().host.end_ns);
  }
  if (!m.ledger || unmatched <= kUnmatched * m.ledger->activities) return;
  lack.Add(false,
           std::to_string(unmatched) + " of " +
               Count(m.ledger->activities, "GPU activity", "GPU activities") +
               " have no recorded launch, so the cause of idle time "
               "before them is unknown.");
}

// True if a call gives the GPU work. Other calls may only query its properties.
bool GivesWork(const Trace& trace, const RuntimeCall& call) {
  const std::string_view name = trace.name(call.name);
  return std::ranges::any_of(
      std::array<std::string_view, 3>{"Launch", "Memcpy", "Memset"},
      [&](std::string_view word) {
        return name.find(word) != std::string_view::npos;
      });
}

// True if the profiled region did nothing.
bool IsIdle(const AnalysisContext& m) {
  return !m.has_gpu && m.trace.ops().empty() && m.trace.ranges().empty() &&
         !m.trace.runtime_calls().empty() &&
         std::ranges::none_of(
             m.trace.runtime_calls(),
             [&](const RuntimeCall& call) { return GivesWork(m.trace, call); });
}

// Activities of the device that should be there.
void AddDevice(const AnalysisContext& m, Lack& lack) {
  const Trace& trace = m.trace;
  const bool is_torch = trace.run().producer.starts_with("torch");
  const std::string accelerator = UnseenAccelerator(trace);
  if (!accelerator.empty()) {
    lack.Add(true, "The program computes on another device (" + accelerator +
                       "), whose work is not in the trace, so computing time "
                       "here is host time only.");
    lack.Mend("record the device with the profiler of its vendor");
    return;
  }
  if (m.has_gpu) return;
  if (IsIdle(m)) {
    lack.Add(
        false,
        "Nothing ran inside the profiled region: no operator was "
        "recorded, and its " +
            Count(static_cast<int64_t>(trace.runtime_calls().size()), "call") +
            " of the GPU's runtime launched nothing.");
    lack.Mend("run the steps while the profiler records");
    return;
  }
  if (!trace.runtime_calls().empty()) {
    const bool launches = std::ranges::any_of(
        trace.runtime_calls(), [&](const RuntimeCall& call) {
          return trace.name(call.name).find("Launch") != std::string_view::npos;
        });
    lack.Add(
        launches,
        "The host called the GPU (" +
            Count(static_cast<int64_t>(trace.runtime_calls().size()), "call") +
            "), but no GPU activity was recorded.");
    lack.Mend(
        "end other profilers of this GPU; stepscope doctor says whether its "
        "activity can be recorded");
    return;
  }
  const std::string signs = SignsOfGpu(trace);
  if (!signs.empty()) {
    lack.Add(true, "The program uses a GPU (" + signs +
                       "), but neither calls to it nor its activities were "
                       "recorded, so computing time here is host time only.");
    constexpr char kDoctor[] =
        "stepscope doctor says why the GPU's activity cannot be recorded";
    lack.Mend(is_torch ? "" : kDoctor, is_torch ? kBothActivities : kDoctor);
  } else if (!trace.run().devices.empty() && !trace.ops().empty()) {
    lack.Add(false, "The machine has a GPU (" + trace.run().devices[0].name +
                        "), but no call to it was recorded. If the model runs "
                        "on it, computing time here is host time only.");
  }
}

bool LacksOps(const AnalysisContext& m) {
  return m.has_gpu && m.trace.ops().empty() && !m.trace.watched(Kind::kOp) &&
         m.trace.run().producer.starts_with("torch");
}

void AddSteps(const AnalysisContext& m, Lack& lack) {
  if (m.stats.count > 0 || IsIdle(m)) return;
  lack.Add(false, m.steps.is_recording
                      ? std::string(kNoStepMarks) +
                            ", and nothing in it recurs like a step: the whole "
                            "recording counts as one, set-up included."
                      : std::string(kNoStepMarks) +
                            ", so nothing can be reported per step.");
  if (const StartUp start = MeasureStartUp(m.trace, m.steps.thread);
      start.ns > 0 && start.is_most()) {
    lack.Add(false,
             "Starting up takes " +
                 Milliseconds(static_cast<double>(start.ns) * 1e-6) + " of " +
                 Milliseconds(static_cast<double>(start.of_ns) * 1e-6) +
                 ": creating the device's context, loading kernels and "
                 "libraries, and getting memory, which no later step does "
                 "again. Record steps after the first ones.");
  }
  // The profilers of JAX and TensorFlow write XSpaces without a producer.
  if (m.trace.run().producer == "XSpace") {
    lack.Mend("",
              "with jax.profiler.StepTraceAnnotation(\"train\", step_num=i): "
              "around each iteration; in TensorFlow "
              "tf.profiler.experimental.Trace(\"train\", step_num=i, _r=1)");
  } else {
    lack.Mend("call profile.Step() once per iteration",
              "call prof.step() once per iteration");
  }
}

// Of a file that is cut off: what seems to be missing may only come later in
// it.
void AddWhatMayFollow(const AnalysisContext& m, Lack& lack) {
  std::vector<std::string> parts;
  if (LacksOps(m)) parts.emplace_back("operators");
  if (!m.has_gpu &&
      (!m.trace.runtime_calls().empty() || !SignsOfGpu(m.trace).empty() ||
       !UnseenAccelerator(m.trace).empty())) {
    parts.emplace_back("the GPU's activities");
  }
  if (m.stats.count == 0) parts.emplace_back("step marks");
  if (parts.empty()) return;
  std::string text = ListedWithAnd(parts);
  lack.Add(true, Capitalised(text) + " may come later in the file.");
}

Verdict CheckCaptureIncomplete(const AnalysisContext& m) {
  Lack lack;
  AddLosses(m.trace, lack);
  AddUnmatched(m, lack);
  if (IsCut(m.trace)) {
    AddWhatMayFollow(m, lack);
  } else {
    AddDevice(m, lack);
    if (LacksOps(m)) {
      lack.Add(false,
               "No operators were recorded, so what the host does between "
               "launches is unknown, and rules about the program are skipped. "
               "Record the CPU's activity as well.");
      lack.Mend("", kBothActivities);
    }
    AddSteps(m, lack);
  }
  if (lack.errors.empty() && lack.warnings.empty()) return Clean();
  Finding finding = StatusFinding(
      lack.errors.empty() ? FindingStatus::kWarning : FindingStatus::kError,
      Confidence::kProven);
  finding.evidence = lack.errors +
                     (lack.errors.empty() || lack.warnings.empty() ? "" : " ") +
                     lack.warnings;
  if (!lack.errors.empty()) {
    finding.evidence += " No gains are claimed from this recording.";
  }
  finding.fix_cpp = std::move(lack.fix_cpp);
  finding.fix_python = std::move(lack.fix_python);
  return Fire(std::move(finding));
}

Verdict CheckObserverLive(const AnalysisContext& m) {
  const std::vector<int64_t>& recorded = m.trace.run().wait_step_ns;
  const std::optional<WaitedSteps> steps = CompareWithWaitSteps(m);
  if (!steps) return Clean();
  const auto [active, wait, delay] = *steps;
  double distortion = (active - delay) / wait - 1;
  if (!m.has_gpu) {
    const RecordingLoad load = MeasureRecordingLoad(m);
    const double events = (load.events + load.allocations) /
                          static_cast<double>(m.steps.windows.size());
    distortion = std::min(distortion, events * kMostNsPerEvent / wait);
  }
  // The medians of noisy steps differ by chance. If there are enough wait
  // steps, a single slow one must not count as noise.
  std::vector<double> strays;
  strays.reserve(recorded.size());
  for (int64_t ns : recorded) {
    strays.push_back(std::abs(static_cast<double>(ns) / wait - 1));
  }
  std::ranges::sort(strays);
  if (strays.size() >= kWaitsToLeaveOneOut) strays.pop_back();
  const double noise = std::max(strays.back(), m.stats.cov) * 2 /
                       std::sqrt(static_cast<double>(std::min<size_t>(
                           recorded.size(), m.steps.steady.size())));
  if (distortion <= kDistorted + noise) return Clean();
  double sum = 0;
  for (const auto& split : m.splits) sum += split[Cause::kProfiler];
  const double profiler_ns = m.splits.empty() ? 0 : sum / m.splits.size();
  Finding finding = StatusFinding(distortion > kVeryDistorted + noise
                                      ? FindingStatus::kError
                                      : FindingStatus::kWarning,
                                  Confidence::kProven);
  finding.evidence = "Recorded steps took " + Milliseconds(active * 1e-6) +
                     ", " + Percent(active / wait - 1) + " longer than the " +
                     Milliseconds(wait * 1e-6) +
                     " of the steps before them, with recording off.";
  if (delay > 0) {
    finding.evidence += " For " + Milliseconds(delay * 1e-6) +
                        " of that, other threads occupied the training "
                        "thread's core.";
  }
  if (profiler_ns > 0) {
    finding.evidence += " Recording ops accounts for " +
                        Milliseconds(profiler_ns * 1e-6) +
                        " of the recorded step.";
  }
  finding.fix_cpp = finding.fix_python = RecordLess(m, "record with stepscope");
  finding.wrong_if =
      "something else slowed the machine down during the recorded steps";
  return Fire(std::move(finding));
}

// For a recorder that did not time steps without recording. The cost is
// estimated from the recording. On a run with a GPU, the cost is the time in
// which the GPU is idle because the host records.
Verdict CheckObserverEstimate(const AnalysisContext& m) {
  const double without = m.stats.unprofiled_ms;
  const double cost = m.stats.mean_ms - without;
  if (without <= 0 || cost <= kDistortedByEstimate * without) return Clean();
  // Only on a CPU-only run does the replay take the cost out of the step.
  const bool distrusted = !m.has_gpu && IsTooDistorted(m.stats);
  Finding finding = StatusFinding(
      distrusted ? FindingStatus::kError : FindingStatus::kWarning,
      Confidence::kHint);
  const RecordingLoad load = MeasureRecordingLoad(m);
  const auto steps = static_cast<double>(m.steps.windows.size());
  finding.evidence =
      "Recording " + Count(std::llround(load.events / steps), "event") +
      (m.has_gpu ? " per step keeps the GPU waiting for about "
                 : " per step takes about ") +
      Milliseconds(cost) + " of " + Milliseconds(m.stats.mean_ms) +
      ", so the step takes about " + Milliseconds(without) +
      " without the profiler. This is estimated from the shortest times "
      "between ops, to within a factor of 2." +
      (distrusted ? " No gain is predicted from a recording that distorts the "
                    "step so much; gains are upper bounds."
                  : "");
  finding.fix_cpp = finding.fix_python = RecordLess(m, "record with stepscope");
  finding.wrong_if = "the step takes as long without the profiler";
  return Fire(std::move(finding));
}

Verdict CheckObserverEffect(const AnalysisContext& m) {
  if (HasWaitSteps(m)) return CheckObserverLive(m);
  if (m.recorder.op_ns > 0 && !m.has_gpu) return CheckObserverEstimate(m);
  if (m.recorder.estimated) {
    Verdict slowed = CheckObserverEstimate(m);
    if (!slowed.found.empty()) return slowed;
  }
  const double step = m.step_ns();
  const RecordingLoad load = MeasureRecordingLoad(m);
  const double overhead = load.overhead_ns;
  const bool dense =
      // If the device sets the pace, recording on the host delays nothing.
      load.host_sets_pace &&
      load.events * kNsPerOpOffline >
          (m.recorder.estimated ? 1 : kDenseShare) * load.host_ns;
  if (overhead <= kOverheadOffline * step && !dense) return Clean();
  Finding finding = StatusFinding(FindingStatus::kWarning, Confidence::kHint);
  finding.evidence =
      dense ? "The profiler recorded one event per " +
                  Number(load.host_ns / std::max(load.events, 1.0) * 1e-3) +
                  " us of host time. Recording one takes 2 to 5 us on many "
                  "machines, so the unprofiled step is likely shorter, and "
                  "calling fewer ops gains less than predicted here."
            : "The overhead of the profiler and the driver is " +
                  Milliseconds(overhead * 1e-6) + " per step (" +
                  Percent(overhead / step) + ").";
  finding.fix_cpp =
      "turn shapes, stacks and Python frames off, or record fewer active "
      "steps";
  finding.fix_python = finding.fix_cpp;
  return Fire(std::move(finding));
}

// True if there is only one step, which no other shows to be slow, and much of
// it happens once.
bool IsOnlyWarmUp(const AnalysisContext& m) {
  if (m.steps.windows.size() != 1) return false;
  const StepWindow& step = m.steps.windows.front();
  return static_cast<double>(step.one_off_ns) >=
         kOneOffShare * static_cast<double>(step.tiled.length());
}

Verdict CheckWarmup(const AnalysisContext& m) {
  Finding finding = StatusFinding(FindingStatus::kWarning, Confidence::kStrong);
  finding.fix_cpp = "use a schedule with warmup >= 3";
  finding.fix_python = "use schedule(warmup=3, ...)";
  if (IsOnlyWarmUp(m)) {
    const double ns = static_cast<double>(m.steps.windows.front().one_off_ns);
    finding.evidence = "The only step spends " + Milliseconds(ns * 1e-6) +
                       " of its " + Milliseconds(m.stats.mean_ms) +
                       " on what happens once: loading kernels, compiling or "
                       "first allocations. It does not show a usual step.";
    return Fire(std::move(finding));
  }
  std::string steps;
  double total = 0;
  for (const StepWindow& step : m.steps.windows) {
    total += static_cast<double>(step.tiled.length());
    if (step.kind != StepKind::kWarmUp) continue;
    steps += (steps.empty() ? "" : ", ") + std::to_string(step.number);
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {step.number, step.host.begin_ns, step.host.end_ns,
           "one-off loading or allocation (" +
               Milliseconds(step.one_off_ns * 1e-6) + ")"});
    }
  }
  if (steps.empty()) return Clean();
  const bool one = finding.examples.size() == 1;
  const std::string them = one ? "it" : "them";
  finding.evidence =
      (one ? "Step " + steps + " was" : "Steps " + steps + " were") +
      " still warming up (loading kernels, first allocations). The mean step "
      "is " +
      Milliseconds(m.stats.mean_ms) + " without " + them + " and " +
      Milliseconds(total * 1e-6 / m.steps.windows.size()) + " with " + them +
      "; the report leaves " + them + " out.";
  return Fire(std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "capture-incomplete",
     .question = "Is anything missing from the recording?",
     .needs_steps = false,
     .needs = {},
     .causes = {},
     .check = &CheckCaptureIncomplete,
     .reference = "stepscope: reports begin with what the recording lost",
     .detect = "records were dropped or more than 0.1 % of them have "
               "impossible times (an error), or more than 1 % of the GPU's "
               "activities have no launch or launches have no activity (a "
               "warning)",
     .avoid = "the activities are kernels of a CUDA graph, which share one "
              "launch, or the end of the window cut them off",
     .fix_cpp = "raise max_buffer_bytes, record fewer kinds of events, or "
                "record fewer active steps",
     .fix_python = "record fewer active steps and no stacks, and call "
                   "prof.step() in every iteration"},
    {.id = "observer-effect",
     .question = "Did recording slow the steps down?",
     .needs = {},
     .causes = {Cause::kProfiler},
     .check = &CheckObserverEffect,
     .reference = "17 tips for faster training, 13: turn debugging and "
                  "profiling off",
     .detect = "recorded steps are more than 5 % longer than the wait steps "
               "before them, which were timed with recording off (an error "
               "beyond 15 %). In files of torch.profiler: what recording costs "
               "makes the step 10 % longer, estimated from the shortest times "
               "between ops (an error, and no gain is predicted, if it doubles "
               "the step of a CPU-only run). In other files, and in all runs "
               "with a GPU: the profiler's own records exceed 3 % of the step, "
               "or a host-bound run has an op or call in every 8 us",
     .avoid =
         "the wait steps are still warming up, or a CPU-only run slowed down "
         "by more than recording can cost (3 us per event); time in which "
         "other threads had the training thread's core does not count",
     .fix_cpp = "record without shapes, stacks and memory",
     .fix_python = "set record_shapes=False, with_stack=False and "
                   "profile_memory=False, or record with stepscope"},
    {.id = "warmup-in-window",
     .question = "Were some recorded steps still warming up?",
     .needs = {},
     .causes = {},
     .check = &CheckWarmup,
     .reference = "PyTorch Performance Features and How They Interact: first "
                  "runs",
     .detect = "a step takes 1.2 times the median of the others, and loading, "
               "compiling or first allocations explain 30 % of the excess; or "
               "they are 30 % of the only step. The first launch of a kernel "
               "counts as loading if it takes 1 ms beside an idle GPU",
     .avoid = "nothing explains why the step is slow: it counts as an outlier",
     .fix_cpp = "use a schedule with 3 warm-up steps or more",
     .fix_python = "use schedule(wait=3, warmup=3, active=3)"}};

}  // namespace
}  // namespace data_quality_rules

extern const std::span<const Rule> kDataQuality = data_quality_rules::kRules;

}  // namespace stepscope
