// Are all elements sorted twice to rank them? Is an index sorted, in the
// backward pass of x[index] or by index_put? Sources: the second argsort of a
// permutation computes its inverse, which a scatter writes in one pass; the
// rank of one element is the number of larger elements. PyTorch's Indexing.cu:
// with accumulate=True, index_put sorts its indices.
#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/kernel_evidence.h"
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
      InBrackets(dims) +
      ", which gives the rank of each "
      "element" +
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
  return FireBound(std::move(finding), all.saved_ns);
}

// --- sorted-index-gradient

// Numbers that index_select moves in backward per number of the gradient: it
// reads that number and adds it to a row of x, which it reads and writes.
constexpr double kTensors = 3;

// A call of aten::_index_put_impl_, with its kernels: in the node of x[index],
// or in the program's own index_put with accumulate=True.
struct SortedPut {
  bool of_gradient = false;
  double ns = 0;
  std::vector<const KernelUse*> kernels = {};
};

// Returns the outermost aten::_index_put_impl_ around `op`, possibly `op`
// itself.
RowId IndexPutAround(const Trace& trace, RowId op) {
  RowId put = kNone;
  for (; op != kNone; op = trace.ops()[op].parent) {
    if (trace.name(trace.ops()[op].name).ends_with("index_put_impl_")) put = op;
  }
  return put;
}

std::map<RowId, SortedPut> FindSortedPuts(const AnalysisContext& m) {
  std::map<RowId, SortedPut> found;
  for (const KernelUse& use : m.kernels.uses) {
    const RowId put = IndexPutAround(m.trace, m.trace.kernels()[use.kernel].op);
    if (put == kNone) continue;
    SortedPut& one = found[put];
    one.of_gradient = NodeAround(m.trace, put) != kNone;
    one.ns += use.ns;
    one.kernels.push_back(&use);
  }
  // If there is no sort, PyTorch chose another kernel.
  std::erase_if(found, [&](const auto& entry) {
    return std::ranges::none_of(
        entry.second.kernels, [&](const KernelUse* use) {
          return Contains(m.trace.name(m.trace.kernels()[use->kernel].name),
                          "indexing_backward");
        });
  });
  return found;
}

// Returns, for example, "The backward pass of x[index] sorts the index, 6
// times". Counts are per step.
std::string SorterInWords(double gradients, double puts) {
  if (gradients > 0 && puts > 0) {
    return "The backward pass of x[index], " + MeanCount(gradients, "time") +
           " per step, sorts the index, as does index_put with "
           "accumulate=True, " +
           MeanCount(puts, "time");
  }
  return std::string(gradients > 0 ? "The backward pass of x[index]"
                                   : "Index_put with accumulate=True") +
         " sorts the index, " + MeanCount(gradients + puts, "time");
}

Verdict CheckSortedIndexGradient(const AnalysisContext& m) {
  const std::map<RowId, SortedPut> found = FindSortedPuts(m);
  if (found.empty()) return Clean();
  Edit edit;
  double ns = 0, saved = 0, gradients = 0;
  const auto bytes_of = [&](RowId row) {
    return static_cast<double>(
        BytesOf(m.trace, TensorArgument(m.trace, row, 2)));
  };
  // If any size is unknown, adding the rows counts as free, and the sum becomes
  // a bound.
  const bool known =
      m.kernels.peaks.exact && std::ranges::all_of(found, [&](const auto& one) {
        return bytes_of(one.first) > 0;
      });
  RowId longest = found.begin()->first;
  for (const auto& [row, one] : found) {
    const double least =
        known ? kTensors * bytes_of(row) /
                    (kGoodBandwidth * m.kernels.peaks.bytes_per_ns)
              : 0;
    const double factor = std::min(1.0, least / std::max(one.ns, 1.0));
    for (const KernelUse* use : one.kernels) {
      edit.scales.push_back(Scaled(*use, factor));
    }
    ns += one.ns;
    saved += (1 - factor) * one.ns;
    gradients += one.of_gradient;
    if (one.ns > found.at(longest).ns) longest = row;
  }
  ns /= m.kernels.steps;
  saved /= m.kernels.steps;
  if (saved * 1e-6 < MinReportableGainMs(m)) return Clean();
  const Op& op = m.trace.ops()[longest];
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples.push_back(
      {m.steps.windows[SteadyStepAt(m.steps, op.begin_ns)].number, op.begin_ns,
       op.end_ns, OpWithShapes(m.trace, longest)});
  const double puts = static_cast<double>(found.size()) - gradients;
  finding.evidence =
      SorterInWords(gradients / m.kernels.steps, puts / m.kernels.steps) +
      " per step, and adds up the rows of each place one after another. This "
      "takes " +
      Milliseconds(ns * 1e-6) + " per step (" +
      Percent(ns / std::max(m.kernels.compute_ns, 1.0)) +
      " of the compute time).";
  const RowId node = NodeAround(m.trace, longest);
  const RowId forward = node == kNone ? kNone : m.trace.ops()[node].forward;
  finding.where =
      forward == kNone
          ? CallSites(m.trace).Place(op.thread, op.begin_ns, longest)
          : CallSites(m.trace).Place(m.trace.ops()[forward].thread,
                                     m.trace.ops()[forward].begin_ns, forward);
  finding.assumption =
      known ? "atomic additions reach 80 % of the memory bandwidth; " +
                  PeaksInWords(m.kernels.peaks)
            : "at best: atomic additions take no time";
  if (gradients > 0) {
    finding.fix_python =
        "x.index_select(0, index) in place of x[index]: its backward pass adds "
        "with atomics, and sorts nothing";
    finding.fix_cpp = "x.index_select(0, index) in place of x.index({index})";
  }
  if (puts > 0) {
    const std::string behind = gradients > 0 ? "; " : "";
    finding.fix_python += behind +
                          "x.index_add_(0, index, rows) in place of "
                          "x.index_put_((index,), rows, accumulate=True): it "
                          "adds with atomics";
    finding.fix_cpp += behind +
                       "x.index_add_(0, index, rows) in place of "
                       "x.index_put_({index}, rows, true)";
  }
  finding.wrong_if =
      "results must be the same bit by bit (atomics add in any order), or a "
      "few rows are taken nearly always";
  if (!known) return FireBound(std::move(finding), saved);
  return FireForKernels(m, std::move(finding), std::move(edit), saved);
}

constexpr Rule kRules[] = {
    {.id = "sorted-index-gradient",
     .question = "Is an index sorted, in the backward pass of x[index] or by "
                 "index_put?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckSortedIndexGradient,
     .reference = "PyTorch documentation, "
                  "torch.use_deterministic_algorithms: index_put_ with "
                  "accumulate=True, and index_add: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.use_deterministic_algorithms.html",
     .detect =
         "aten::_index_put_impl_, in the node of x[index] or called with "
         "accumulate=True, launches indexing_backward_kernel, which needs the "
         "index sorted, and moving the rows three times at 80 % of the memory "
         "bandwidth takes 1 % of the step less (where sizes or the device are "
         "unknown: the kernels "
         "take 1 %)",
     .avoid = "the kernels are others, as of masks or of index_select",
     .fix_cpp = "index_select in place of x[index], index_add_ in place of "
                "index_put_",
     .fix_python = "index_select in place of x[index], index_add_ in place of "
                   "index_put_",
     .change = "indices that are not sorted"},
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
