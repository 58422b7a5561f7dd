// Is more sorted than needed? Sources: the second argsort of a permutation
// computes its inverse, which a scatter writes in one pass; the rank of one
// element is the number of larger elements. FlashInfer, "Sorting-Free GPU
// Kernels for LLM Sampling": top-p sampling needs no sorted vocabulary.
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace sorting_rules {
namespace {

// --- double-argsort

constexpr char kChange[] = "ranks without a second sort";

// x.argsort().argsort(), in one step.
struct Ranking {
  size_t step = 0;
  RowId first = kNone, second = kNone;
  bool few = false;  // a gather uses only a few of the ranks
};

bool IsSort(std::string_view name) {
  return IsAnyOf(name, {"argsort", "sort", "msort"});
}

// True if the next op that takes the ranks gathers less than half of them.
bool TakesFew(const AnalysisContext& m, const ForwardStep& step, size_t i,
              const Dims& ranks) {
  for (++i; i < step.ops.size(); ++i) {
    const RowId row = step.ops[i];
    if (!TakesDims(m.trace, row, ranks)) continue;
    return PlainNameOf(m.trace, row) == "gather" &&
           2 * ElementsIn(DimsOf(m.trace, row, 2)) < ElementsIn(ranks);
  }
  return false;
}

std::vector<Ranking> FindRankings(const AnalysisContext& m) {
  std::vector<Ranking> found;
  for (const ForwardStep& step : m.forward) {
    RowId last = kNone;  // last sort, if no op took or made such a tensor since
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const RowId row = step.ops[i];
      if (m.tree.traits(row).bookkeeping) continue;
      const Dims& dims = DimsOf(m.trace, row, 0);
      const bool sorts = IsSort(PlainNameOf(m.trace, row));
      if (sorts && last != kNone && dims == DimsOf(m.trace, last, 0) &&
          // argsort makes integers. A second sort of real numbers sorts
          // something else.
          IsAnyOf(m.trace.name(TensorArgument(m.trace, row, 0).type),
                  {"long int", "int"})) {
        found.push_back({step.step, last, row, TakesFew(m, step, i, dims)});
        last = kNone;
      } else if (sorts) {
        last = row;
      } else if (last != kNone &&
                 TakesDims(m.trace, row, DimsOf(m.trace, last, 0))) {
        last = kNone;
      }
    }
  }
  return found;
}

Verdict CheckDoubleArgsort(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<Ranking> found = FindRankings(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Ranking& one : found) {
    ops.push_back({one.second, 0});
    // A few ranks can be found by counting larger elements, without any sort.
    if (one.few) ops.push_back({one.first, 0});
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Ranking& one = found.front();
  const Dims& dims = DimsOf(m.trace, one.first, 0);
  Finding finding =
      FindingAbout(m, one.first, one.second, "sorting, and sorting the order");
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[one.second].name)) +
      " sorts the order returned by " +
      std::string(m.trace.name(m.trace.ops()[one.first].name)) + " for " +
      InBrackets(dims) + ", which gives the rank of each element" +
      (one.few ? ", and a gather takes a few of these ranks. Both sorts take "
               : ". The second sort takes ") +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: ranks take no time without it";
  if (one.few) {
    finding.fix_python =
        "count the larger elements: rank = (scores > scores.gather(1, "
        "index)).sum(1)";
    finding.fix_cpp =
        "count the larger elements: (scores > scores.gather(1, "
        "index)).sum(1)";
  } else {
    finding.fix_python =
        "invert the order: ranks = torch.empty_like(order).scatter_(1, order, "
        "torch.arange(n).expand_as(order))";
    finding.fix_cpp =
        "invert the order: torch::empty_like(order).scatter_(1, order, "
        "torch::arange(n).expand_as(order))";
  }
  finding.wrong_if = "the second sort is of other numbers of the same sizes";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

// --- sorted-sampling

// Top-p sampling of tokens in one step: sort, softmax, cumsum, and what removes
// the unlikely tokens, up to the scatter that brings them back in order.
struct Sampling {
  size_t step = 0;
  std::vector<RowId> ops = {};
};

std::vector<Sampling> FindSamplings(const AnalysisContext& m) {
  constexpr std::string_view kFirst[] = {"sort", "softmax", "cumsum"};
  constexpr size_t kMostOps = 12;  // our own choice
  std::vector<Sampling> found;
  for (const ForwardStep& step : m.forward) {
    Sampling open{.step = step.step};
    bool done = false;
    for (RowId row : step.ops) {
      if (m.tree.traits(row).bookkeeping) continue;
      const std::string_view name = PlainNameOf(m.trace, row);
      const size_t at = open.ops.size();
      if (at < std::size(kFirst) ? name != kFirst[at] : at == kMostOps) {
        open.ops.clear();
        if (name == kFirst[0]) open.ops.push_back(row);
        continue;
      }
      open.ops.push_back(row);
      if (name == "scatter") {
        found.push_back(std::exchange(open, {.step = step.step}));
        done = true;
      }
    }
    // Without a scatter, the token is drawn in sorted order, and taken from
    // the order by a gather.
    if (!done && open.ops.size() > std::size(kFirst)) {
      open.ops.resize(std::size(kFirst));
      found.push_back(std::move(open));
    }
  }
  return found;
}

Verdict CheckSortedSampling(const AnalysisContext& m) {
  if (m.steps.thread == kNone || Trains(m.trace)) return Clean();
  const std::vector<Sampling> found = FindSamplings(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Sampling& one : found) {
    for (RowId row : one.ops) ops.push_back({row, 0});
  }
  const ShortenedOps all =
      ShortenOps(m, std::move(ops), "sampling without sorting");
  const Sampling& first = found.front();
  const Dims& dims = DimsOf(m.trace, first.ops.front(), 0);
  Finding finding = FindingAbout(m, first.ops.front(), first.ops.back(),
                                 "sorting, and keeping the likely tokens");
  finding.evidence =
      "To sample from the most likely tokens (top-p), all " +
      (dims.empty() ? std::string("scores") : "scores of " + InBrackets(dims)) +
      " are sorted, summed up and put back in order. This takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: sampling takes no time";
  finding.fix_python =
      "a sampler that does not sort: flashinfer.sampling."
      "top_k_top_p_sampling_from_probs (vLLM: VLLM_USE_FLASHINFER_SAMPLER=1); "
      "or choose the top_k first (torch.topk), and sort only those";
  finding.fix_cpp =
      "take the k most likely tokens first (at::topk), and sort only those";
  finding.wrong_if = "the order of all tokens is needed";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "sorted-sampling",
     .question = "Is the whole vocabulary sorted to sample a token?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckSortedSampling,
     .reference = "FlashInfer documentation, flashinfer.sampling: "
                  "https://docs.flashinfer.ai/api/sampling.html",
     .detect = "nothing is trained, and in two thirds of the steps a sort, a "
               "softmax and a cumulative sum follow each other, up to a "
               "scatter at most nine ops later, for 1 % of the step",
     .avoid = "the scores are sorted for other reasons: no softmax and "
              "cumulative sum follow",
     .fix_cpp = "at::topk first, and sort only those",
     .fix_python = "a sampler that does not sort, or torch.topk first"},
    {.id = "double-argsort",
     .question = "Are all elements sorted twice to rank them?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckDoubleArgsort,
     .reference = "PyTorch documentation, torch.argsort: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.argsort.html",
     .detect =
         "in two thirds of the steps, a sort is followed by one of "
         "integers of the same sizes, and no other op takes such a tensor "
         "in between; the second, and the first if a gather takes less "
         "than half of the ranks, is 1 % of the step",
     .avoid = "another op takes the order in between",
     .fix_cpp = "(scores > scores.gather(1, index)).sum(1), or scatter_",
     .fix_python = "(scores > scores.gather(1, index)).sum(1), or scatter_"}};

}  // namespace
}  // namespace sorting_rules

extern const std::span<const Rule> kSorting = sorting_rules::kRules;

}  // namespace stepscope
