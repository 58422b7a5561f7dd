// Does a loop of the program call ops for one element at a time? Source: the
// documentation of torch.vmap and of NumPy-style broadcasting: an op on a whole
// tensor is called once, whatever the number of elements.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/host_spans.h"
#include "evidence/program/op_loops.h"
#include "evidence/recording_load.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace loops_rules {
namespace {

// Share of the step, as launch-bound requires for framework code.
constexpr double kShare = 0.10;
constexpr size_t kLoopsShown = 3;
constexpr size_t kOpsShown = 6;
// Least number of loops per step that go backwards over time. A few may be for
// different quantities; more are one per environment or sample. Our own choice.
constexpr double kLeastScans = 4;

// Loops of the same chain, over the steady steps.
struct SameLoops {
  double passes = 0, ns = 0;  // per step
  const OpLoop* longest = nullptr;
};

using ByChain = std::map<std::string, SameLoops>;
void Add(const OpLoop& loop, double steps, ByChain& by_chain) {
  SameLoops& same = by_chain[loop.chain];
  same.passes += static_cast<double>(loop.passes) / steps;
  same.ns += loop.ns / steps;
  if (!same.longest || loop.ns > same.longest->ns) same.longest = &loop;
}

Example ExampleOf(const AnalysisContext& m, const OpLoop& loop) {
  return {m.steps.windows[loop.step].number, loop.forward.begin_ns,
          loop.forward.end_ns,
          std::to_string(loop.passes) + " times " + loop.chain};
}

// "a > b > c > ... (12 ops)" for long chains.
std::string Shortened(const std::string& chain) {
  size_t ops = 1, end = std::string::npos;
  for (size_t at = 0; (at = chain.find(" > ", at)) != std::string::npos; ++at) {
    if (ops++ == kOpsShown) end = at;
  }
  return end == std::string::npos ? chain
                                  : chain.substr(0, end) + " > ... (" +
                                        std::to_string(ops) + " ops)";
}

std::string PlaceOf(const AnalysisContext& m, const OpLoop& loop) {
  std::string place = CallSites(m.trace).Place(
      m.steps.thread, loop.forward.begin_ns + loop.forward.length() / 2, kNone);
  return place.empty() ? Shortened(loop.chain) : place;
}

std::string InWords(const std::string& chain, const SameLoops& loops) {
  return Shortened(chain) + " (" + Count(std::llround(loops.passes), "time") +
         " per step, " + Milliseconds(loops.ns * 1e-6) + ")";
}

void SayFixOfAttention(Finding& finding) {
  finding.fix_python =
      "call attention once for all windows or sequences: "
      "flash_attn_varlen_func with their cumulative lengths (transformers: "
      "attn_implementation=\"flash_attention_2\"), nested tensors "
      "(torch.nested, layout=torch.jagged), FlexAttention with a block mask, "
      "or a batch dimension if they have one length";
  finding.fix_cpp =
      "call attention once for all windows or sequences: a kernel for variable "
      "lengths (at::_flash_attention_forward with cumulative lengths), or a "
      "batch dimension if they have one length";
}

// `chain`: the chain of the loops that take most time.
void SayFix(const std::string& chain, bool reads_values, Finding& finding) {
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
  if (chain == "aten::add") {  // 0 + tensor[0] + tensor[1] + ...
    finding.fix_python =
        "tensor.sum() adds up all elements, Python's sum(tensor) one by one; "
        "else " +
        finding.fix_python;
  }
  if (!reads_values) return;
  finding.fix_python +=
      "; read values once, with .tolist(), in place of .item() "
      "or a condition for each element";
  finding.fix_cpp +=
      "; read values once, from a contiguous tensor's data_ptr(), "
      "in place of .item() or a condition for each element";
}

// Returns the most that can be saved, without the recorder's cost. On a run
// with a GPU, at most the time in which the device waits for the host, plus the
// device's time for the loops.
double BoundNs(const AnalysisContext& m, const std::vector<OpLoop>& loops,
               double ns, double events) {
  ns = LargestUnrecordedNs(m, ns, events);
  if (!m.has_gpu) return ns;
  std::vector<HostSpan> spans;
  spans.reserve(loops.size());
  for (const OpLoop& loop : loops) {
    spans.push_back({m.steps.thread, loop.forward});
  }
  // Sort, because LaunchedIn() requires time order.
  std::ranges::sort(spans, {},
                    [](const HostSpan& one) { return one.span.begin_ns; });
  return std::min(ns, m.MeanNs(Cause::kDispatch) + m.MeanNs(Cause::kHostCode) +
                          m.MeanNs(Cause::kKernelLatency) +
                          DeviceNsPerStep(m, LaunchedIn(m, spans)));
}

// Reports loops over time whose passes depend on each other, on small tensors
// without gradients. Most of their computing does not depend on other passes.
void AddScans(const AnalysisContext& m, const std::vector<OpLoop>& scans,
              Verdict& verdict) {
  const double steps = static_cast<double>(m.steps.steady.size());
  double ns = 0, bound_ns = 0, events = 0;
  ByChain by_chain;
  for (const OpLoop& loop : scans) {
    ns += loop.ns / steps;
    bound_ns += std::max(0.0, loop.ns - loop.computing_ns) / steps;
    events += loop.events / steps;
    Add(loop, steps, by_chain);
  }
  if (ns < kShare * m.step_ns() || !RecursInMostSteps(m.steps, scans)) return;
  const auto& [chain, loops] = *std::ranges::max_element(
      by_chain, {}, [](const auto& one) { return one.second.ns; });
  const OpLoop& longest = *loops.longest;
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "A loop takes elements from the last to the first, as a recurrence "
      "backwards in time does: " +
      InWords(chain, loops) + ". Such loops take " + Milliseconds(ns * 1e-6) +
      " of the " + Milliseconds(m.step_ns() * 1e-6) +
      " step; no gradient flows through them.";
  finding.examples.push_back(ExampleOf(m, longest));
  finding.where = PlaceOf(m, longest);
  finding.assumption = "at best: calling the ops takes no time";
  finding.fix_python =
      "compute for all times at once what needs no other pass (deltas = "
      "rewards + gamma * values[1:] * (1 - done) - values[:-1]), and the "
      "recurrence on "
      "Python numbers (.tolist()) or in NumPy, or for all times by a scan that "
      "doubles its reach";
  finding.fix_cpp =
      "compute for all times at once what needs no other pass, and the "
      "recurrence on plain numbers (an accessor or data_ptr())";
  finding.wrong_if = "each pass runs a model on the result of the one before";
  verdict.found.push_back({.finding = std::move(finding),
                           .bound_ns = BoundNs(m, scans, bound_ns, events)});
}

// Returns, by chain, the number per step of loops whose passes depend on each
// other.
std::map<std::string, double> ScansOf(const AnalysisContext& m,
                                      const std::vector<OpLoop>& all) {
  std::map<std::string, double> scans;
  for (const OpLoop& loop : all) {
    scans[loop.chain] += static_cast<double>(loop.scans) /
                         static_cast<double>(m.steps.steady.size());
  }
  return scans;
}

// `scans`: the result of ScansOf().
Verdict CheckIndependentPasses(const AnalysisContext& m,
                               const std::vector<OpLoop>& all,
                               const std::map<std::string, double>& scans) {
  if (all.empty()) return Clean();
  const double steps = static_cast<double>(m.steps.steady.size());
  double ns = 0, bound_ns = 0, events = 0;
  bool reads_values = false, is_backward = false, round_trips = false;
  std::set<size_t> in;
  ByChain by_chain;
  for (const OpLoop& loop : all) {
    const double passes = static_cast<double>(loop.passes);
    in.insert(loop.step);
    ns += loop.ns / steps;
    // One pass, or one loop, remains, along with the computing of all.
    const double merged = loop.scans > 0 ? scans.at(loop.chain) : passes;
    bound_ns +=
        std::max(0.0, loop.ns - loop.computing_ns) * (1 - 1 / merged) / steps;
    events += loop.events / steps;
    reads_values |= loop.reads_values;
    round_trips |= loop.round_trips;
    is_backward |= loop.has_backward;
    Add(loop, steps, by_chain);
  }
  if (ns < kShare * m.step_ns() || !AreMostSteps(m.steps, in.size())) {
    return Clean();
  }
  bound_ns = BoundNs(m, all, bound_ns, events);
  std::vector<std::pair<std::string, SameLoops>> order(by_chain.begin(),
                                                       by_chain.end());
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto& one) { return one.second.ns; });
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      order.front().second.longest->attends
          ? "Attention is called for one window or sequence at a time: "
          : "Ops are called for one element at a time, in a loop: ";
  for (size_t i = 0; i < std::min(kLoopsShown, order.size()); ++i) {
    const OpLoop& longest = *order[i].second.longest;
    finding.evidence +=
        (i ? ", " : "") + InWords(order[i].first, order[i].second);
    finding.examples.push_back(ExampleOf(m, longest));
  }
  finding.evidence +=
      ". Such loops" +
      std::string(is_backward ? " and their backward passes" : "") + " take " +
      Milliseconds(ns * 1e-6) + " of the " + Milliseconds(m.step_ns() * 1e-6) +
      " step.";
  finding.where = PlaceOf(m, *order.front().second.longest);
  finding.assumption =
      "at best: one call for all elements takes as long as the call for one "
      "element, plus what the ops compute beyond 20 us each, but for gradients "
      "of parts (select, slice), each of which is as large as the whole";
  if (order.front().second.longest->attends) {
    SayFixOfAttention(finding);
  } else {
    SayFix(order.front().first, reads_values, finding);
  }
  if (round_trips) {
    finding.confidence = Confidence::kHint;
    finding.evidence +=
        " Each pass uploads its input and waits for its result; sizes were not "
        "recorded.";
    finding.fix_python =
        "stack the inputs (the observations of all environments, the samples), "
        "call the model once, and read the results once; step environments "
        "together (gymnasium.vector)";
    finding.fix_cpp =
        "at::stack the inputs, call the model once, and read the results once";
  }
  finding.wrong_if =
      "a pass of the loop needs the result of the one before it; "
      "torch.compile on the body of the loop helps then";
  return FireBound(std::move(finding), bound_ns);
}

Verdict CheckUnbatchedLoop(const AnalysisContext& m) {
  std::vector<OpLoop> all = FindOpLoops(m);
  // A single loop over time may do the work of several.
  const std::map<std::string, double> scans = ScansOf(m, all);
  std::vector<OpLoop> single;
  std::erase_if(all, [&](const OpLoop& loop) {
    if (loop.scans == 0 || scans.at(loop.chain) >= kLeastScans) return false;
    if (!loop.has_products && !loop.has_backward) single.push_back(loop);
    return true;
  });
  Verdict verdict = CheckIndependentPasses(m, all, scans);
  AddScans(m, single, verdict);
  return verdict;
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
         "the same chain of at most 64 ops repeats at least 16 times without "
         "anything between (or as often in several loops of at least four "
         "passes each), in two thirds of the steps, or passes that share "
         "60 % of their ops select one element of a tensor after the other; "
         "each pass picks an "
         "element of a tensor, reads a value, multiplies one row or sample "
         "(as a hint, where sizes were not recorded: uploads something and "
         "waits for a result), calls attention and no other product, or adds "
         "one of the elements that aten::unbind "
         "made right before; "
         "and such loops, with their backward passes, take 10 % of the "
         "step",
     .avoid = "the loop is the optimizer's, the data loader's, or one of "
              "collectives; its products have several rows (batches); or "
              "nothing in the backward pass shows that all passes share their "
              "weights (in a stack of layers, they do not); or the index of an "
              "element falls from pass to pass, as for discounted returns, "
              "there are fewer than four such loops per step, and they have "
              "products or gradients",
     .fix_cpp = "one call for all elements: at::stack, index_add_, "
                "broadcasting, at::_foreach_*",
     .fix_python = "one call for all elements: torch.stack, index_add_, "
                   "broadcasting, torch.vmap, torch._foreach_*; .tolist() once "
                   "in place of .item() for each"}};

}  // namespace
}  // namespace loops_rules

extern const std::span<const Rule> kLoops = loops_rules::kRules;

}  // namespace stepscope
