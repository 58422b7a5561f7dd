// Do several backward passes of one step walk the same graph? Source: PyTorch
// documentation, Autograd mechanics: gradients accumulate, so the gradient of a
// sum of losses is the sum of their gradients.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace autograd_rules {
namespace {

// This share of the gradients must be dropped. The others may have the sizes of
// parameters that are updated.
constexpr double kDroppedShare = 0.5;
constexpr char kChange[] = "no node of autograd run again";
// Without recorded sizes: what a call of backward() runs itself, and the reads
// of a loss. Then how programs take all gradients to compare or project them.
constexpr std::string_view kReadNoGradient[] = {
    "ones_like", "empty_like", "fill", "_local_scalar_dense", "ones"};
constexpr std::string_view kCollectGradients[] = {"cat", "stack", "clone",
                                                  "copy", "dot"};

// Needless work of passes in the steady steps.
struct Repeats {
  std::vector<ShortenedOp> ops = {};
  size_t nodes = 0;   // needless runs of nodes
  size_t visits = 0;  // most runs of one node in a step
  std::set<size_t> steps = {};
  const GraphWalk *first = nullptr, *again = nullptr;  // an example
  bool needs_again = false;  // the first pass is the needless one
  bool of_parts = false;     // each pass takes a part of one output
  bool sure = true;          // that nothing reads gradients between the passes
};

class RepeatFinder {
 public:
  RepeatFinder(const AnalysisContext& context,
               const std::vector<GraphWalk>& passes)
      : m_(context), forward_(context), passes_(passes) {}

  void Find() {
    std::map<int64_t, Visits> nodes;  // nodes of one step, by sequence number
    size_t step = m_.steps.windows.size();
    for (size_t pass = 0; pass < passes_.size(); ++pass) {
      if (passes_[pass].step != step) nodes.clear();
      step = passes_[pass].step;
      if (passes_[pass].records) {
        FindSameOutput(pass);
        continue;
      }
      std::map<size_t, Relation> relations;  // to earlier passes
      for (const WalkedNode& node : passes_[pass].nodes) {
        Visits& visits = nodes[node.sequence];
        Relation relation = Relation::kNone;
        if (visits.count > 0 && NameOf(*visits.latest) == NameOf(node)) {
          const auto [known, fresh] = relations.try_emplace(visits.pass);
          if (fresh) known->second = RelationOf(visits.pass, pass);
          relation = known->second;
        }
        const bool sums = relation == Relation::kSummed ||
                          relation == Relation::kPerhapsSummed;
        visits.count = sums ? visits.count + 1 : 1;
        if (sums) {
          Count(visits, pass, node, summed);
          summed.sure &= relation == Relation::kSummed;
        } else if (relation == Relation::kDropped) {
          Count(visits, pass, *visits.latest, dropped);
        }
        visits.pass = pass;
        visits.latest = &node;
      }
    }
  }

  Repeats summed;  // later passes add gradients to those of the first
  // Nobody reads gradients before a later pass.
  Repeats dropped = {.needs_again = true};
  Repeats derived;  // an earlier pass took derivatives of the same output
  // Passes with common nodes store gradients whose sizes were not recorded,
  // without adding them up.
  bool needs_sizes = false;

 private:
  // How two passes with common nodes relate. kPerhapsSummed: the recording
  // cannot rule out that something reads the gradients in between.
  enum class Relation : uint8_t { kNone, kSummed, kPerhapsSummed, kDropped };
  // The visits of one node whose gradients are summed up.
  struct Visits {
    size_t count = 0;
    size_t pass = 0;  // the latest
    const WalkedNode* latest = nullptr;
  };

  std::string_view NameOf(const WalkedNode& node) const {
    return m_.trace.name(m_.trace.ops()[node.row].name);
  }

  // Finds passes that can be differentiated again, with one pass for each input
  // of the same output. Derivatives in a differential equation are an example.
  void FindSameOutput(size_t after) {
    for (size_t before = after; before-- > 0;) {
      const GraphWalk &first = passes_[before], &again = passes_[after];
      if (first.step != again.step) return;
      if (!first.records || !BeginAlike(first.nodes, again.nodes)) continue;
      if (DrawsBetween({first.span.begin_ns, again.span.begin_ns})) return;
      std::set<int64_t> seen;
      for (const WalkedNode& node : first.nodes) seen.insert(node.sequence);
      for (const WalkedNode& node : again.nodes) {
        if (!seen.contains(node.sequence)) continue;
        derived.ops.push_back({node.row, 0});
        // Also drop the backward nodes of the ops inside it, which a later pass
        // visits.
        for (RowId of : forward_.NodesOf(node.row)) {
          derived.ops.push_back({of, 0});
        }
        ++derived.nodes;
      }
      derived.steps.insert(again.step);
      derived.of_parts |= PicksPart(again.nodes.front());
      if (derived.first == nullptr) {
        derived.first = &first;
        derived.again = &again;
      }
      return;
    }
  }

  // True if the pass starts from a part of an output, such as the energy of one
  // molecule.
  bool PicksPart(const WalkedNode& node) const {
    const std::string_view name = NameOf(node);
    if (!name.ends_with("SelectBackward0") &&
        !name.ends_with("SliceBackward0") &&
        !name.ends_with("UnbindBackward0")) {
      return false;
    }
    // A column, in contrast, is one quantity for all samples.
    const RowId forward = m_.trace.ops()[node.row].forward;
    return forward != kNone && NumberArgument(m_.trace, forward, 1) == 0;
  }

  // True if both passes start at the same node, or at sums or parts of the same
  // output.
  bool BeginAlike(const std::vector<WalkedNode>& first,
                  const std::vector<WalkedNode>& again) const {
    const auto sums = [&](const WalkedNode& node) {
      return NameOf(node).ends_with("SumBackward0");
    };
    size_t at = 0;
    if (first.front().sequence != again.front().sequence) {
      const bool same = sums(first.front()) && sums(again.front());
      const bool parts = PicksPart(first.front()) && PicksPart(again.front());
      if (!same && !parts) return false;
      at = 1;
    }
    // A single node is hardly a network.
    return first.size() > at + 1 && again.size() > at + 1 &&
           first[at].sequence == again[at].sequence &&
           first[at + 1].sequence == again[at + 1].sequence;
  }

  // True if a random vector may be drawn in `span`, with which the next pass
  // multiplies the derivatives.
  bool DrawsBetween(Span span) const {
    bool draws = false;
    ForOthers(span, [&](RowId row) {
      const std::string_view name = m_.trace.name(m_.trace.ops()[row].name);
      draws = Contains(name, "rand") || Contains(name, "normal") ||
              Contains(name, "bernoulli");
      return !draws;
    });
    return draws;
  }

  void Count(const Visits& visits, size_t pass, const WalkedNode& needless,
             Repeats& found) const {
    found.ops.push_back({needless.row, 0});
    for (const KeptGradient& one : needless.kept) {
      if (one.adds || &found == &dropped) found.ops.push_back({one.row, 0});
    }
    ++found.nodes;
    found.visits = std::max(found.visits, visits.count);
    found.steps.insert(passes_[pass].step);
    if (found.first == nullptr) {
      found.first = &passes_[visits.pass];
      found.again = &passes_[pass];
    }
  }

  // Compares the gradients of parameters that both passes reach from the same
  // nodes. kSummed: the later pass adds to the gradients of the earlier one,
  // and nothing reads or changes these in between. kDropped: the later pass
  // makes gradients anew, and nothing has read the earlier ones.
  Relation RelationOf(size_t before, size_t after) {
    std::map<int64_t, std::set<Dims>> kept;  // by node
    for (const WalkedNode& node : passes_[before].nodes) {
      for (const KeptGradient& one : node.kept) {
        kept[node.sequence].insert(one.gradient);
      }
    }
    std::vector<Dims> gradients;
    size_t adds = 0;
    bool sized = true;
    for (const WalkedNode& node : passes_[after].nodes) {
      for (const KeptGradient& one : node.kept) {
        // Skip a parameter that is not part of the other loss.
        if (!kept[node.sequence].contains(one.gradient)) continue;
        adds += one.adds;
        sized &= one.sized;
        gradients.push_back(one.gradient);
      }
    }
    if (gradients.empty()) return Relation::kNone;
    if (!sized) return UnsizedRelationOf(before, after, adds, gradients.size());
    const Span& first = passes_[before].span;
    const Span& later = passes_[after].span;
    if (adds == gradients.size()) {
      return IsRead({gradients.begin(), gradients.end()},
                    {first.begin_ns, later.end_ns})
                 ? Relation::kNone
                 : Relation::kSummed;
    }
    return adds == 0 && AreDropped(gradients, {first.end_ns, later.end_ns})
               ? Relation::kDropped
               : Relation::kNone;
  }

  // The same without recorded sizes, if the later pass adds to `adds` of the
  // `stored` gradients.
  Relation UnsizedRelationOf(size_t before, size_t after, size_t adds,
                             size_t stored) {
    const Span& first = passes_[before].span;
    const Span& later = passes_[after].span;
    if (adds != stored || later.begin_ns < first.end_ns) {
      needs_sizes = true;
      return Relation::kNone;
    }
    // If the first pass adds as well, to gradients that were zeroed or are kept
    // over steps, the additions may also be updates of parameters in hooks.
    const bool adds_too =
        std::ranges::any_of(passes_[before].nodes, [](const WalkedNode& node) {
          return std::ranges::any_of(node.kept, &KeptGradient::adds);
        });
    Relation relation = adds_too && !adding_.contains(before)
                            ? Relation::kPerhapsSummed
                            : Relation::kSummed;
    ForOthers({first.begin_ns, later.end_ns}, [&](RowId row) {
      const OpTraits& traits = m_.tree.traits(row);
      const std::string_view name = PlainNameOf(m_.trace, row);
      const auto is_in = [&](const auto& names) {
        return std::ranges::find(names, name) != std::ranges::end(names);
      };
      if (traits.bookkeeping || is_in(kReadNoGradient)) return true;
      const bool reads =
          traits.zeroing || name.starts_with("_foreach_") ||
          Contains(name, "norm") || is_in(kCollectGradients) ||
          LengthIn(m_.parts.optimizer.spans, forward_.SpanOf(row)) > 0;
      relation = reads ? Relation::kNone : Relation::kPerhapsSummed;
      return !reads;
    });
    if (relation == Relation::kNone) {
      needs_sizes = true;
    } else {
      adding_.insert(after);
    }
    return relation;
  }

  // Calls `visit` with each op that starts within `span` and has no backward
  // node, until it returns false.
  template <typename Visit>
  void ForOthers(Span span, const Visit& visit) const {
    const std::span<const Op> ops = m_.trace.ops();
    auto at =
        std::ranges::lower_bound(forward_.ops, span.begin_ns, {},
                                 [&](RowId row) { return ops[row].begin_ns; });
    for (; at != forward_.ops.end() && ops[*at].begin_ns < span.end_ns; ++at) {
      if (forward_.NodesOf(*at).empty() && !visit(*at)) return;
    }
  }

  // True if for most of these gradients, no op takes a tensor of the same size.
  bool AreDropped(const std::vector<Dims>& gradients, Span span) const {
    std::set<Dims> taken;
    bool known = true;
    ForOthers(span, [&](RowId row) {
      const Op& op = m_.trace.ops()[row];
      if (m_.tree.traits(row).zeroing) return true;
      const bool updates =
          LengthIn(m_.parts.optimizer.spans, forward_.SpanOf(row)) > 0;
      known = op.inputs == kNone ? !updates : !TakesCutList(m_.trace, row);
      if (!known || op.inputs == kNone) return known;
      for (const Argument& one : m_.trace.op_inputs()[op.inputs].arguments) {
        taken.insert(one.dims);
        for (const Argument& element : one.elements) taken.insert(element.dims);
      }
      return true;
    });
    double all = 0, left = 0;
    for (const Dims& sizes : gradients) {
      const double elements = static_cast<double>(ElementsIn(sizes));
      all += elements;
      if (!taken.contains(sizes)) left += elements;
    }
    return known && left >= kDroppedShare * all;
  }

  // True if an op that is not part of a forward pass may take such a gradient
  // within `span`.
  bool IsRead(std::set<Dims> gradients, Span span) const {
    // Leave out one-dimensional gradients, because labels and losses have one
    // dimension, too.
    const auto is_large = [](const Dims& dims) { return dims.size() > 1; };
    if (std::ranges::any_of(gradients, is_large)) {
      std::erase_if(gradients, std::not_fn(is_large));
    }
    bool read = false;
    ForOthers(span, [&](RowId row) {
      const Op& op = m_.trace.ops()[row];
      read = LengthIn(m_.parts.optimizer.spans, forward_.SpanOf(row)) > 0 ||
             m_.tree.traits(row).zeroing ||
             (op.inputs != kNone &&
              (TakesCutList(m_.trace, row) || TakesAny(op, gradients)));
      return !read;
    });
    return read;
  }

  bool TakesAny(const Op& op, const std::set<Dims>& gradients) const {
    const auto& arguments = m_.trace.op_inputs()[op.inputs].arguments;
    return std::ranges::any_of(arguments, [&](const Argument& argument) {
      return gradients.contains(argument.dims) ||
             std::ranges::any_of(argument.elements, [&](const Argument& one) {
               return gradients.contains(one.dims);
             });
    });
  }

  const AnalysisContext& m_;
  ForwardOps forward_;
  const std::vector<GraphWalk>& passes_;
  std::set<size_t> adding_;  // passes that add to gradients of earlier ones
};

// Returns the edit without these nodes, and without the engine's work after
// each.
ShortenedOps Without(const AnalysisContext& m, std::vector<ShortenedOp> nodes) {
  ShortenedOps without = ShortenOps(m, std::move(nodes), kChange);
  double engine_ns = 0;
  for (HostCut& cut : without.edit.cuts) {
    const int64_t end_ns = EndOfEngine(m, cut.thread, cut.span.end_ns);
    engine_ns += static_cast<double>(end_ns - cut.span.end_ns);
    cut.span.end_ns = end_ns;
  }
  if (!m.has_gpu) {
    without.saved_ns += engine_ns / static_cast<double>(m.steps.steady.size());
  }
  return without;
}

// Returns the source line that called backward() or grad() for this pass; ""
// if it is unknown. Nodes have no stack. Where the program gives no gradient,
// the call makes one, on its own thread, just before the first node. Else an op
// of a node knows the line if the nodes run on the calling thread.
std::string LineOf(const AnalysisContext& m, const CallSites& sites,
                   const GraphWalk& pass) {
  const std::span<const Op> ops = m.trace.ops();
  const auto after = [&](RowId thread, int64_t ns) {
    return std::ranges::lower_bound(
        m.tree.of_thread(thread), ns, {},
        [&](RowId row) { return ops[row].begin_ns; });
  };
  const RowId caller = m.steps.thread;
  if (const auto at = after(caller, pass.span.begin_ns);
      at != m.tree.of_thread(caller).begin()) {
    const RowId before = OutermostOf(m.trace, *(at - 1));
    if (PlainNameOf(m.trace, before) == "ones_like") {
      return sites.Source(caller, ops[before].begin_ns, before);
    }
  }
  const RowId thread = ops[pass.nodes.front().row].thread;
  for (auto at = after(thread, pass.span.begin_ns);
       at != m.tree.of_thread(thread).end() &&
       ops[*at].begin_ns < pass.span.end_ns;
       ++at) {
    std::string line = sites.Source(thread, ops[*at].begin_ns, *at);
    if (!line.empty()) return line;
  }
  return "";
}

// Adds the finding about `found`, completed by `describe`, if it occurs in most
// steps and gains enough.
template <typename Describe>
void AddFinding(const AnalysisContext& m, const Repeats& found,
                const Describe& describe, Verdict& verdict) {
  const double steps = static_cast<double>(m.steps.steady.size());
  if (found.nodes == 0 || !AreMostSteps(m.steps, found.steps.size())) return;
  const ShortenedOps less = Without(m, found.ops);
  if (less.saved_ns * 1e-6 < MinReportableGainMs(m)) return;
  const int64_t number = m.steps.windows[found.first->step].number;
  Finding finding;
  finding.confidence = found.sure ? Confidence::kStrong : Confidence::kHint;
  const Span &first = found.first->span, &again = found.again->span;
  finding.examples = {
      {number, first.begin_ns, first.end_ns, "a backward pass"},
      {number, again.begin_ns, again.end_ns, "another over the same graph"}};
  const CallSites sites(m.trace);
  const std::string one = LineOf(m, sites, *found.first);
  const std::string other = LineOf(m, sites, *found.again);
  const GraphWalk& needless = found.needs_again ? *found.first : *found.again;
  finding.where = found.needs_again ? one : other;
  if (finding.where.empty()) {
    finding.where = sites.Chain(m.steps.thread, needless.span.begin_ns, kNone);
  }
  describe(MeanCount(static_cast<double>(found.nodes) / steps, "run"),
           Milliseconds(less.saved_ns * 1e-6), finding);
  if (!one.empty() && !other.empty() && one != other) {
    finding.evidence += " The passes start at " + one + " and " + other + ".";
  }
  verdict.found.push_back({.finding = std::move(finding),
                           .alternatives = {{less.edit}},
                           .bound_ns = less.saved_ns});
}

// Completes the finding for an output whose parts are differentiated one by
// one.
void SayOfParts(Finding& finding) {
  finding.assumption =
      "one call for all parts runs each node once, as long as its first "
      "recorded run";
  finding.fix_python =
      "if each part depends on an input of its own, as each sample's energy "
      "does on its positions: torch.autograd.grad(u.sum(), x, "
      "create_graph=True) once, whose rows are the derivatives of the parts; "
      "else is_grads_batched=True, or torch.func.jacrev";
  finding.fix_cpp =
      "if each part depends on an input of its own: "
      "torch::autograd::grad({u.sum()}, {x}, {}, /*retain_graph=*/true, "
      "/*create_graph=*/true) once";
  finding.wrong_if =
      "the parts depend on the same inputs: then one call for all of them "
      "takes as many products, in fewer ops";
}

Verdict CheckRepeatedBackward(const AnalysisContext& m) {
  Verdict verdict;
  if (m.steps.thread == kNone) return verdict;
  const std::vector<GraphWalk>& passes = m.graph_walks;
  RepeatFinder found(m, passes);
  found.Find();
  AddFinding(
      m, found.summed,
      [&](const std::string& runs, const std::string& ms, Finding& finding) {
        const size_t visits = found.summed.visits;
        finding.evidence =
            "Several backward passes of a step walk the same graph "
            "(retain_graph=True), and add to the same gradients: nodes of "
            "autograd run " +
            (visits == 2
                 ? "twice"
                 : "up to " + Count(static_cast<int64_t>(visits), "time")) +
            ". The " + runs + " per step beyond the first of each take " + ms +
            ".";
        finding.assumption =
            "one pass runs each node once, as long as its first recorded run; "
            "adding the losses' gradients where their graphs meet costs "
            "nothing";
        finding.fix_python =
            "add the losses up, and call (loss_a + loss_b).backward() once, "
            "without retain_graph=True";
        finding.fix_cpp =
            "add the losses up, and call (loss_a + loss_b).backward() once, "
            "without retain_graph";
        finding.wrong_if =
            "a hook reads the gradients of single losses during the passes";
      },
      verdict);
  AddFinding(
      m, found.dropped,
      [](const std::string& runs, const std::string& ms, Finding& finding) {
        finding.evidence =
            "A backward pass walks a part of a graph that a later one walks "
            "again (retain_graph=True), and the gradients of that part are set "
            "to None before anything reads them. These " +
            runs + " of nodes per step take " + ms + ".";
        finding.assumption =
            "the first loss needs no gradient of what comes before that part";
        finding.fix_python =
            "cut the first loss off: criterion(D(fake.detach()), target) for "
            "the discriminator of a GAN; then no retain_graph=True is needed";
        finding.fix_cpp =
            "cut the first loss off: D->forward(fake.detach()) for the "
            "discriminator of a GAN; then no retain_graph is needed";
        finding.wrong_if =
            "a hook, or code whose ops the recording does not show, reads "
            "these gradients";
      },
      verdict);
  AddFinding(
      m, found.derived,
      [&](const std::string& runs, const std::string& ms, Finding& finding) {
        finding.evidence =
            "Derivatives of the same output are taken by several calls of "
            "autograd.grad(create_graph=True), which walk the same graph. " +
            runs +
            " of nodes per step beyond the first of each, with the "
            "backward passes of what they compute, take " +
            ms + ".";
        finding.assumption =
            "one call for all inputs runs each node once, as long as its first "
            "recorded run";
        finding.fix_python =
            "torch.autograd.grad(u, (x, y, t), torch.ones_like(u), "
            "create_graph=True) returns the derivatives by all inputs";
        finding.fix_cpp =
            "torch::autograd::grad({u}, {x, y, t}, {at::ones_like(u)}, "
            "/*retain_graph=*/true, /*create_graph=*/true) returns the "
            "derivatives by all inputs";
        finding.wrong_if =
            "the calls are given different grad_outputs, or need different "
            "parts of the output";
        if (found.derived.of_parts) SayOfParts(finding);
      },
      verdict);
  if (verdict.found.empty() && found.needs_sizes) {
    return Skip("the sizes of tensors were not recorded (record_shapes)");
  }
  return verdict;
}

constexpr Rule kRules[] = {
    {.id = "repeated-backward",
     .question = "Do backward passes of one step walk the same graph several "
                 "times?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckRepeatedBackward,
     .reference = "PyTorch documentation, Autograd mechanics: "
                  "https://docs.pytorch.org/docs/stable/notes/autograd.html",
     .detect =
         "in two thirds of the steps, nodes of autograd run in several "
         "backward passes, and the later ones add to the gradients of the "
         "earlier ones, or begin anew although no op has taken tensors of the "
         "sizes of half of these; or passes with create_graph=True begin at "
         "the same node, or at sums or single elements of it; the needless "
         "runs take 1 % of the step. Without sizes of tensors, only passes "
         "that add up gradients are found, as a hint if ops without autograd "
         "nodes run between them",
     .avoid = "gradients are read, or used by an optimizer, between the "
              "passes, or a pass accumulates no gradients (autograd.grad, as "
              "for gradients of single tasks); with create_graph=True, other "
              "outputs are differentiated, or random vectors drawn in between",
     .fix_cpp = "add the losses up, one backward(); or detach() what the first "
                "loss does not train; one grad() for all inputs",
     .fix_python = "add the losses up, one backward(); or detach() what the "
                   "first loss does not train; one grad() for all inputs",
     .change = "one backward pass over each graph"}};

}  // namespace
}  // namespace autograd_rules

extern const std::span<const Rule> kAutograd = autograd_rules::kRules;

}  // namespace stepscope
