// Do single steps stand still to log or to save the model?
// Sources: PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU
// synchronization"; "Optimization and Performance Tuning with PyTorch", section
// 19.5 (logging and checkpoints). A slow step is one of 1.2 times the median,
// as for warm-up.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kSlowStep = 1.2;
constexpr double kMostOfTheStall = 0.5;
constexpr int64_t kLargeCopyBytes = 16 << 20;
constexpr int64_t kWrittenBytes = 1 << 20;
constexpr double kUnusual = 10;  // times the median step

// The bytes of all parameters; 0 if shapes were not recorded.
int64_t ParameterBytes(const Measured& m) {
  if (m.steps.steady.empty()) return 0;
  const Span& step = m.steps.windows[m.steps.steady.front()].host;
  int64_t bytes = 0;
  for (const Op& op : m.trace.ops()) {
    if (op.begin_ns < step.begin_ns || op.begin_ns >= step.end_ns ||
        op.inputs == kNone ||
        m.trace.name(op.name) != "torch::autograd::AccumulateGrad") {
      continue;
    }
    const std::vector<Argument>& arguments =
        m.trace.op_inputs()[op.inputs].arguments;
    if (arguments.empty()) continue;
    int64_t elements = 1;
    for (int64_t size : arguments[0].dims) elements *= size;
    const std::string_view type = m.trace.name(arguments[0].type);
    bytes += elements * (type == "double"                                 ? 8
                         : type == "c10::Half" || type == "c10::BFloat16" ? 2
                                                                          : 4);
  }
  return bytes;
}

// "save_checkpoint", "log metrics"; not "catalog" or "dialog".
bool NamesLogging(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const char* word : {"checkpoint", "save", "logging", "log",
                           "tensorboard", "summary", "state_dict"}) {
    const std::string_view text = lower;
    const size_t length = std::string_view(word).size();
    for (size_t at = text.find(word); at != std::string_view::npos;
         at = text.find(word, at + 1)) {
      const bool begins =
          at == 0 || !std::isalpha(static_cast<unsigned char>(text[at - 1]));
      const bool ends =
          at + length == text.size() ||
          !std::isalpha(static_cast<unsigned char>(text[at + length]));
      if (begins && ends) return true;
    }
  }
  return false;
}

// What each step did that could stall it.
struct StepFacts {
  int64_t to_host_bytes = 0;
  int64_t written_bytes = 0;
  int64_t logging_ns = 0;  // in ranges that say so
  int64_t gc_ns = 0;
  std::string logging;  // the longest such range
};

size_t StepAt(const Measured& m, int64_t time_ns) {
  const auto after = std::ranges::upper_bound(
      m.steps.windows, time_ns, {},
      [](const StepWindow& step) { return step.host.begin_ns; });
  if (after == m.steps.windows.begin()) return SIZE_MAX;
  const size_t step = static_cast<size_t>(after - m.steps.windows.begin()) - 1;
  return time_ns < m.steps.windows[step].host.end_ns ? step : SIZE_MAX;
}

std::vector<StepFacts> FactsOf(const Measured& m) {
  std::vector<StepFacts> facts(m.steps.windows.size());
  for (const Copy& copy : m.trace.copies()) {
    const bool to_host = copy.destination == MemoryKind::kPageable ||
                         copy.destination == MemoryKind::kPinned ||
                         copy.destination == MemoryKind::kHost;
    if (!to_host || copy.bytes <= 0) continue;
    const size_t step = StepAt(
        m, copy.call == kNone ? copy.begin_ns
                              : m.trace.runtime_calls()[copy.call].begin_ns);
    if (step != SIZE_MAX) facts[step].to_host_bytes += copy.bytes;
  }
  std::map<int64_t, size_t> by_number;
  for (size_t i = 0; i < m.steps.windows.size(); ++i) {
    by_number[m.steps.windows[i].number] = i;
  }
  for (const HostUsage& usage : m.trace.host_usage()) {
    const auto step = by_number.find(usage.step);
    if (step != by_number.end()) {
      facts[step->second].written_bytes +=
          std::max<int64_t>(usage.write_bytes, 0);
    }
  }
  for (const Range& range : m.trace.ranges()) {
    if (range.thread != m.steps.thread) continue;
    const size_t step = StepAt(m, range.begin_ns);
    if (step == SIZE_MAX) continue;
    const std::string_view name = m.trace.name(range.name);
    const int64_t length = range.end_ns - range.begin_ns;
    if (name == "Python GC") facts[step].gc_ns += length;
    const bool users = range.kind == RangeKind::kUser ||
                       range.kind == RangeKind::kPhase ||
                       range.kind == RangeKind::kNvtx;
    if (users && length > facts[step].logging_ns && NamesLogging(name)) {
      facts[step].logging_ns = length;
      facts[step].logging = name;
    }
  }
  return facts;
}

template <typename Value>
double MedianOf(const std::vector<StepFacts>& facts, Value value) {
  std::vector<double> values;
  for (const StepFacts& step : facts) {
    values.push_back(static_cast<double>(value(step)));
  }
  return Median(std::move(values));
}

Verdict CheckCheckpointing(const Measured& m) {
  const double median = m.stats.median_ms * 1e6;
  const std::vector<StepFacts> facts = FactsOf(m);
  const double usual_copied =
      MedianOf(facts, [](const StepFacts& s) { return s.to_host_bytes; });
  const double usual_written =
      MedianOf(facts, [](const StepFacts& s) { return s.written_bytes; });
  std::vector<double> loading;
  for (const CauseTimes& split : m.splits) {
    loading.push_back(static_cast<double>(split[Cause::kData]));
  }
  const double usual_loading = Median(loading);
  const int64_t parameters = ParameterBytes(m);

  Finding finding;
  double stalled = 0, counted = 0;
  int64_t copied = 0, written = 0, stalls = 0;
  bool all_parameters = false;
  for (size_t i = 0; i < facts.size(); ++i) {
    const StepWindow& step = m.steps.windows[i];
    if (step.kind == StepKind::kWarmUp) continue;
    ++counted;
    const double excess = static_cast<double>(step.tiled.length()) - median;
    if (excess < (kSlowStep - 1) * median) continue;
    const double own = kMostOfTheStall * excess;
    const StepFacts& fact = facts[i];
    const double copied_here = static_cast<double>(fact.to_host_bytes);
    if (static_cast<double>(fact.gc_ns) >= own ||
        static_cast<double>(m.splits[i][Cause::kData]) - usual_loading >= own) {
      continue;  // gc-pause, or a loader that starts again
    }
    const bool saves_model =
        parameters > 0 &&
        copied_here >= 0.5 * static_cast<double>(parameters) &&
        copied_here >= kUnusual * usual_copied;
    const bool copies = fact.to_host_bytes >= kLargeCopyBytes &&
                        copied_here >= kUnusual * usual_copied;
    const bool writes =
        fact.written_bytes >= kWrittenBytes &&
        static_cast<double>(fact.written_bytes) >= kUnusual * usual_written;
    const bool says_so = static_cast<double>(fact.logging_ns) >= own;
    if (!saves_model && !copies && !writes && !says_so) continue;
    ++stalls;
    stalled += excess;
    copied += fact.to_host_bytes;
    written += fact.written_bytes;
    all_parameters |= saves_model;
    if (finding.where.empty()) finding.where = fact.logging;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {step.number, step.tiled.begin_ns, step.tiled.end_ns,
           fact.logging.empty() ? "a step that copies or writes much"
                                : fact.logging});
    }
  }
  const double per_step = stalled / std::max(counted, 1.0);
  if (stalls == 0 || (stalls < 2 && !all_parameters) ||
      per_step < 0.01 * median || per_step * 1e-6 < 0.1) {
    return Clean();
  }
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Count(stalls, "step") + " of " +
      std::to_string(static_cast<int64_t>(counted)) + " took " +
      Milliseconds(stalled * 1e-6 / static_cast<double>(stalls)) +
      " longer than the usual " + Milliseconds(m.stats.median_ms);
  if (copied > 0) {
    finding.evidence += ", copied " + Bytes(static_cast<double>(copied)) +
                        " to the host" +
                        (all_parameters ? " (the model's parameters)" : "");
  }
  if (written > 0) {
    finding.evidence +=
        ", wrote " + Bytes(static_cast<double>(written)) + " to storage";
  }
  finding.evidence += ".";
  finding.assumption =
      "at best: spread over all recorded steps, nothing of it "
      "is left in the loop";
  finding.fix_cpp =
      "copy to pinned memory on a side stream and write from a thread of your "
      "own; log scalars every N steps";
  finding.fix_python =
      "torch.distributed.checkpoint.async_save, or copy to pinned memory on a "
      "side stream and write from a thread; log scalars every N steps";
  finding.wrong_if = "these steps did something else that takes as long";
  finding.gain_is = GainKind::kBound;
  finding.gain = {per_step * 1e-6, 0, per_step * 1e-6};
  return Fire(std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "logging-checkpoint-stall",
     .question = "Do single steps stall to log or to save the model?",
     .needs = {},
     .check = &CheckCheckpointing,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "19.5: logging and checkpoints",
     .detect = "Steps 1.2 times the median that copy half the parameters or "
               "unusually much to the host, write unusually much, or spend "
               "half of the excess in a range named for it; twice, or once "
               "with the parameters' bytes; 1 % of the step on average.",
     .avoid = "Warm-up, garbage collection, a loader that starts again, one "
              "slow step without such a sign.",
     .fix_cpp = "Copy to pinned memory on a side stream, write from a thread.",
     .fix_python = "torch.distributed.checkpoint.async_save; log every N "
                   "steps."}};

}  // namespace

extern const std::span<const Rule> kStalls = kRules;

}  // namespace stepscope
