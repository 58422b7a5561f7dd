// Does each step restart the loader for a single batch? Source: PyTorch
// documentation, torch.utils.data: iter(loader) shuffles the whole dataset and
// starts the workers.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/loading.h"
#include "evidence/program/op_shapes.h"
#include "ops/loader_spans.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace loader_restarts_rules {
namespace {

// The start of a loader, up to its first batch.
struct Restart {
  size_t step = 0;
  Span span = {};        // from the start to the batch
  Span freed = {};       // after the batch: the shuffled list is freed
  int64_t shuffled = 0;  // how many numbers; 0: none
  int64_t ns() const { return span.length() + freed.length(); }
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context), loads_(LoaderSpans(m_.trace, m_.steps.thread)) {}

  std::vector<Restart> Find() const {
    std::vector<Restart> found;
    if (loads_.empty()) return found;
    for (const ForwardStep& step : m_.forward) {
      for (size_t i = 0; i < step.ops.size(); ++i) {
        if (!DrawsSeed(m_.trace, step.ops[i])) continue;
        std::optional<Restart> one = RestartAt(step, i);
        if (!one) continue;
        found.push_back(*one);
        // The loader's sampler also draws a seed.
        while (i + 1 < step.ops.size() &&
               BeginOf(step.ops[i + 1]) < one->span.end_ns) {
          ++i;
        }
      }
    }
    return found;
  }

 private:
  int64_t BeginOf(RowId row) const { return m_.trace.ops()[row].begin_ns; }

  // Returns the restart that draws the seed step.ops[i]. A batch must follow
  // before the model runs.
  std::optional<Restart> RestartAt(const ForwardStep& step, size_t i) const {
    const int64_t begin_ns = BeginOf(step.ops[i]);
    const auto load =
        std::ranges::upper_bound(loads_, begin_ns, {}, &Span::end_ns);
    if (load == loads_.end() ||
        SteadyStepAt(m_.steps, load->begin_ns) != step.step) {
      return {};
    }
    Restart one{.step = step.step, .span = {begin_ns, load->end_ns}};
    for (; i < step.ops.size() && BeginOf(step.ops[i]) < load->end_ns; ++i) {
      const RowId row = step.ops[i];
      if (m_.tree.traits(row).matmul) {
        return {};
      }
      if (PlainNameOf(m_.trace, row) != "randperm") continue;
      one.shuffled = NumberArgument(m_.trace, row, 0).value_or(0);
      // Python then makes a list of the numbers. The batch itself would be
      // loaded anyway.
      while (++i < step.ops.size()) {
        if (TakesElements(m_.trace, step.ops[i], one.shuffled)) continue;
        one.span.end_ns = std::min(one.span.end_ns, BeginOf(step.ops[i]));
        break;
      }
      break;
    }
    // Freeing a long list of Python numbers takes time, in which no op runs.
    const auto behind = std::ranges::lower_bound(
        step.ops, load->end_ns, {}, [&](RowId row) { return BeginOf(row); });
    if (behind != step.ops.end() &&
        BeginOf(*behind) - load->end_ns > kFrameworkGapNs) {
      one.freed = {load->end_ns, BeginOf(*behind)};
    }
    return one;
  }

  const AnalysisContext& m_;
  const std::vector<Span> loads_;
};

Verdict CheckLoaderRestarted(const AnalysisContext& m) {
  // A single step may be the first of an epoch, for example of an evaluation.
  if (m.steps.thread == kNone || m.steps.steady.size() < 2) return Clean();
  const std::vector<Restart> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  Edit edit;
  double ns = 0;
  for (const Restart& one : found) {
    ns += static_cast<double>(one.ns());
    for (const Span& span : {one.span, one.freed}) {
      edit.cuts.push_back({.thread = m.steps.thread,
                           .span = span,
                           .keep_ns = 0,
                           .change = "one iterator of the loader"});
    }
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  ns /= steps;
  const Restart& longest = *std::ranges::max_element(found, {}, &Restart::ns);
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.where = LoaderName(m);
  finding.examples = {{m.steps.windows[longest.step].number,
                       longest.span.begin_ns, longest.span.end_ns,
                       "starting the loader"}};
  finding.evidence =
      "The loader is started " +
      MeanCount(static_cast<double>(found.size()) / steps, "time") +
      " per step" +
      (longest.shuffled > 0
           ? ": each time it shuffles " + std::to_string(longest.shuffled) +
                 " numbers, of which one batch is used"
           : std::string(" for one batch")) +
      ". This takes " + Milliseconds(ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step (" + Percent(ns / m.step_ns()) +
      ").";
  finding.assumption = "at best: starting the loader takes no time";
  finding.fix_python =
      "keep one iterator: batches = iter(loader) before the loop, "
      "next(batches) "
      "in it, and a new one only where it raises StopIteration; if an epoch is "
      "one batch long, persistent_workers=True or a sampler of many epochs";
  finding.fix_cpp =
      "keep one iterator: auto batch = loader->begin() before the loop, "
      "++batch in it";
  finding.wrong_if = "the dataset changes from step to step";
  // The replay of a CPU-only run does not shorten data loading.
  if (!m.has_gpu) return FireBound(std::move(finding), ns);
  return Fire(std::move(finding), std::move(edit), ns);
}

constexpr Rule kRules[] = {
    {.id = "loader-restarted",
     .question = "Does each step start the loader anew for one batch?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kData},
     .check = &CheckLoaderRestarted,
     .reference = "PyTorch documentation, torch.utils.data: "
                  "https://docs.pytorch.org/docs/stable/data.html",
     .detect =
         "in two thirds of the steps, the seed of a new iterator is drawn "
         "(aten::random_ of one integer) and the next batch is taken before "
         "the model runs; from there to the batch, or to the list of shuffled "
         "numbers, 1 % of the step passes",
     .avoid = "a single step was recorded, which may be the first one of an "
              "epoch",
     .fix_cpp = "one iterator: auto batch = loader->begin(); ++batch",
     .fix_python = "batches = iter(loader) before the loop, next(batches) in "
                   "it",
     .change = "one iterator of the loader"}};

}  // namespace
}  // namespace loader_restarts_rules

extern const std::span<const Rule> kLoaderRestarts =
    loader_restarts_rules::kRules;

}  // namespace stepscope
