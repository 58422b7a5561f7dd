// Does the backward pass recompute activations although memory is free? Source:
// the documentation of torch.utils.checkpoint.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/device_numbers.h"
#include "evidence/call_site.h"
#include "evidence/device_memory_use.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_traits.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace recompute_rules {
namespace {

// A backward node may call one or two forward ops for its own purposes.
constexpr size_t kLeastOps = 3;
// Between the ops of a model that a hook runs again, there are others, of the
// hook's own and casts that only one of the two passes needs. So many products
// in the order of the forward pass show the model. Our own choice.
constexpr size_t kLeastProducts = 8;
constexpr double kSameProducts = 0.9;
// Keeping activations needs memory: this factor must fit.
constexpr double kHeadroom = 1.1;
constexpr char kChange[] = "fewer recomputed activations";
// The autograd function of torch.utils.checkpoint with use_reentrant=False.
constexpr char kKeepsInputs[] = "_NoopSaveInputs";
// The autograd function of a region that torch.compile has compiled. The ops
// inside it run without gradients and so have no sequence numbers.
constexpr char kCompiled[] = "CompiledFunction";

// An op with its sizes. Equal in the forward pass and in its recomputation.
using Token = std::pair<NameId, RowId>;

Token TokenOf(const Op& op) { return {op.name, op.inputs}; }

// Returns, by backward node, the forward ops of the steady steps that the node
// runs with gradients on. Such ops have sequence numbers.
std::map<RowId, std::vector<RowId>> InBackward(const AnalysisContext& m) {
  std::map<RowId, std::vector<RowId>> by_node;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (op.kind != OpKind::kOperator || op.sequence < 0 ||
        !m.tree.in_backward(row) || m.tree.traits(row).bookkeeping ||
        !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    by_node[NodeAround(m.trace, row)].push_back(row);
  }
  return by_node;
}

// Returns the forward ops of each step outside the backward pass, in time
// order.
std::map<size_t, std::vector<Token>> ForwardOps(const AnalysisContext& m) {
  std::map<size_t, std::vector<Token>> by_step;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (op.kind != OpKind::kOperator || m.tree.in_backward(row) ||
        m.tree.traits(row).bookkeeping) {
      continue;
    }
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (step < m.steps.windows.size()) by_step[step].push_back(TokenOf(op));
  }
  return by_step;
}

// True if the forward pass ran `ops` somewhere, in this order. Other ops may
// lie between them, because a checkpoint without gradients records no sequence
// numbers inside some ops.
bool Repeats(const Trace& trace, const std::vector<RowId>& ops,
             const std::vector<Token>& forward) {
  size_t next = 0;
  for (const Token& token : forward) {
    if (next < ops.size() && token == TokenOf(trace.ops()[ops[next]])) ++next;
  }
  return next == ops.size();
}

// True if the ops are enough to tell a part of a model from what a backward
// node calls for its own purposes.
bool ArePart(const AnalysisContext& m, const std::vector<RowId>& ops) {
  if (std::ranges::any_of(ops, [&](RowId row) {
        return m.trace.name(m.trace.ops()[row].name) == kCompiled;
      })) {
    return true;
  }
  return ops.size() >= kLeastOps && std::ranges::any_of(ops, [&](RowId row) {
           return m.tree.traits(row).matmul;
         });
}

struct Recomputed {
  std::vector<ShortenedOp> ops = {};
  std::vector<Span> chains = {};  // on autograd threads, including the code
                                  // between their ops
  RowId first = kNone;
  // For hooks that run a model again, in mini-batches with a backward pass
  // each: what all of them take, and what remains if they take as long as one.
  double hooks_ns = 0, one_each_ns = 0;
};

// Leaves those of `ops` that the forward pass ran as well. Returns false if
// these are not its products in the same order, or too few to tell.
bool KeepsRepeated(const AnalysisContext& m, const std::vector<Token>& forward,
                   std::vector<RowId>& ops) {
  std::vector<RowId> same;
  std::ranges::copy_if(ops, std::back_inserter(same),
                       [&](RowId row) { return m.tree.traits(row).matmul; });
  const size_t products = same.size();
  if (products < kLeastProducts) return false;
  const std::set<Token> known(forward.begin(), forward.end());
  const auto is_new = [&](RowId row) {
    return !known.contains(TokenOf(m.trace.ops()[row]));
  };
  std::erase_if(same, is_new);
  if (same.size() < kLeastProducts ||
      static_cast<double>(same.size()) <
          kSameProducts * static_cast<double>(products) ||
      !Repeats(m.trace, same, forward)) {
    return false;
  }
  std::erase_if(ops, is_new);
  return true;
}

// Divides `ops`, which run inside the node, where nodes of another backward
// pass run between them.
std::vector<std::vector<RowId>> Divided(const AnalysisContext& m, RowId node,
                                        const std::vector<RowId>& ops) {
  std::vector<std::vector<RowId>> parts;
  bool passed = true;
  size_t next = 0;
  for (RowId row : m.tree.inside(node)) {
    passed |= m.trace.ops()[row].kind == OpKind::kBackward;
    if (next == ops.size() || row != ops[next]) continue;
    if (passed) parts.emplace_back();
    passed = false;
    parts.back().push_back(ops[next++]);
  }
  return parts;
}

// Returns the span from the start of the node, which restores the inputs, to
// the last op.
Span SpanOfChain(const Trace& trace, RowId node,
                 const std::vector<RowId>& ops) {
  Span span = {trace.ops()[ops.front()].begin_ns, 0};
  if (node != kNone) {
    span.begin_ns = std::min(span.begin_ns, trace.ops()[node].begin_ns);
  }
  for (RowId row : ops) {
    span.end_ns = std::max(span.end_ns, trace.ops()[row].end_ns);
  }
  return span;
}

// Returns the spans in which the forward pass prepares for recomputation. It
// keeps the inputs and the state of the random numbers, in an op of
// torch.utils.checkpoint and the code on both sides of it.
std::vector<Span> Preparations(const AnalysisContext& m) {
  std::vector<Span> spans;
  if (m.steps.thread == kNone) return spans;
  std::vector<const Op*> outermost;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (op.parent == kNone) outermost.push_back(&op);
  }
  for (size_t i = 0; i + 1 < outermost.size(); ++i) {
    const Op& op = *outermost[i];
    if (m.trace.name(op.name) != kKeepsInputs ||
        !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    size_t before = i;  // an empty tensor that carries the inputs
    while (before > 0 &&
           m.trace.name(outermost[before - 1]->name) == "aten::empty") {
      --before;
    }
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    const Span& host = m.steps.windows[step].host;
    spans.push_back(
        {std::max(host.begin_ns,
                  before > 0 ? outermost[before - 1]->end_ns : host.begin_ns),
         std::min(host.end_ns, outermost[i + 1]->begin_ns)});
  }
  return spans;
}

Recomputed FindRecomputed(const AnalysisContext& m) {
  Recomputed found;
  const std::map<RowId, std::vector<RowId>> by_node = InBackward(m);
  if (by_node.empty()) return found;
  const std::map<size_t, std::vector<Token>> forward = ForwardOps(m);
  for (auto [node, ops] : by_node) {
    if (!ArePart(m, ops)) continue;
    const auto step =
        forward.find(SteadyStepAt(m.steps, m.trace.ops()[ops[0]].begin_ns));
    if (step == forward.end()) continue;
    const bool exact = Repeats(m.trace, ops, step->second);
    if (!exact && (node == kNone || !KeepsRepeated(m, step->second, ops))) {
      continue;
    }
    // No checkpoint ends in a parameter, but hooks run there.
    if (exact ||
        !Contains(m.trace.name(m.trace.ops()[node].name), "AccumulateGrad")) {
      found.chains.push_back(SpanOfChain(m.trace, node, ops));
    } else {
      const std::vector<std::vector<RowId>> parts = Divided(m, node, ops);
      for (const std::vector<RowId>& part : parts) {
        found.chains.push_back(SpanOfChain(m.trace, kNone, part));
      }
      const Op& hook = m.trace.ops()[node];
      const double ns = static_cast<double>(hook.end_ns - hook.begin_ns);
      found.hooks_ns += ns;
      found.one_each_ns += ns / static_cast<double>(parts.size());
    }
    if (found.first == kNone) found.first = ops.front();
    for (RowId row : ops) found.ops.push_back({row, 0});
  }
  return found;
}

// The bytes that the recomputed parts of a step hold, and the free bytes.
struct Kept {
  double more = -1;  // beyond now, if none were recomputed; -1: unknown
  double free = 0;
  // The share of the time that can be saved with the free memory.
  double share() const { return more > 0 ? std::min(1.0, free / more) : 1; }
};

// Reads allocation events with totals. A part holds as much as the total rises
// while it is recomputed. At the peak, one of the parts is already held.
Kept KeptParts(const AnalysisContext& m, const std::vector<Span>& chains) {
  const DeviceMemoryUse use = MeasureDeviceMemory(m);
  const int32_t device = MemoryDevice(m.trace, m.ledger->device);
  std::vector<const Allocation*> rows;
  for (const Allocation& row : m.trace.allocations()) {
    if (row.device_type != 0 && row.device == device &&
        row.total_allocated_bytes >= 0) {
      rows.push_back(&row);
    }
  }
  std::ranges::stable_sort(rows, {}, &Allocation::time_ns);
  const auto total_at = [&](int64_t time) {
    const auto next =
        std::ranges::upper_bound(rows, time, {}, &Allocation::time_ns);
    return next == rows.begin()
               ? -1.0
               : static_cast<double>((*(next - 1))->total_allocated_bytes);
  };
  if (rows.empty() || use.total <= 0) return {};
  std::map<size_t, std::pair<double, double>> by_step;  // sum and largest
  for (const Span& chain : chains) {
    const double before = total_at(chain.begin_ns);
    if (before < 0) continue;
    const double grown = std::max(0.0, total_at(chain.end_ns) - before);
    auto& [sum, largest] = by_step[SteadyStepAt(m.steps, chain.begin_ns)];
    sum += grown;
    largest = std::max(largest, grown);
  }
  Kept kept{.free = std::max(0.0, use.usable() - use.allocated)};
  for (const auto& [step, parts] : by_step) {
    kept.more = std::max(kept.more, parts.first - parts.second);
  }
  return kept;
}

Verdict CheckRecomputeCost(const AnalysisContext& m) {
  const Recomputed again = FindRecomputed(m);
  if (again.chains.empty()) return Clean();
  double headroom = -1;
  if (m.ledger) headroom = MeasureDeviceMemory(m).headroom();
  if (headroom >= 0 && headroom < kHeadroom) return Clean();
  const ShortenedOps kept = ShortenOps(m, again.ops, kChange);
  const Kept parts = m.ledger ? KeptParts(m, again.chains) : Kept();
  const double steps = static_cast<double>(m.steps.steady.size());
  const Op& op = m.trace.ops()[again.first];

  Finding finding;
  finding.confidence = headroom >= 0 ? Confidence::kStrong : Confidence::kHint;
  finding.evidence =
      "The backward pass computes " +
      Count(std::max<int64_t>(
                1,
                std::llround(static_cast<double>(again.chains.size()) / steps)),
            "part") +
      " of the forward pass again" +
      (again.hooks_ns > 0 ? ", which takes "
                          : " (activation checkpointing), which takes ") +
      Milliseconds(kept.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step" +
      (parts.more > 0
           ? ". Keeping all that they make takes " + Bytes(parts.more) +
                 " more, and " + Bytes(parts.free) + " are free."
       : headroom >= 0 ? ". The memory would hold " + Factor(headroom) +
                             " the activations that are held now."
                       : "; whether memory is free was not recorded.");
  const size_t step = SteadyStepAt(m.steps, op.begin_ns);
  finding.examples.push_back(
      {m.steps.windows[step].number, op.begin_ns, op.end_ns,
       std::string(m.trace.name(op.name)) + " in the backward pass"});
  finding.where = CallSites(m.trace).Place(op.thread, op.begin_ns, again.first);
  finding.assumption =
      parts.share() < 1
          ? "at best: as many parts as fit into 90 % of the memory are kept"
          : "at best: memory suffices to keep all activations";
  finding.fix_cpp =
      "recompute fewer parts of the model in the backward pass; begin with "
      "those whose activations take the least memory";
  finding.fix_python =
      "checkpoint fewer blocks; or keep the results of products only: "
      "torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False, "
      "context_fn=functools.partial(torch.utils.checkpoint."
      "create_selective_checkpoint_contexts, ops_to_save))";
  if (again.hooks_ns > 0) {
    finding.evidence +=
        " A hook runs the model on mini-batches, each with a backward pass of "
        "its own, as losses that cache gradients do: it takes " +
        Milliseconds(again.hooks_ns / steps * 1e-6) + " per step.";
    finding.assumption =
        std::string("at best: the activations of the forward pass are kept") +
        (m.has_gpu ? "" : ", and all mini-batches take as long as one");
    finding.fix_cpp = finding.fix_python =
        "use the loss without the cache if the batch fits into memory "
        "(sentence-transformers: MultipleNegativesRankingLoss in place of "
        "CachedMultipleNegativesRankingLoss), else larger mini-batches "
        "(mini_batch_size)";
  }
  finding.wrong_if = "the memory is wanted for a larger batch or model";
  // The code around the ops and their preparation also disappear without
  // recomputation.
  double bound_ns = kept.saved_ns;
  if (!m.has_gpu) {
    const int64_t ns =
        Length(Merge(again.chains)) + Length(Merge(Preparations(m)));
    bound_ns = std::max(bound_ns, static_cast<double>(ns) / steps);
  }
  // A GPU that is busy takes as long for one large batch as for the small ones.
  if (!m.has_gpu) {
    bound_ns = std::max(bound_ns, (again.hooks_ns - again.one_each_ns) / steps);
  }
  if (parts.share() < 1) {
    return FireBound(std::move(finding), bound_ns * parts.share());
  }
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = bound_ns,
                    .trials = {kept.edit}});
}

constexpr Rule kRules[] = {
    {.id = "recompute-cost",
     .question = "Does the backward pass compute activations again although "
                 "memory is free?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckRecomputeCost,
     .reference = "torch.utils.checkpoint: https://docs.pytorch.org/docs/"
                  "stable/checkpoint.html",
     .detect = "inside a backward node, three or more ops with a product among "
               "them run with gradients on, in the order and sizes of the "
               "forward pass of the same step. Among other ops, eight products "
               "in that order are enough, as in a hook that runs the model on "
               "mini-batches again. Also a compiled region of the forward pass "
               "that runs there again",
     .avoid =
         "the device's memory was recorded and has room for less than 1.1 "
         "times the activations (where allocations were recorded, the gain is "
         "that of the parts that fit); or gradients of gradients are computed, "
         "whose ops are not those of the forward pass",
     .fix_cpp = "recompute fewer parts of the model",
     .fix_python = "checkpoint fewer blocks, or selectively "
                   "(create_selective_checkpoint_contexts)"}};

}  // namespace
}  // namespace recompute_rules

extern const std::span<const Rule> kRecompute = recompute_rules::kRules;

}  // namespace stepscope
