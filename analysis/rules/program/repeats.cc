// Does a step run the same forward pass again, although its result exists?
// Source: the documentation of torch.autograd.grad: it takes several inputs,
// and with create_graph=True its results can be differentiated again.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/gradients/twin_passes.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace repeats_rules {
namespace {

// A single product of the same sizes may belong to any layer.
constexpr size_t kLeastProducts = 2;
constexpr size_t kLongestChain = 512;  // ops of one forward pass
constexpr char kOnePass[] = "shared layers run once";

using Token = std::pair<NameId, RowId>;  // an op with its sizes

// An outermost forward op of the training thread.
struct Outer {
  RowId row = kNone;
  Span span = {};
  std::vector<Token> products = {};  // inside it
  bool differentiated = false;       // a backward pass visits it
  bool reads = false;                // a value is read after it (.item())
  // Backward nodes, the optimizer or the loader ran since the previous op.
  bool resumes = false;
  size_t batch = 0;  // index of the batch loaded last
};

// A repeated forward pass in one step.
struct Repeat {
  size_t step = 0;
  Span first = {}, again = {};  // the first pass, and one that repeats it
  size_t count = 0;             // number of such passes
  size_t products = 0;          // in each pass
  double ns = 0;                // the most that can be saved
};

class Repeats {
 public:
  explicit Repeats(const AnalysisContext& context) : m_(context) {
    apart_ = m_.parts.optimizer.spans;
    const auto add = [&](const std::vector<Span>& more) {
      apart_.insert(apart_.end(), more.begin(), more.end());
    };
    loading_ = LoaderSpans(m_.trace, m_.steps.thread);
    add(loading_);
    add(ValidationPasses(m_.trace, m_.steps.thread));
    apart_ = Merge(std::move(apart_));
    for (RowId row : m_.tree.of_thread(m_.steps.thread)) Add(row);
  }

  // Returns forward passes whose values the program only looks at, and which
  // come after a training pass of the same sizes.
  std::vector<Repeat> OnlyRead() const {
    std::vector<Repeat> found;
    for (const auto& [step, ops] : by_step_) {
      for (size_t i = 0; i < ops.size(); ++i) {
        if (ops[i].differentiated) continue;
        size_t end = i + 1;
        while (end < ops.size() && !ops[end].differentiated &&
               !ops[end].resumes) {
          ++end;
        }
        std::optional<Repeat> one = Read(ops, i, end);
        if (one) {
          one->step = step;
          found.push_back(*one);
        }
        i = end - 1;
      }
    }
    return found;
  }

  // Returns consecutive forward passes with derivatives with respect to their
  // inputs. At least two of the passes must have such derivatives, which are
  // differentiated again.
  std::vector<Repeat> Derived() const {
    std::vector<Repeat> found;
    // Without create_graph, no node belongs to an op inside a node.
    const bool keeps_graph =
        std::ranges::any_of(m_.trace.ops(), [&](const Op& op) {
          return op.forward != kNone && m_.tree.in_backward(op.forward);
        });
    if (!keeps_graph) return found;
    for (const auto& [step, ops] : by_step_) {
      for (size_t i = 0; i < ops.size(); ++i) {
        std::optional<Repeat> one = DerivedFrom(ops, i);
        if (!one) continue;
        one->step = step;
        found.push_back(*one);
        while (i + 1 < ops.size() &&
               ops[i + 1].span.begin_ns < one->again.end_ns) {
          ++i;
        }
      }
    }
    return found;
  }

 private:
  const Op& OpAt(RowId row) const { return m_.trace.ops()[row]; }
  Token TokenAt(RowId row) const { return {OpAt(row).name, OpAt(row).inputs}; }

  bool Multiplies(RowId row) const {
    return stepscope::Multiplies(m_.tree.traits(row).kind);
  }

  // Adds an op of the training thread. Outer ops must come before inner ones.
  void Add(RowId row) {
    const Op& op = OpAt(row);
    const size_t step = SteadyStepAt(m_.steps, op.begin_ns);
    if (step == m_.steps.windows.size()) return;
    std::vector<Outer>& ops = by_step_[step];
    if (Covers(apart_, op.begin_ns) || m_.tree.in_backward(row)) {
      resumes_ = true;
      inside_ = false;
      return;
    }
    if (m_.trace.name(op.name) == "aten::_local_scalar_dense" && !ops.empty() &&
        !resumes_) {
      ops.back().reads = true;
    }
    if (op.parent == kNone) {
      // Skip views, which do nothing, and the first gradient, which
      // autograd.grad() makes.
      inside_ = !m_.tree.traits(row).bookkeeping &&
                !IsAnyOf(m_.trace.name(op.name),
                         {"aten::ones_like", "aten::zeros_like"});
      if (!inside_) return;
      const Span span{op.begin_ns, op.end_ns};
      ops.push_back(
          {.row = row,
           .span = span,
           .differentiated = !m_.backward.Of(m_.steps.thread, span).empty(),
           .resumes = resumes_,
           .batch = static_cast<size_t>(
               std::ranges::lower_bound(loading_, op.begin_ns, {},
                                        &Span::begin_ns) -
               loading_.begin())});
      resumes_ = false;
    }
    if (!inside_ || ops.empty()) return;
    // Count only the outermost of nested product ops.
    if (Multiplies(row) && op.begin_ns >= product_end_ns_) {
      ops.back().products.push_back(TokenAt(row));
      product_end_ns_ = op.end_ns;
    }
  }

  // Checks ops[first, end), which have no backward pass. They repeat a pass if
  // they run the products of an earlier part of the step that has a backward
  // pass, and end in a metric.
  std::optional<Repeat> Read(std::span<const Outer> ops, size_t first,
                             size_t end) const {
    std::vector<Token> made;
    size_t begin = end, last = first, passes = 0;
    bool reads = false, chooses = false;
    for (size_t i = first; i < end; ++i) {
      if (!ops[i].products.empty()) {
        begin = std::min(begin, i);
        last = i;
        passes += reads;
        reads = chooses = false;
        made.insert(made.end(), ops[i].products.begin(), ops[i].products.end());
      }
      const std::string_view name = m_.trace.name(OpAt(ops[i].row).name);
      reads |= ops[i].reads || (chooses && ComparesClasses(ops[i].row));
      chooses |= IsAnyOf(name, {"aten::argmax", "aten::topk"});
    }
    // If no values are read, something else may need the result, such as the
    // loss.
    if (!reads) return {};
    ++passes;
    // A pass for each of several metrics: equal passes, each of which is read.
    if (IsPeriodic(made, passes)) {
      made.resize(made.size() / passes);
    } else {
      passes = 1;
    }
    if (made.size() < kLeastProducts) return {};
    std::vector<Token> trained;
    std::vector<size_t> from;
    for (size_t i = 0; i < first; ++i) {
      // A forward pass over another batch is not a repetition.
      if (!ops[i].differentiated || ops[i].batch != ops[first].batch) continue;
      for (const Token& token : ops[i].products) {
        trained.push_back(token);
        from.push_back(i);
      }
    }
    // std::ranges::search does not compile with clang 14 and GCC 12's library.
    const auto at =
        std::search(trained.begin(), trained.end(), made.begin(), made.end());
    if (at == trained.end()) return {};
    const auto index = static_cast<size_t>(at - trained.begin());
    Repeat repeat{.first = {ops[from[index]].span.begin_ns,
                            ops[from[index + made.size() - 1]].span.end_ns},
                  .again = {ops[begin].span.begin_ns, ops[last].span.end_ns},
                  .count = 1 + passes,
                  .products = made.size()};
    // Ops at both ends may also be part of the forward pass.
    const Span around{ops[first].span.begin_ns, ops[end - 1].span.end_ns};
    repeat.ns =
        std::max(static_cast<double>(around.length()), DeviceNs([&](RowId row) {
                   return Covers({&around, 1}, OpAt(row).begin_ns);
                 }));
    return repeat;
  }

  // True if `made` is the same series `count` times.
  static bool IsPeriodic(std::span<const Token> made, size_t count) {
    const size_t period = made.size() / count;
    return made.size() % count == 0 &&
           std::ranges::equal(made.first(made.size() - period),
                              made.subspan(period));
  }

  // True for predicted == label, if both are class numbers.
  bool ComparesClasses(RowId row) const {
    const auto is_class = [&](size_t argument) {
      const TensorShape tensor = TensorArgument(m_.trace, row, argument);
      return tensor.known() && m_.trace.name(tensor.type) == "long int";
    };
    return m_.trace.name(OpAt(row).name) == "aten::eq" && is_class(0) &&
           is_class(1);
  }

  template <typename Wanted>
  double DeviceNs(const Wanted& wanted) const {
    double ns = 0;
    for (const KernelUse& use : m_.kernels.uses) {
      const RowId op = m_.trace.kernels()[use.kernel].op;
      if (op != kNone && wanted(op)) ns += use.ns;
    }
    return ns;
  }

  bool Same(const Outer& a, const Outer& b) const {
    return TokenAt(a.row) == TokenAt(b.row) && a.products == b.products;
  }

  // Returns the longest series of equal chains that starts with ops[first], if
  // derivatives of the chains are taken.
  std::optional<Repeat> DerivedFrom(std::span<const Outer> ops,
                                    size_t first) const {
    const size_t most = std::min(kLongestChain, (ops.size() - first) / 2);
    for (size_t period = 1; period <= most; ++period) {
      if (!Same(ops[first], ops[first + period])) continue;
      // The series starts earlier, with part of a chain, so its first ops here
      // are computed between the passes.
      if (first > 0 && Same(ops[first - 1], ops[first + period - 1])) continue;
      size_t end = first + period;
      while (end < ops.size() && Same(ops[end - period], ops[end])) ++end;
      const size_t count = (end - first) / period;
      if (count < 2) continue;
      std::optional<Repeat> one =
          Derivatives(ops.subspan(first, count * period), period);
      if (one) return one;
    }
    return {};
  }

  // `chains`: equal chains of `period` ops.
  std::optional<Repeat> Derivatives(std::span<const Outer> chains,
                                    size_t period) const {
    Repeat repeat{.count = chains.size() / period};
    for (const Outer& op : chains.first(period)) {
      repeat.products += op.products.size();
    }
    if (repeat.products < kLeastProducts) return {};
    std::vector<Span> spans;
    for (size_t i = 0; i < chains.size(); i += period) {
      spans.push_back(
          {chains[i].span.begin_ns, chains[i + period - 1].span.end_ns});
      // If a backward pass runs inside a chain, the chain is not one forward
      // pass.
      for (size_t k = 1; k < period; ++k) {
        if (chains[i + k].resumes) return {};
      }
    }
    repeat.first = spans.front();
    repeat.again = spans.back();
    size_t derived = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
      const int64_t until = i + 1 < spans.size() ? spans[i + 1].begin_ns : 0;
      derived += TakesDerivatives(spans[i], until, repeat.products);
    }
    if (derived < 2) return {};
    repeat.ns = BeyondTheLargest(spans);
    return repeat;
  }

  // True if nodes of the forward pass ran before `until` (0: before its other
  // nodes), computed no gradients of weights, and are differentiated in turn.
  bool TakesDerivatives(Span forward, int64_t until, size_t products) const {
    size_t made = 0, again = 0;
    std::set<RowId> known;
    for (RowId node : m_.backward.Of(m_.steps.thread, forward)) {
      const Op& op = OpAt(node);
      // If an op has several nodes, the first one belongs to the first
      // derivative.
      if (!known.insert(op.forward).second ||
          (until != 0 && op.begin_ns >= until)) {
        continue;
      }
      const Span span{op.begin_ns, op.end_ns};
      again += !m_.backward.Of(op.thread, span).empty();
      made += ProductsIn(op.thread, span);
    }
    // Gradients of weights would make this nearly two per product.
    return again > 0 && made > 0 && made <= products;
  }

  size_t ProductsIn(RowId thread, Span span) const {
    size_t count = 0;
    int64_t end_ns = 0;
    for (RowId row : m_.tree.of_thread(thread, span)) {
      const Op& op = OpAt(row);
      if (op.kind != OpKind::kOperator || op.begin_ns < end_ns ||
          !Multiplies(row)) {
        continue;
      }
      ++count;
      end_ns = op.end_ns;
    }
    return count;
  }

  // Returns the time of these forward passes and of all nodes that follow from
  // them, without the pass with the most time.
  double BeyondTheLargest(std::span<const Span> passes) const {
    std::vector<double> host(passes.size()), device(passes.size());
    const std::span<const Op> ops = m_.trace.ops();
    const auto first = static_cast<RowId>(
        std::ranges::lower_bound(ops, passes.front().begin_ns, {},
                                 &Op::begin_ns) -
        ops.begin());
    const int64_t end_ns =
        m_.steps.windows[SteadyStepAt(m_.steps, passes.front().begin_ns)]
            .host.end_ns;
    std::vector<size_t> owners;  // pass of each op from `first` on
    const auto owner_of = [&](RowId row) {
      return row == kNone || row < first || row - first >= owners.size()
                 ? passes.size()
                 : owners[row - first];
    };
    for (RowId row = first; row < ops.size() && ops[row].begin_ns < end_ns;
         ++row) {
      const Op& op = ops[row];
      size_t owner = passes.size();
      if (op.parent != kNone) {
        owner = owner_of(op.parent);
      } else if (op.forward != kNone) {
        owner = owner_of(op.forward);
      } else if (op.thread == m_.steps.thread) {
        owner = static_cast<size_t>(
            std::ranges::find_if(passes,
                                 [&](const Span& pass) {
                                   return op.begin_ns >= pass.begin_ns &&
                                          op.begin_ns < pass.end_ns;
                                 }) -
            passes.begin());
      }
      owners.push_back(owner);
      if (owner == passes.size() || op.parent != kNone) continue;
      // Include the framework's code up to the next op.
      host[owner] += static_cast<double>(op.end_ns - op.begin_ns + kOpCallNs);
    }
    for (const KernelUse& use : m_.kernels.uses) {
      const size_t owner = owner_of(m_.trace.kernels()[use.kernel].op);
      if (owner != passes.size()) device[owner] += use.ns;
    }
    const auto beyond = [](const std::vector<double>& times) {
      double sum = 0;
      for (double ns : times) sum += ns;
      return sum - std::ranges::max(times);
    };
    return std::max(beyond(host), beyond(device));
  }

  const AnalysisContext& m_;
  std::vector<Span> apart_;  // the optimizer, the loader and validation
  std::vector<Span> loading_;
  std::map<size_t, std::vector<Outer>> by_step_;
  bool resumes_ = false, inside_ = false;
  int64_t product_end_ns_ = 0;
};

// Returns what both kinds of finding say; nullopt if it occurs in too few
// steps.
std::optional<Finding> Describe(const AnalysisContext& m,
                                const std::vector<Repeat>& found,
                                double& bound_ns) {
  const double steps = static_cast<double>(m.steps.steady.size());
  for (const Repeat& one : found) bound_ns += one.ns / steps;
  if (!RecursInMostSteps(m.steps, found)) return {};
  Finding finding;
  const Repeat& one = found.front();
  const int64_t number = m.steps.windows[one.step].number;
  finding.examples = {
      {number, one.first.begin_ns, one.first.end_ns, "a forward pass"},
      {number, one.again.begin_ns, one.again.end_ns, "the same again"}};
  finding.where = CallSites(m.trace).Place(
      m.steps.thread, one.again.begin_ns + one.again.length() / 2, kNone);
  return finding;
}

void AddOnlyRead(const AnalysisContext& m, const std::vector<Repeat>& found,
                 Verdict& verdict) {
  double bound_ns = 0;
  std::optional<Finding> finding = Describe(m, found, bound_ns);
  if (!finding) return;
  const bool updated = std::ranges::any_of(found, [&](const Repeat& one) {
    return std::ranges::any_of(m.parts.optimizer.spans, [&](const Span& span) {
      return span.begin_ns >= one.first.end_ns &&
             span.end_ns <= one.again.begin_ns;
    });
  });
  const auto more = static_cast<int64_t>(found.front().count) - 1;
  finding->confidence = updated ? Confidence::kHint : Confidence::kStrong;
  finding->evidence =
      "Behind the forward pass that is trained with, one with the same " +
      Count(static_cast<int64_t>(found.front().products), "product") +
      " of the same sizes runs " +
      (more == 1 ? "for a metric only: "
                 : Count(more, "time") + ", for a metric each time: ") +
      Milliseconds(bound_ns * 1e-6) + " per step, with the " +
      (more == 1 ? "metric. No backward pass visits it."
                 : "metrics. No backward pass visits them.");
  if (updated) finding->evidence += " The weights are updated in between.";
  finding->assumption =
      more == 1 ? "at best: the second forward pass and the metric disappear"
                : "at best: only the first forward pass remains, and no metric";
  finding->fix_python =
      "compute all metrics from the output that the loss was computed from: "
      "output.detach(), and every N steps";
  finding->fix_cpp = finding->fix_python;
  finding->wrong_if =
      "it runs on another batch (a validation every N steps does), with "
      "another model, or must be in evaluation mode";
  verdict.found.push_back(
      {.finding = *std::move(finding), .bound_ns = bound_ns});
}

void AddDerived(const AnalysisContext& m, const std::vector<Repeat>& found,
                Verdict& verdict) {
  double bound_ns = 0;
  std::optional<Finding> finding = Describe(m, found, bound_ns);
  if (!finding) return;
  finding->confidence = Confidence::kStrong;
  finding->evidence =
      "The same forward pass, with " +
      Count(static_cast<int64_t>(found.front().products), "product") +
      " of the same sizes, runs " +
      Count(static_cast<int64_t>(found.front().count), "time") +
      " in a row, and at least two derivatives with respect to its inputs are "
      "taken, each from a separate pass. All passes but one, and their "
      "backward work, take " +
      Milliseconds(bound_ns * 1e-6) + " per step.";
  finding->assumption =
      "at best: all derivatives come from the most expensive pass, at no "
      "further cost";
  finding->fix_python =
      "call the network once, and take all derivatives from that output: "
      "u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), "
      "create_graph=True), and higher ones from these";
  finding->fix_cpp =
      "call the network once, and take all derivatives from that output: "
      "torch::autograd::grad({u}, {x, t}, {torch::ones_like(u)}, "
      "/*retain_graph=*/true, /*create_graph=*/true), and higher ones from "
      "these";
  finding->wrong_if =
      "the inputs differ from pass to pass; then one call with all inputs "
      "joined (torch.cat) saves what calling small ops costs";
  verdict.found.push_back(
      {.finding = *std::move(finding), .bound_ns = bound_ns});
}

// Reports twin passes, both of which are trained with.
void AddTwins(const AnalysisContext& m, const std::vector<TwinPass>& found,
              Verdict& verdict) {
  if (!RecursInMostSteps(m.steps, found)) return;
  std::vector<ShortenedOp> ops;
  for (const TwinPass& one : found) {
    for (const std::vector<RowId>* rows : {&one.again, &one.nodes, &one.sums}) {
      for (RowId row : *rows) ops.push_back({row, 0});
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kOnePass);
  const TwinPass& one = *std::ranges::max_element(found, {}, &TwinPass::layers);
  Finding finding = FindingAbout(m, one.again.front(), one.again.back(),
                                 "the same layers again");
  finding.confidence = one.same_input ? Confidence::kStrong : Confidence::kHint;
  finding.evidence =
      "The same " + Count(static_cast<int64_t>(one.layers), "layer") + " run " +
      MeanCount(1 + static_cast<double>(found.size()) /
                        static_cast<double>(m.steps.steady.size()),
                "time") +
      " per step, each time on an input of " + InBrackets(one.input) +
      ": the backward pass adds up the gradients of their weights" +
      (one.same_input ? " and of the input"
                      : ", and no op of the step makes a second input") +
      ". Forward and backward, the repetition takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: one pass remains, and none of these sums";
  finding.fix_python =
      "run the shared layers once, and give their output to all that need it: "
      "features = encoder(x); a = head_a(features); b = head_b(features)";
  finding.fix_cpp =
      "run the shared layers once, and give their output to all that need it: "
      "auto features = encoder(x); head_a(features); head_b(features)";
  finding.wrong_if =
      one.same_input
          ? "the passes are random, as with dropout, and must differ"
          : "the inputs differ, as those of pairs that a loader delivers; then "
            "one call with both joined (torch.cat) saves what calling small "
            "ops costs, unless layers take statistics of the batch";
  // A loader may deliver two inputs of one size, for example as pairs.
  const bool shown = one.same_input || one.input_made;
  verdict.found.push_back(
      {.finding = std::move(finding),
       .bound_ns = all.saved_ns,
       .trials = {all.edit},
       .at_most = shown ? FindingSeverity::kCritical : FindingSeverity::kLow});
}

Verdict CheckRepeatedForward(const AnalysisContext& m) {
  Verdict verdict;
  if (m.steps.thread == kNone) return verdict;
  const Repeats repeats(m);
  AddDerived(m, repeats.Derived(), verdict);
  AddOnlyRead(m, repeats.OnlyRead(), verdict);
  if (verdict.found.empty()) AddTwins(m, FindTwinPasses(m), verdict);
  return verdict;
}

constexpr Rule kRules[] = {
    {.id = "repeated-forward",
     .question = "Does a step run the same forward pass again, although its "
                 "result is there?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckRepeatedForward,
     .reference = "PyTorch documentation, torch.autograd.grad: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.autograd.grad.html",
     .detect =
         "in two thirds of the steps, either a forward pass of at least two "
         "products has no backward pass, repeats the products of the one that "
         "is trained with, and ends in a value that is read or in a comparison "
         "with the classes; or the same chain of ops, with at least two "
         "products, runs several times in a row, and of two or more of them "
         "derivatives with respect to the inputs are taken with "
         "create_graph=True; or two layers or more run twice in a row of equal "
         "ops, the backward pass adds up the gradients of their weights, and "
         "no op makes a second input",
     .avoid = "the pass without a backward pass is a target's or a teacher's, "
              "which the loss needs; it lies in a validation; gradients of "
              "weights are taken (as in MAML), or something is computed "
              "between the passes (as in a solver); the results of both passes "
              "meet in one op, as those of two views of a sample do",
     .fix_cpp = "one forward pass; metrics from its output, all derivatives "
                "from one torch::autograd::grad",
     .fix_python = "one forward pass; metrics from its output, all derivatives "
                   "from one torch.autograd.grad"}};

}  // namespace
}  // namespace repeats_rules

extern const std::span<const Rule> kRepeats = repeats_rules::kRules;

}  // namespace stepscope
