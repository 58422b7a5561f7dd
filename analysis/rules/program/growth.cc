// Does a loop process everything again for each new part? Source: the
// documentation of generation with a cache in Hugging Face Transformers: keys
// and values of earlier positions do not change.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/op_loops.h"
#include "evidence/program/op_shapes.h"
#include "ops/intervals.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace growth_rules {
namespace {

// Batch sizes may happen to grow by the same number two or three times in a
// row.
constexpr size_t kLeastGrowing = 5;
// Appending a part takes at least as long as a short kernel or the call of an
// op.
constexpr double kShortKernelNs = 2'000;

// A loop in one step, or several loops of the same sizes.
struct Growth {
  size_t step = 0;
  Span span = {};
  size_t iterations = 0;
  std::vector<int64_t> first = {}, last = {};  // sizes
  double ns = 0;                               // the most that can be saved
  bool trains = false;
};

// One iteration of a loop whose products get more rows each time.
struct Iteration {
  int64_t rows = 0;
  Span span = {};
};

// Calls of aten::cat that each append to the result of the previous call.
struct Chain {
  std::vector<int64_t> takes = {}, makes = {};  // of the last call
  NameId type = 0;
  std::vector<int64_t> first = {};
  size_t iterations = 1;
  std::vector<RowId> ops = {};
  std::vector<double> parts = {};  // by op: share of its result that is new
  double part = 0;                 // of the last call
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {
    if (m_.has_gpu) device_ = DeviceNsByOp(m_);
    const std::vector<Span> updates = Merge(m_.parts.optimizer.spans);
    for (RowId row : m_.tree.of_thread(m_.steps.thread)) {
      const Op& op = m_.trace.ops()[row];
      const size_t step = SteadyStepAt(m_.steps, op.begin_ns);
      if (step == m_.steps.windows.size() || m_.tree.in_backward(row) ||
          Covers(updates, op.begin_ns)) {
        continue;
      }
      by_step_[step].push_back(row);
    }
  }

  // Finds products with the same weights and more rows each time.
  std::vector<Growth> Products() const {
    std::vector<Growth> found;
    for (const auto& [step, rows] : by_step_) {
      std::optional<Growth> best = ProductsAmong(rows);
      if (!best) continue;
      best->step = step;
      found.push_back(*std::move(best));
    }
    return found;
  }

  // The same for a run that trains nothing and marks each iteration, such as
  // each new token, as a step. Its `ns` is the time per step.
  std::optional<Growth> ProductsOverSteps() const {
    if (!m_.parts.optimizer.spans.empty() || by_step_.empty()) return {};
    std::optional<Growth> best = ProductsAmong(AllRows());
    if (!best || best->trains || !AreMostSteps(m_.steps, best->iterations)) {
      return {};
    }
    best->step = by_step_.begin()->first;
    best->ns /= static_cast<double>(best->iterations);
    return best;
  }

  // Finds tensors that aten::cat makes longer each time.
  std::vector<Growth> Copies() const {
    std::vector<Growth> found;
    for (const auto& [step, rows] : by_step_) AddGrowing(step, rows, found);
    return found;
  }

  // As ProductsOverSteps(), for such tensors.
  std::vector<Growth> CopiesOverSteps() const {
    std::vector<Growth> found;
    if (!m_.parts.optimizer.spans.empty() || by_step_.empty()) return found;
    AddGrowing(by_step_.begin()->first, AllRows(), found);
    std::erase_if(found, [&](const Growth& one) {
      return !AreMostSteps(m_.steps, one.iterations);
    });
    for (Growth& one : found) {
      one.ns /= static_cast<double>(m_.steps.steady.size());
    }
    return found;
  }

 private:
  std::vector<RowId> AllRows() const {
    std::vector<RowId> all;
    for (const auto& [step, rows] : by_step_) {
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  void AddGrowing(size_t step, std::span<const RowId> rows,
                  std::vector<Growth>& found) const {
    for (const Chain& chain : ChainsOf(rows)) {
      // The sizes of a few calls may grow by chance, but not those of all
      // layers.
      const auto calls = static_cast<int64_t>(chain.ops.size());
      if (chain.iterations < kLeastGrowing || calls < kLeastPasses) continue;
      Growth one{.step = step,
                 .span = {m_.trace.ops()[chain.ops.front()].begin_ns,
                          m_.trace.ops()[chain.ops.back()].end_ns},
                 .iterations = chain.iterations,
                 .first = chain.first,
                 .last = chain.makes};
      std::vector<double> times;
      for (RowId row : chain.ops) times.push_back(TimeOf(row, one.trains));
      const auto [shortest, longest] = std::ranges::minmax(times);
      const bool read = IsReadBetween(rows, chain);
      // Backward needs each of the tensors, as in a DenseNet, so they cannot
      // share memory.
      if (read && one.trains) continue;
      // If each tensor is read, the new part must be written in each iteration.
      const double least =
          std::min<double>(shortest, m_.has_gpu ? kShortKernelNs : kOpCallNs);
      for (size_t i = 0; i < times.size(); ++i) {
        one.ns += times[i];
        if (read) one.ns -= std::max(least, chain.parts[i] * times[i]);
      }
      if (!read) one.ns -= longest;
      found.push_back(std::move(one));
    }
  }

  // Returns the longest loop of such products among forward ops.
  std::optional<Growth> ProductsAmong(std::span<const RowId> rows) const {
    std::map<std::tuple<NameId, int64_t, int64_t>, std::vector<Iteration>>
        by_weights;
    for (RowId row : rows) {
      if (!m_.tree.traits(row).matmul || !m_.tree.computes(row)) continue;
      const Op& op = m_.trace.ops()[row];
      const MatmulShape shape = CostOf(m_.trace, row).matmul;
      // A batched product multiplies activations. Attention scores grow with
      // the length even if earlier keys are kept.
      if (shape.m <= 0 || shape.batch != 1) continue;
      auto& list = by_weights[{op.name, shape.n, shape.k}];
      if (list.empty() || list.back().rows != shape.m) {
        list.push_back({shape.m, {op.begin_ns, op.end_ns}});
      }
      list.back().span.end_ns = op.end_ns;
    }
    std::optional<Growth> best;
    for (const auto& [weights, list] : by_weights) {
      std::optional<Growth> one = LongestOf(list);
      if (one && (!best || one->span.length() > best->span.length())) {
        best = std::move(one);
      }
    }
    return best;
  }

  // Returns the longest part of `list` whose rows grow by the same number each
  // time.
  std::optional<Growth> LongestOf(std::span<const Iteration> list) const {
    size_t begin = 0, from = 0, count = 0;
    const auto grows = [&](size_t i) {
      return list[i].rows - list[i - 1].rows;
    };
    for (size_t i = 1; i < list.size(); ++i) {
      if (grows(i) <= 0) {
        begin = i;
      } else if (i - begin >= 2 && grows(i) != grows(i - 1)) {
        // If the difference changes, the last two may start a new series.
        begin = i - 1;
      }
      if (i + 1 - begin > count) {
        count = i + 1 - begin;
        from = begin;
      }
    }
    if (count < kLeastGrowing) return {};
    return Measured(list.subspan(from, count));
  }

  Growth Measured(std::span<const Iteration> list) const {
    Growth growth{.span = {list.front().span.begin_ns, list.back().span.end_ns},
                  .iterations = list.size(),
                  .first = {list.front().rows},
                  .last = {list.back().rows}};
    const double share = static_cast<double>(list[1].rows - list[0].rows) /
                         static_cast<double>(list.front().rows);
    std::vector<double> host, calling, device(list.size());
    std::vector<size_t> with_backward;
    for (size_t i = 0; i < list.size(); ++i) {
      const int64_t end_ns =
          i + 1 < list.size() ? list[i + 1].span.begin_ns : list[i].span.end_ns;
      const Span span{list[i].span.begin_ns, end_ns};
      double ns = static_cast<double>(span.length());
      for (RowId node : m_.backward.Of(m_.steps.thread, span)) {
        const Op& op = m_.trace.ops()[node];
        ns += static_cast<double>(op.end_ns - op.begin_ns);
        if (with_backward.empty() || with_backward.back() != i) {
          with_backward.push_back(i);
        }
      }
      host.push_back(ns);
      calling.push_back(ns - ComputingNs(span));
    }
    for (const KernelUse& use : m_.kernels.uses) {
      const RowId op = m_.trace.kernels()[use.kernel].op;
      if (op == kNone) continue;
      const auto after = std::ranges::upper_bound(
          list, m_.trace.ops()[op].begin_ns, {},
          [](const Iteration& one) { return one.span.begin_ns; });
      if (after == list.begin() ||
          m_.trace.ops()[op].begin_ns >= growth.span.end_ns) {
        continue;
      }
      device[static_cast<size_t>(after - list.begin()) - 1] += use.ns;
    }
    growth.trains = 2 * with_backward.size() > list.size();
    // A loop that only generates may be followed by a training pass over
    // everything that it generated, with as many rows as the last iteration.
    for (size_t i : with_backward) {
      if (growth.trains) break;
      const size_t usual = i > 0 ? i - 1 : i + 1;
      host[i] = host[usual];
      calling[i] = calling[usual];
      device[i] = device[usual];
    }
    // In training, one pass over all positions takes as long as the longest
    // iteration. Otherwise each iteration takes at least the time of calling
    // its ops, plus the new rows' share of the computing of the shortest
    // iteration.
    const auto saved = [&](const std::vector<double>& times, double least) {
      double sum = 0;
      for (double ns : times) sum += ns;
      return growth.trains ? sum - std::ranges::max(times)
                           : sum - least * static_cast<double>(times.size());
    };
    const double called = std::ranges::min(calling);
    growth.ns = saved(
        host, called + std::min(1.0, share) *
                           std::max(0.0, std::ranges::min(host) - called));
    growth.ns = std::max(
        growth.ns,
        saved(device, std::min(1.0, share) * std::ranges::min(device)));
    return growth;
  }

  double ComputingNs(Span span) const {
    double ns = 0;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, span)) {
      const Op& op = m_.trace.ops()[row];
      if (!m_.tree.computes(row) ||
          (op.parent != kNone && m_.tree.computes(op.parent))) {
        continue;
      }
      ns += static_cast<double>(op.end_ns - op.begin_ns);
    }
    return std::min(ns, static_cast<double>(span.length()));
  }

  std::vector<Chain> ChainsOf(std::span<const RowId> rows) const {
    std::vector<Chain> chains;
    for (RowId row : rows) {
      const Op& op = m_.trace.ops()[row];
      if (op.parent != kNone || op.inputs == kNone ||
          m_.trace.name(op.name) != "aten::cat") {
        continue;
      }
      Chain one;
      if (!Joins(row, one)) continue;
      const auto grown = std::ranges::find_if(chains, [&](const Chain& chain) {
        return chain.makes == one.takes && chain.type == one.type;
      });
      // Keys and values of all layers have the same sizes.
      const auto same = std::ranges::find_if(chains, [&](const Chain& chain) {
        return chain.takes == one.takes && chain.makes == one.makes &&
               chain.type == one.type;
      });
      if (grown != chains.end()) {
        grown->takes = one.takes;
        grown->makes = one.makes;
        ++grown->iterations;
        grown->ops.push_back(row);
        grown->parts.push_back(one.part);
      } else if (same != chains.end()) {
        same->ops.push_back(row);
        same->parts.push_back(one.part);
      } else {
        one.ops = {row};
        one.parts = {one.part};
        chains.push_back(std::move(one));
      }
    }
    return chains;
  }

  // True if `row` appends something to a larger tensor.
  bool Joins(RowId row, Chain& one) const {
    const auto& arguments =
        m_.trace.op_inputs()[m_.trace.ops()[row].inputs].arguments;
    if (arguments.size() < 2 || arguments[0].elements.size() < 2) return false;
    const std::vector<Argument>& parts = arguments[0].elements;
    one.takes = one.first = one.makes = parts[0].dims;
    one.type = parts[0].type;
    const std::optional<size_t> axis =
        DimArgument(m_.trace, row, 1, one.takes.size(), 0);
    if (!axis) return false;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].dims.size() != one.takes.size()) return false;
      one.makes[*axis] += parts[i].dims[*axis];
    }
    one.part =
        1 - static_cast<double>(one.takes[*axis]) /
                static_cast<double>(std::max<int64_t>(one.makes[*axis], 1));
    return true;
  }

  // True if other ops read the tensors before all parts are appended.
  bool IsReadBetween(std::span<const RowId> rows, const Chain& chain) const {
    const Op& first = m_.trace.ops()[chain.ops.front()];
    Chain joined;
    if (!Joins(chain.ops.front(), joined)) return false;
    std::vector<int64_t> longest_dims = joined.makes;  // the longest so far
    for (RowId row : rows) {
      const Op& op = m_.trace.ops()[row];
      if (op.begin_ns < first.end_ns || op.parent != kNone) continue;
      if (op.begin_ns >= m_.trace.ops()[chain.ops.back()].begin_ns) break;
      if (m_.trace.name(op.name) == "aten::cat") {
        Chain one;
        if (op.inputs != kNone && Joins(row, one)) longest_dims = one.makes;
        continue;
      }
      if (op.inputs == kNone || m_.tree.traits(row).bookkeeping) continue;
      // Recorders give no types for tensors in lists, so only sizes are
      // compared.
      if (std::ranges::any_of(m_.trace.op_inputs()[op.inputs].arguments,
                              [&](const Argument& argument) {
                                return argument.dims == longest_dims;
                              })) {
        return true;
      }
    }
    return false;
  }

  // Returns the time of an op and its nodes. On a run with a GPU, this is
  // device time. On a CPU, it includes the time until the next op, in which the
  // shorter tensor is freed.
  double TimeOf(RowId row, bool& trains) const {
    const Op& op = m_.trace.ops()[row];
    double ns = 0;
    if (m_.has_gpu) {
      ns = DeviceNsInside(m_, device_, row);
    } else {
      const auto later = m_.tree.of_thread(op.thread, {op.end_ns, INT64_MAX});
      ns = static_cast<double>(
          (later.empty() ? op.end_ns : m_.trace.ops()[later.front()].begin_ns) -
          op.begin_ns);
    }
    for (RowId node : m_.backward.Of(op)) {
      const Op& backward = m_.trace.ops()[node];
      ns += m_.has_gpu
                ? DeviceNsInside(m_, device_, node)
                : static_cast<double>(backward.end_ns - backward.begin_ns);
      trains = true;
    }
    return ns;
  }

  const AnalysisContext& m_;
  std::vector<double> device_;  // of the kernels that each op launched
  std::map<size_t, std::vector<RowId>> by_step_;  // forward ops
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
  verdict.found.push_back({.finding = std::move(finding), .bound_ns = ns});
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

constexpr Rule kRules[] = {
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
