// Does summing rows by index cost more than it needs, in the backward pass of
// x[index] or by index_put? Sources: PyTorch's Indexing.cu, where index_put
// with accumulate=True sorts its indices, and IndexKernel.cpp, where several
// threads add each element with an atomic operation. The backward pass of
// index_select does neither.
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
#include "evidence/tensors/index_puts.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace index_gradients_rules {
namespace {

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
  const bool deterministic = std::ranges::any_of(found, [&](const auto& one) {
    return IsDeterministicSum(m.trace, one.first);
  });
  finding.evidence =
      (deterministic ? "torch.use_deterministic_algorithms is on: scatter_add "
                       "and index_add sum by index_put. "
                     : "") +
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
        "with atomics, and sorts nothing (flatten an index of several "
        "dimensions first)";
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
  if (deterministic) {
    finding.fix_python =
        "torch.use_deterministic_algorithms(False), unless a run must be "
        "reproduced bit by bit; else, where the targets are sorted, sum by "
        "torch.segment_reduce() or a product with a sparse matrix";
    finding.fix_cpp =
        "at::globalContext().setDeterministicAlgorithms(false, false), unless "
        "a run must be reproduced bit by bit";
  }
  finding.wrong_if =
      "results must be the same bit by bit (atomics add in any order), or a "
      "few rows are taken nearly always";
  if (!known) return FireBound(std::move(finding), saved);
  return FireForKernels(m, std::move(finding), std::move(edit), saved);
}

// --- atomic-index-gradient

// Only float32 gradients are added with atomics; in other types, index_select's
// backward pass is the slower one (torch 2.11, 2 threads: 84 ms in float64 and
// 77 in bfloat16, against 27 and 20).
//
// Measured with torch 2.11 on one and two cores, for rows of 1 to 256 float32
// elements: on one thread, the backward pass of x[index] takes 1.0 to 1.7 times
// as long as the forward pass; on two, 3.2 to 14 times. That of index_select
// takes 0.5 to 1.7 times as long as the forward pass of x[index], and its own
// forward pass a quarter to nine tenths.
constexpr double kAtomic = 2;
constexpr double kLeftOfBackward = 0.5;
constexpr double kLeftOfForward = 0.25;
constexpr char kChange[] = "index_select in place of x[index]";

// The backward pass of one x[index].
struct IndexGradient {
  RowId put = kNone;
  RowId forward = kNone;
  double ns = 0, forward_ns = 0;
};

// True if `put` takes a mask with a value per element, of which boolean-mask
// tells. Where sizes are unknown, each mask counts.
bool TakesMaskOfElements(const AnalysisContext& m, RowId put) {
  return std::ranges::any_of(m.tree.inside(put), [&](RowId inner) {
    return PlainNameOf(m.trace, inner) == "nonzero" &&
           DimsOf(m.trace, inner, 0).size() != 1;
  });
}

// True if the gradients that `put` adds up may be float32.
bool MayAddFloats(const AnalysisContext& m, RowId put) {
  constexpr size_t kValues = 2;
  const TensorShape values = TensorArgument(m.trace, put, kValues);
  return !values.known() || m.trace.name(values.type) == "float";
}

std::vector<IndexGradient> FindIndexGradients(const AnalysisContext& m) {
  std::vector<IndexGradient> found;
  const std::span<const Op> ops = m.trace.ops();
  for (RowId row : m.tree.named("aten::_index_put_impl_")) {
    const Op& put = ops[row];
    if (!InSteadyStep(m.steps, put.begin_ns) ||
        IndexPutAround(m.trace, row) != row) {
      continue;
    }
    const RowId node = NodeAround(m.trace, row);
    const RowId forward = node == kNone ? kNone : ops[node].forward;
    if (forward == kNone || TakesMaskOfElements(m, row) ||
        !MayAddFloats(m, row)) {
      continue;
    }
    found.push_back({.put = row,
                     .forward = forward,
                     .ns = static_cast<double>(put.end_ns - put.begin_ns),
                     .forward_ns = static_cast<double>(ops[forward].end_ns -
                                                       ops[forward].begin_ns)});
  }
  return found;
}

Verdict CheckAtomicIndexGradient(const AnalysisContext& m) {
  const std::vector<IndexGradient> found = FindIndexGradients(m);
  if (found.empty()) return Clean();
  double ns = 0, forward_ns = 0;
  std::vector<ShortenedOp> ops;
  for (const IndexGradient& one : found) {
    ns += one.ns;
    forward_ns += one.forward_ns;
    ops.push_back(
        {one.put, std::min(1.0, kLeftOfBackward * one.forward_ns / one.ns)});
    ops.push_back({one.forward, kLeftOfForward});
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  if (ns < kAtomic * forward_ns ||
      (ns - forward_ns) / steps * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  const IndexGradient& longest =
      *std::ranges::max_element(found, {}, &IndexGradient::ns);
  Finding finding = FindingAbout(m, longest.forward, longest.forward,
                                 OpWithShapes(m.trace, longest.forward));
  const bool sized = m.trace.watched(Kind::kOpShapes);
  if (!sized) finding.confidence = Confidence::kHint;
  finding.evidence =
      "The backward pass of x[index], " +
      MeanCount(static_cast<double>(found.size()) / steps, "time") +
      " per step, adds each element with an atomic operation, because several "
      "threads share the work. This takes " +
      Milliseconds(ns / steps * 1e-6) + " per step, " + Times(ns / forward_ns) +
      " times as long as the forward pass.";
  finding.assumption =
      "at best: index_select's backward pass takes half as long as the forward "
      "pass of x[index] does now, and its own forward pass a quarter";
  finding.fix_python =
      "x.index_select(0, index) in place of x[index]: its backward pass adds "
      "whole rows. Flatten an index of several dimensions first, and "
      ".unflatten(0, index.shape) the result; of a mask of rows, take "
      "mask.nonzero().squeeze(1); of x[i, j], x.flatten(0, 1) and "
      "(i * x.size(1) + j).flatten()";
  finding.fix_cpp =
      "x.index_select(0, index) in place of x.index({index}); flatten an index "
      "of several dimensions first";
  finding.wrong_if = std::string(sized ? "" : "x is not float32; or ") +
                     "indices may be negative, which index_select refuses";
  return FireBound(std::move(finding),
                   ShortenOps(m, std::move(ops), kChange).saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "atomic-index-gradient",
     .question = "Does the backward pass of x[index] add single elements with "
                 "atomic operations?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckAtomicIndexGradient,
     .reference = "PyTorch documentation, torch.index_select: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.index_select.html",
     .detect = "aten::_index_put_impl_, in the nodes of x[index], takes twice "
               "as long as the forward ops, and longer than they do by 1 % of "
               "the step",
     .avoid = "the gradients are not float32, and so added without atomics; "
              "the index is a mask with a value per element; on one thread it "
              "takes at most 1.7 times as long",
     .fix_cpp = "index_select in place of index",
     .fix_python = "index_select in place of x[index]"},
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
     .avoid = "the kernels are others, as of masks or of index_select. Inside "
              "scatter_add and index_add they show that "
              "torch.use_deterministic_algorithms is on",
     .fix_cpp = "index_select in place of x[index], index_add_ in place of "
                "index_put_",
     .fix_python = "index_select in place of x[index], index_add_ in place of "
                   "index_put_",
     .change = "indices that are not sorted"}};

}  // namespace
}  // namespace index_gradients_rules

extern const std::span<const Rule> kIndexGradients =
    index_gradients_rules::kRules;

}  // namespace stepscope
