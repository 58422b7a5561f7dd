// Does a loop of the program call ops for one element at a time?
// Source: the documentation of torch.vmap and of NumPy-style broadcasting: an
// op on a whole tensor is called once, whatever the number of elements.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/op_loops.h"
#include "evidence/recording_load.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace loops_rules {
namespace {

// Of the step: what launch-bound asks of framework code.
constexpr double kShare = 0.10;
constexpr size_t kLoopsShown = 3;
// Loops per step that go backwards over time. Our own choice: a few of them may
// be different quantities, but more are one for each environment or sample.
constexpr double kLeastScans = 4;

// Loops of the same chain, over the steady steps.
struct SameLoops {
  double passes = 0, ns = 0;  // per step
  const OpLoop* longest = nullptr;
};

std::string InWords(const std::string& chain, const SameLoops& loops) {
  return chain + " (" + Count(std::llround(loops.passes), "time") +
         " per step, " + Milliseconds(loops.ns * 1e-6) + ")";
}

void SayFix(bool reads_values, Finding& finding) {
  finding.fix_python =
      "call the ops once for all elements: stack the inputs of the loop "
      "(torch.stack, or a batch dimension), gather and sum with index_add_ or "
      "scatter, compare whole tensors; torch.vmap turns a function of one "
      "element into one of a batch, and torch._foreach_* takes lists of "
      "tensors";
  finding.fix_cpp =
      "call the ops once for all elements: stack the inputs of the loop "
      "(at::stack, or a batch dimension), gather and sum with index_add_ or "
      "scatter, compare whole tensors; at::_foreach_* takes lists of tensors";
  if (!reads_values) return;
  finding.fix_python +=
      "; read values once, with .tolist(), in place of .item() "
      "or a condition for each element";
  finding.fix_cpp +=
      "; read values once, from a contiguous tensor's data_ptr(), "
      "in place of .item() or a condition for each element";
}

Verdict CheckUnbatchedLoop(const AnalysisContext& m) {
  std::vector<OpLoop> all = FindOpLoops(m);
  const double steps = static_cast<double>(m.steps.steady.size());
  // Loops whose passes need each other, per step. One loop may do the work of
  // several.
  std::map<std::string, double> scans;
  for (const OpLoop& loop : all) {
    scans[loop.chain] += static_cast<double>(loop.scans) / steps;
  }
  std::erase_if(all, [&](const OpLoop& loop) {
    return loop.scans > 0 && scans[loop.chain] < kLeastScans;
  });
  if (all.empty()) return Clean();
  double ns = 0, bound_ns = 0, events = 0;
  bool reads_values = false, is_backward = false;
  std::set<size_t> in;
  std::map<std::string, SameLoops> by_chain;
  for (const OpLoop& loop : all) {
    const double passes = static_cast<double>(loop.passes);
    in.insert(loop.step);
    ns += loop.ns / steps;
    // One pass remains, or one loop, and what all of them compute.
    const double merged = loop.scans > 0 ? scans[loop.chain] : passes;
    bound_ns +=
        std::max(0.0, loop.ns - loop.computing_ns) * (1 - 1 / merged) / steps;
    events += loop.events / steps;
    reads_values |= loop.reads_values;
    is_backward |= loop.has_backward;
    SameLoops& same = by_chain[loop.chain];
    same.passes += passes / steps;
    same.ns += loop.ns / steps;
    if (!same.longest || loop.ns > same.longest->ns) same.longest = &loop;
  }
  if (ns < kShare * m.step_ns() || !AreMostSteps(m.steps, in.size())) {
    return Clean();
  }
  bound_ns = LargestUnrecordedNs(m, bound_ns, events);
  std::vector<std::pair<std::string, SameLoops>> order(by_chain.begin(),
                                                       by_chain.end());
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto& one) { return one.second.ns; });
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "Ops are called for one element at a time, in a loop: ";
  for (size_t i = 0; i < std::min(kLoopsShown, order.size()); ++i) {
    const OpLoop& longest = *order[i].second.longest;
    finding.evidence +=
        (i ? ", " : "") + InWords(order[i].first, order[i].second);
    finding.examples.push_back(
        {m.steps.windows[longest.step].number, longest.forward.begin_ns,
         longest.forward.end_ns,
         std::to_string(longest.passes) + " times " + longest.chain});
  }
  finding.evidence +=
      ". Such loops" +
      std::string(is_backward ? " and their backward passes" : "") + " take " +
      Milliseconds(ns * 1e-6) + " of the " + Milliseconds(m.step_ns() * 1e-6) +
      " step.";
  const OpLoop& first = *order.front().second.longest;
  finding.where = CallSites(m.trace).Place(
      m.steps.thread, first.forward.begin_ns + first.forward.length() / 2,
      kNone);
  if (finding.where.empty()) finding.where = first.chain;
  finding.assumption =
      "at best: one call for all elements takes as long as the call for one "
      "element, plus what the ops compute beyond 20 us each";
  SayFix(reads_values, finding);
  finding.wrong_if =
      "a pass of the loop needs the result of the one before it; "
      "torch.compile on the body of the loop helps then";
  if (m.has_gpu) {
    bound_ns = std::min(
        bound_ns, m.MeanNs(Cause::kDispatch) + m.MeanNs(Cause::kHostCode));
  }
  return FireBound(std::move(finding), bound_ns);
}

constexpr Rule kRules[] = {
    {.id = "unbatched-loop",
     .question = "Does a loop of the program call ops for one element at a "
                 "time?",
     .needs = {Kind::kOp},
     .causes = {Cause::kHostCode, Cause::kDispatch, Cause::kCompute},
     .check = &CheckUnbatchedLoop,
     .reference = "PyTorch documentation, torch.vmap: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.vmap.html",
     .detect =
         "the same chain of at most 32 ops repeats at least 16 times without "
         "anything between, in two thirds of the steps; each pass picks an "
         "element of a tensor, reads a value, or multiplies one row or sample; "
         "and such loops, with their backward passes, take 10 % of the step",
     .avoid = "the loop is the optimizer's, the data loader's, or one of "
              "collectives; its products have several rows (batches); or "
              "nothing in the backward pass shows that all passes share their "
              "weights (in a stack of layers, they do not); or the index of an "
              "element falls from pass to pass, as for discounted returns, and "
              "there are fewer than four such loops per step",
     .fix_cpp = "one call for all elements: at::stack, index_add_, "
                "broadcasting, at::_foreach_*",
     .fix_python = "one call for all elements: torch.stack, index_add_, "
                   "broadcasting, torch.vmap, torch._foreach_*; .tolist() once "
                   "in place of .item() for each"}};

}  // namespace
}  // namespace loops_rules

extern const std::span<const Rule> kLoops = loops_rules::kRules;

}  // namespace stepscope
