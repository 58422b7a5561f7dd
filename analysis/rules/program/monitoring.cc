// Does each step compute statistics of activations that training does not need?
// Source: fastai's ActivationStats and similar hooks, which record the mean,
// deviation and histogram of each layer's output.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/host_spans.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/plain_name.h"
#include "evidence/program/shortened_ops.h"
#include "evidence/program/work_between_steps.h"
#include "evidence/recording_load.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace monitoring_rules {
namespace {

// A loss may weight samples by one histogram, and a model may normalise its
// input by the deviation that it reads. Where sizes do not show what becomes of
// the results, only this many per step are taken for monitoring. Our own
// choice.
constexpr double kFewest = 3;
// The longest pause within the code that computes the statistics of one tensor.
// Longer ones have other reasons. Our own choice.
constexpr int64_t kLongestPauseNs = 500'000;

// Consecutive outermost ops that compute statistics without gradients.
struct Watched {
  size_t step = 0;  // index into Steps::windows
  std::vector<RowId> ops = {};
  int64_t histograms = 0, deviations = 0;
  bool used = false;  // the op behind takes the histogram
  bool read = false;
  bool has_histogram() const { return histograms > 0; }
  int64_t tensors() const { return has_histogram() ? histograms : deviations; }
};

bool IsHistogram(std::string_view op) {
  return IsAnyOf(PlainName(op), {"histc", "histogram", "histogramdd",
                                 "_histogramdd_from_bin_cts"});
}

bool IsSpread(std::string_view op) {
  return IsAnyOf(PlainName(op), {"std", "std_mean", "var", "var_mean"});
}

// True for ops that prepare, compute, combine and read statistics.
bool MayBeOfStatistics(const AnalysisContext& m, RowId row) {
  const std::string_view name = m.trace.name(m.trace.ops()[row].name);
  return m.tree.traits(row).bookkeeping || IsStatistics(name) ||
         IsHistogram(name) ||
         IsAnyOf(PlainName(name),
                 {"_to_copy", "abs", "cat", "clone", "contiguous", "copy",
                  "detach", "div", "eq", "ge", "gt", "item", "le", "lift_fresh",
                  "lt", "ne", "stack", "to"});
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context), judged_(JudgedElsewhere(context)) {
    if (context.parts.optimizer.spans.empty() ||
        context.parts.optimizer.inferred) {
      return;
    }
    for (const OpBetweenSteps& one : FindWorkBetweenSteps(context).ops) {
      between_.insert(one.row);
    }
  }

  std::vector<Watched> Find() {
    for (const ForwardStep& step : m_.forward) {
      for (RowId row : step.ops) Add(row, step.step);
      Close(kNone);
    }
    return std::move(found_);
  }

 private:
  void Add(RowId row, size_t step) {
    const Op& op = m_.trace.ops()[row];
    if (between_.contains(row) || Covers(judged_, op.begin_ns)) {
      return Close(kNone);
    }
    if (!MayBeOfStatistics(m_, row) || !m_.backward.Of(op).empty()) {
      return Close(row);
    }
    if (!open_.ops.empty() &&
        op.begin_ns - m_.trace.ops()[open_.ops.back()].end_ns >
            kLongestPauseNs) {
      Close(kNone);
    }
    const std::string_view name = m_.trace.name(op.name);
    open_.step = step;
    open_.ops.push_back(row);
    if (IsHistogram(name)) {
      ++open_.histograms;
      bins_ = TextArgument(m_.trace, row, 1);
    }
    open_.deviations += IsSpread(name);
    open_.read |= name == "aten::item";
  }

  // `next`: the op behind, kNone if another rule judges it.
  void Close(RowId next) {
    // Views may belong to the model.
    const auto is_view = [&](RowId row) {
      return m_.tree.traits(row).bookkeeping;
    };
    while (!open_.ops.empty() && is_view(open_.ops.back()))
      open_.ops.pop_back();
    open_.ops.erase(open_.ops.begin(),
                    std::ranges::find_if_not(open_.ops, is_view));
    if (open_.has_histogram() || (open_.deviations > 0 && open_.read)) {
      if (next != kNone && open_.has_histogram() && !bins_.empty()) {
        const Dims& first = DimsOf(m_.trace, next, 0);
        open_.used = first.size() == 1 && std::to_string(first[0]) == bins_;
      }
      found_.push_back(std::move(open_));
    }
    open_ = {};
    bins_ = {};
  }

  const AnalysisContext& m_;
  const std::vector<Span> judged_;
  std::set<RowId> between_;
  Watched open_;
  // Of the last histogram in `open_`; empty if not recorded.
  std::string_view bins_;
  std::vector<Watched> found_;
};

// Erases what training may need.
void KeepMonitoring(const AnalysisContext& m, std::vector<Watched>& found) {
  const auto per_step = [&](bool histogram) {
    int64_t tensors = 0;
    for (const Watched& one : found) {
      if (one.has_histogram() == histogram) tensors += one.tensors();
    }
    return static_cast<double>(tensors) /
           static_cast<double>(m.steps.steady.size());
  };
  std::erase_if(found, [](const Watched& one) { return one.used; });
  const bool sized = m.trace.watched(Kind::kOpShapes);
  if (!sized && per_step(/*histogram=*/true) < kFewest) {
    std::erase_if(found,
                  [](const Watched& one) { return one.has_histogram(); });
  }
  if (per_step(/*histogram=*/false) < kFewest) {
    std::erase_if(found,
                  [](const Watched& one) { return !one.has_histogram(); });
  }
}

Verdict CheckActivationStatistics(const AnalysisContext& m) {
  // What a program makes that only infers may be what it is for.
  if (m.steps.thread == kNone || !Trains(m.trace)) return Clean();
  std::vector<Watched> found = Finder(m).Find();
  KeepMonitoring(m, found);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  double ns = 0, events = 0, histograms = 0, tensors = 0;
  std::vector<RowId> rows;
  std::vector<ShortenedOp> shortened;
  const Watched* longest = &found.front();
  const auto span_of = [&](const Watched& one) {
    return Span{m.trace.ops()[one.ops.front()].begin_ns,
                m.trace.ops()[one.ops.back()].end_ns};
  };
  for (const Watched& one : found) {
    const Span span = span_of(one);
    ns += static_cast<double>(span.length());
    events +=
        static_cast<double>(m.tree.of_thread(m.steps.thread, span).size());
    histograms += static_cast<double>(one.histograms);
    tensors += static_cast<double>(one.tensors());
    for (RowId row : one.ops) {
      rows.push_back(row);
      shortened.push_back({row, 0});
    }
    if (span.length() > span_of(*longest).length()) longest = &one;
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  ns /= steps;
  const ShortenedOps removed =
      ShortenOps(m, std::move(shortened), "statistics every N steps");
  const double saved_ns = m.has_gpu ? removed.saved_ns : ns;
  if (saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  Finding finding = FindingAbout(m, longest->ops.front(), longest->ops.back(),
                                 "statistics of one tensor");
  finding.evidence =
      "Outside backward, ops without gradients compute statistics of " +
      MeanCount(tensors / steps, "tensor") + " per step" +
      (histograms > 0 ? ", " + MeanCount(histograms / steps, "histogram")
                      : "") +
      ". With reads and code between, this takes " + Milliseconds(ns * 1e-6) +
      " of the " + Milliseconds(m.step_ns() * 1e-6) +
      " step on the host: " + LongestOps(m, rows) + " per step.";
  finding.assumption = "at best: hardly any step computes them";
  finding.fix_python =
      "compute them every N steps: let the hook return at once in other steps, "
      "or register it only for those (fastai: ActivationStats(every=N)); a "
      "histogram of each layer is rarely needed";
  finding.fix_cpp = "compute them every N steps";
  finding.wrong_if = "the loss or the model uses these values";
  if (m.has_gpu) {
    finding.evidence += " On the GPU their work takes " +
                        Milliseconds(removed.saved_ns * 1e-6) + " per step.";
    return Fire(std::move(finding), removed.edit, saved_ns);
  }
  return FireBound(std::move(finding),
                   LargestUnrecordedNs(m, saved_ns, events / steps));
}

constexpr Rule kRules[] = {
    {.id = "activation-statistics",
     .question = "Does each step compute statistics of activations that "
                 "training does not need?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckActivationStatistics,
     .reference = "fastai documentation, callback.hook, ActivationStats: "
                  "https://docs.fast.ai/callback.hook.html",
     .detect =
         "in two thirds of the steps, ops without autograd nodes compute "
         "histograms outside backward, the optimizer's update and loading "
         "(without sizes: at least 3 per step), or the deviation of at least 3 "
         "tensors and read the results; with reads and code between, they take "
         "1 % of the step",
     .avoid = "the next op takes the histogram, the results have gradients, or "
              "the ops follow the optimizer's step (work-between-steps)",
     .fix_cpp = "statistics every N steps",
     .fix_python = "statistics every N steps",
     .change = "statistics every N steps"}};

}  // namespace
}  // namespace monitoring_rules

extern const std::span<const Rule> kMonitoring = monitoring_rules::kRules;

}  // namespace stepscope
