// Does a loop process everything again for each new part? Sources: the
// documentation of generation with a cache in Hugging Face Transformers: keys
// and values of earlier positions do not change; that of TorchMetrics:
// forward(), update() and compute().
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/op_loops.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "evidence/tensors/growing_products.h"
#include "evidence/tensors/growing_tensors.h"
#include "ops/intervals.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "steps/step_window.h"
#include "words/quantities.h"

namespace stepscope {
namespace growth_rules {
namespace {

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context), tensors_(context) {
    const std::vector<Span> updates = Merge(m_.parts.optimizer.spans);
    for (RowId row : m_.tree.of_thread(m_.steps.thread)) {
      const Op& op = m_.trace.ops()[row];
      const size_t step = WindowAt(m_.steps, &StepWindow::host, op.begin_ns);
      if (step == m_.steps.windows.size() ||
          m_.steps.windows[step].kind == StepKind::kWarmUp ||
          m_.tree.in_backward(row) || Covers(updates, op.begin_ns)) {
        continue;
      }
      every_row_.push_back(row);
      if (!std::ranges::binary_search(m_.steps.steady, step)) continue;
      if (steps_.empty() || steps_.back().step != step) {
        steps_.push_back({.step = step, .first = rows_.size()});
      }
      rows_.push_back(row);
      steps_.back().end = rows_.size();
    }
  }

  // Finds products with the same weights and more rows each time.
  std::vector<Growth> Products() const {
    std::vector<Growth> found;
    for (const StepRows& one : steps_) {
      std::optional<Growth> best = GrowingProducts(m_, RowsOf(one));
      if (!best) continue;
      best->step = one.step;
      found.push_back(*std::move(best));
    }
    return found;
  }

  // The same for a run that trains nothing and marks each iteration, such as
  // each new token, as a step. Its `ns` is the time per step.
  std::optional<Growth> ProductsOverSteps() const {
    if (!m_.parts.optimizer.spans.empty() || steps_.empty()) return {};
    std::optional<Growth> best = GrowingProducts(m_, rows_);
    if (!best || best->trains || !AreMostSteps(m_.steps, best->iterations)) {
      return {};
    }
    best->step = steps_.front().step;
    best->ns /= static_cast<double>(best->iterations);
    return best;
  }

  // Finds tensors that aten::cat makes longer each time.
  std::vector<Growth> Copies() const {
    std::vector<Growth> found;
    for (const StepRows& one : steps_) {
      // The sizes of a few calls may grow by chance, but not those of all
      // layers.
      tensors_.AddThose(RowsOf(one), one.step, kLeastPasses, found);
    }
    return found;
  }

  // As ProductsOverSteps(), for such tensors. Copies of large tensors may be
  // what makes steps slow, so the time is per step of all but warm-up.
  std::vector<Growth> CopiesOverSteps() const {
    std::vector<Growth> found;
    if (!m_.parts.optimizer.spans.empty() || steps_.empty()) return found;
    tensors_.AddThose(every_row_, steps_.front().step, 0, found);
    std::erase_if(found, [&](const Growth& one) {
      const size_t lasts =
          WindowAt(m_.steps, &StepWindow::host, one.span.end_ns - 1) -
          WindowAt(m_.steps, &StepWindow::host, one.span.begin_ns) + 1;
      return !AreMostSteps(m_.steps, std::min(one.iterations, lasts));
    });
    const auto steps = static_cast<double>(
        std::ranges::count_if(m_.steps.windows, [](const StepWindow& window) {
          return window.kind != StepKind::kWarmUp;
        }));
    for (Growth& one : found) one.ns /= steps;
    return found;
  }

 private:
  // The forward ops of one step: rows_[first, end).
  struct StepRows {
    size_t step = 0, first = 0, end = 0;
  };
  std::span<const RowId> RowsOf(const StepRows& one) const {
    return std::span(rows_).subspan(one.first, one.end - one.first);
  }

  const AnalysisContext& m_;
  const GrowingTensors tensors_;
  std::vector<RowId> rows_;       // forward ops of all steady steps
  std::vector<RowId> every_row_;  // those of slow steps, too
  std::vector<StepRows> steps_;   // in time order
};

// Returns the time per step; -1 if too few steps have it. Sets `longest` to the
// loop that takes most time.
double PerStep(const AnalysisContext& m, const std::vector<Growth>& found,
               const Growth*& longest) {
  std::map<size_t, double> by_step;
  double ns = 0;
  for (const Growth& one : found) {
    by_step[one.step] += one.ns;
    ns += one.ns;
    if (!longest || one.ns > longest->ns) longest = &one;
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  return AreMostSteps(m.steps, by_step.size()) ? ns / steps : -1;
}

Finding About(const AnalysisContext& m, const Growth& longest) {
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = {
      {m.steps.windows[longest.step].number, longest.span.begin_ns,
       longest.span.end_ns,
       Count(static_cast<int64_t>(longest.iterations), "iteration")}};
  finding.where = CallSites(m.trace).Place(
      m.steps.thread, longest.span.begin_ns + longest.span.length() / 2, kNone);
  return finding;
}

void AddProducts(const AnalysisContext& m, const std::vector<Growth>& found,
                 const std::optional<Growth>& over_steps, Verdict& verdict) {
  const Growth* longest = nullptr;
  double ns = PerStep(m, found, longest);
  if (found.empty() && over_steps) {
    longest = &*over_steps;
    ns = over_steps->ns;
  }
  if (!longest || ns < 0) return;
  Finding finding = About(m, *longest);
  finding.evidence =
      std::string(found.empty() ? "Steps are a loop of " : "A loop of ") +
      Count(static_cast<int64_t>(longest->iterations), "iteration") +
      (found.empty() ? " that multiply" : " multiplies") +
      " the same weights with ever more rows, from " +
      std::to_string(longest->first[0]) + " to " +
      std::to_string(longest->last[0]) +
      ", growing by the same number each time: each iteration processes all "
      "earlier positions again. This takes " +
      Milliseconds(ns * 1e-6) + " per step more than ";
  if (longest->trains) {
    finding.evidence += "the longest iteration.";
    finding.assumption =
        "at best: one pass over all positions takes as long as the longest "
        "iteration";
    finding.fix_python =
        "run the network once over the whole sequence, and take the loss at "
        "all positions of that output (with a causal mask for attention)";
  } else {
    finding.evidence += "the new positions need.";
    finding.assumption =
        "at best: an iteration takes what calling its ops takes, and the new "
        "rows' share of the computing";
    finding.fix_python =
        "feed only the new positions, and keep what earlier ones made: keys "
        "and values of attention (use_cache=True in Transformers), the state "
        "of an RNN";
  }
  finding.fix_cpp = finding.fix_python;
  finding.wrong_if =
      "what an earlier position makes depends on later ones (attention without "
      "a causal mask)";
  verdict.found.push_back({.finding = std::move(finding), .bound_ns = ns});
}

void AddCopies(const AnalysisContext& m, const std::vector<Growth>& found,
               bool over_steps, Verdict& verdict) {
  const Growth* longest = nullptr;
  double ns = PerStep(m, found, longest);
  if (over_steps) {
    ns = 0;
    for (const Growth& one : found) ns += one.ns;
  }
  if (!longest || ns * 1e-6 < MinReportableGainMs(m)) return;
  Finding finding = About(m, *longest);
  finding.evidence = "aten::cat makes a tensor longer, " +
                     Count(static_cast<int64_t>(longest->iterations), "time") +
                     " in a row, from " + InBrackets(longest->first) + " to " +
                     InBrackets(longest->last) +
                     ", and copies all of it each time. This takes " +
                     Milliseconds(ns * 1e-6) +
                     " per step more than copying each part once.";
  finding.assumption =
      "at best: one copy of the whole tensor remains, or, where other ops read "
      "it in each iteration, one of each new part";
  finding.fix_python =
      "collect the parts in a list and call torch.cat once behind the loop; "
      "where each iteration reads all of it (a cache of keys and values), "
      "allocate the full length before and write into slices";
  finding.fix_cpp =
      "collect the parts in a std::vector and call torch::cat once behind the "
      "loop; where each iteration reads all of it, allocate the full length "
      "before and write with narrow().copy_()";
  finding.wrong_if = "the final length is not known and the tensors are small";
  verdict.found.push_back(
      {.finding = std::move(finding),
       .bound_ns = ns,
       .baseline_ms = over_steps ? m.gain_step_ms(m.stats.all_mean_ms) : 0});
}

Verdict CheckGrowingPrefix(const AnalysisContext& m) {
  Verdict verdict;
  if (m.steps.thread == kNone) return verdict;
  const Finder finder(m);
  AddProducts(m, finder.Products(), finder.ProductsOverSteps(), verdict);
  std::vector<Growth> copies = finder.Copies();
  const bool over_steps = copies.empty();
  if (over_steps) copies = finder.CopiesOverSteps();
  AddCopies(m, copies, over_steps, verdict);
  return verdict;
}

// With fewer steps, sizes may rise by chance. Our own choice, as are the next.
constexpr size_t kLeastGrowing = 4;
constexpr double kLeastOfStep = 0.05;
// How far the growth of one step may be from the mean: a metric leaves out
// equal scores, for example.
constexpr double kUneven = 0.5;

// Finds outermost ops whose tensors grow from each steady step to the next, by
// about the same number of elements.
class HistoryFinder {
 public:
  explicit HistoryFinder(const AnalysisContext& context) : m_(context) {}

  // Returns the calls of each such op, one per steady step.
  std::vector<std::vector<RowId>> Find() const {
    // By name and number within the step: one op per step.
    std::map<std::pair<NameId, size_t>, std::vector<RowId>> alike;
    for (const ForwardStep& step : m_.forward) {
      std::map<NameId, size_t> numbers;
      for (RowId row : step.ops) {
        const NameId name = m_.trace.ops()[row].name;
        const size_t number = numbers[name]++;
        // What has a gradient belongs to the model, whose inputs may get
        // longer.
        if (m_.tree.traits(row).bookkeeping ||
            !m_.backward.Of(m_.trace.ops()[row]).empty()) {
          continue;
        }
        alike[{name, number}].push_back(row);
      }
    }
    std::vector<std::vector<RowId>> found;
    for (auto& [key, rows] : alike) {
      if (rows.size() != m_.forward.size() || !Grow(rows)) continue;
      // A layer without gradients, in a part that is frozen.
      if (WeightArgument(m_.trace, rows.front()) > 0) return {};
      found.push_back(std::move(rows));
    }
    return found;
  }

  // The elements of the largest argument.
  double ElementsOf(RowId row) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    if (inputs == kNone) return 0;
    double most = 0;
    for (const Argument& one : m_.trace.op_inputs()[inputs].arguments) {
      double elements =
          one.dims.empty() ? 0 : static_cast<double>(ElementsIn(one.dims));
      for (const Argument& listed : one.elements) {
        elements += static_cast<double>(ElementsIn(listed.dims));
      }
      most = std::max(most, elements);
    }
    return most;
  }

 private:
  bool Grow(const std::vector<RowId>& rows) const {
    std::vector<double> sizes;
    sizes.reserve(rows.size());
    for (RowId row : rows) sizes.push_back(ElementsOf(row));
    const size_t last = rows.size() - 1;
    const auto number = [&](size_t i) {
      return static_cast<double>(m_.steps.windows[m_.forward[i].step].number);
    };
    const double growth =
        (sizes[last] - sizes[0]) / std::max(number(last) - number(0), 1.0);
    // Something of earlier steps must be there.
    if (growth <= 0 || sizes[0] < growth) return false;
    for (size_t i = 1; i <= last; ++i) {
      const double expected = growth * (number(i) - number(i - 1));
      if (std::abs(sizes[i] - sizes[i - 1] - expected) > kUneven * expected) {
        return false;
      }
    }
    return true;
  }

  const AnalysisContext& m_;
};

Verdict CheckGrowingHistory(const AnalysisContext& m) {
  // A model that only runs may generate a longer and longer text.
  if (m.steps.thread == kNone || m.parts.optimizer.spans.empty() ||
      m.forward.size() < kLeastGrowing) {
    return Clean();
  }
  const HistoryFinder finder(m);
  const std::vector<std::vector<RowId>> found = finder.Find();
  if (found.empty()) return Clean();
  std::vector<ShortenedOp> ops;
  for (const std::vector<RowId>& calls : found) {
    for (RowId row : calls) ops.push_back({row, 0});
  }
  const auto length = [&](const std::vector<RowId>& calls) {
    int64_t ns = 0;
    for (RowId row : calls) {
      ns += m.trace.ops()[row].end_ns - m.trace.ops()[row].begin_ns;
    }
    return ns;
  };
  const std::vector<RowId>& longest =
      *std::ranges::max_element(found, {}, length);
  const auto elements = [&](RowId row) {
    return Times(finder.ElementsOf(row));
  };
  const ShortenedOps all =
      ShortenOps(m, std::move(ops), "no work on earlier steps");
  if (all.ns < kLeastOfStep * m.step_ns()) return Clean();
  Finding finding =
      FindingAbout(m, longest.back(), longest.back(), "the longest of the ops");
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Count(static_cast<int64_t>(found.size()), "op") + " per step " +
      (found.size() == 1 ? "works" : "work") +
      " on tensors that grow from step to step, as a metric of all samples "
      "since the start of the epoch does; those of " +
      std::string(m.trace.name(m.trace.ops()[longest.back()].name)) +
      " grow from " + elements(longest.front()) + " to " +
      elements(longest.back()) + " elements. They take " +
      Milliseconds(all.ns * 1e-6) +
      " per step on average, and longer in each step than in the one before.";
  finding.assumption = "at best: nothing is left of these ops";
  finding.fix_python =
      "add to the metric in each step, and compute it once per epoch or every "
      "N steps: torchmetrics' update() in training_step and compute() in "
      "on_train_epoch_end; thresholds=200 makes AUROC and the like count "
      "instead of keeping all scores";
  finding.fix_cpp =
      "add to the metric in each step, and compute it once per epoch or every "
      "N steps";
  finding.wrong_if = "the next step needs the result";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "growing-history",
     .question = "Does each step process all earlier steps again?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckGrowingHistory,
     .reference = "TorchMetrics documentation, Overview: forward(), update() "
                  "and compute()",
     .detect =
         "in a run that trains, ops outside backward and the optimizer work on "
         "tensors that grow from each of at least 4 steady steps to the next, "
         "by about the same number of elements, and take 5 % of the step",
     .avoid = "the sizes rise and fall, or the ops have weights",
     .fix_cpp = "the metric once per epoch or every N steps",
     .fix_python = "metric.update() in each step, compute() once per epoch or "
                   "every N steps"},
    {.id = "growing-prefix",
     .question = "Does a loop go through all that it has again for each new "
                 "part?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckGrowingPrefix,
     .reference = "Hugging Face Transformers documentation: Caching",
     .detect =
         "in two thirds of the steps, products with the same weights get more "
         "rows in at least 5 iterations in a row, growing by the same number "
         "each time; or aten::cat adds to its own result at least 16 times "
         "(5 times, if several tensors grow so), and the copies take 1 % of "
         "the step",
     .avoid = "backward needs each of the longer tensors, because other ops "
              "read them (DenseNet)",
     .fix_cpp = "keep what earlier positions made; torch::cat once",
     .fix_python = "keep what earlier positions made (a cache of keys and "
                   "values); torch.cat once"}};

}  // namespace
}  // namespace growth_rules

extern const std::span<const Rule> kGrowth = growth_rules::kRules;

}  // namespace stepscope
