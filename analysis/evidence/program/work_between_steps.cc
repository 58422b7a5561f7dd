#include "evidence/program/work_between_steps.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "evidence/loading.h"
#include "evidence/optimizer_work.h"
#include "evidence/program/plain_name.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "ops/update_span.h"
#include "steps/optimizer_spans.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "steps/step_facts.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Ops that summarise a tensor or search it for values. ATen names (torch 2.x),
// without "_foreach_" and "linalg_".
constexpr auto kStatistics = std::to_array<std::string_view>(
    {"_linalg_eigh", "_linalg_svd",    "_unique2",      "all",
     "allclose",     "amax",           "amin",          "aminmax",
     "any",          "argmax",         "argmin",        "bincount",
     "cond",         "corrcoef",       "count_nonzero", "cov",
     "eigvalsh",     "frobenius_norm", "histc",         "histogram",
     "isclose",      "isfinite",       "isinf",         "isnan",
     "kthvalue",     "logsumexp",      "matrix_norm",   "matrix_rank",
     "max",          "mean",           "median",        "min",
     "mode",         "nanmean",        "nanmedian",     "nanquantile",
     "nansum",       "norm",           "quantile",      "sort",
     "std",          "std_mean",       "sum",           "svd",
     "svdvals",      "topk",           "unique_dim",    "var",
     "var_mean",     "vector_norm"});

// How many such ops may lead to a single value that is read, such as the mean
// of a comparison with the largest element. Our own choice.
constexpr int64_t kReadTogether = 4;

}  // namespace

bool IsStatistics(std::string_view op) {
  std::string_view name = PlainName(op);
  for (std::string_view family : {"_foreach_", "linalg_"}) {
    if (name.starts_with(family)) name.remove_prefix(family.size());
  }
  return std::ranges::find(kStatistics, name) != kStatistics.end();
}

std::vector<Span> JudgedElsewhere(const AnalysisContext& m) {
  std::vector<Span> spans = LoaderSpans(m.trace, m.steps.thread);
  const auto add = [&](const std::vector<Span>& more) {
    spans.insert(spans.end(), more.begin(), more.end());
  };
  add(SavingSpans(m.trace, m.steps.thread));
  add(ValidationPasses(m.trace, m.steps.thread));
  add(FindCollation(m).spans);
  for (const Range& range : m.trace.ranges()) {
    if (range.thread == m.steps.thread &&
        (range.kind == RangeKind::kOptimizer ||
         (range.kind == RangeKind::kPhase &&
          m.trace.name(range.name) == "data"))) {
      spans.push_back(range.kind == RangeKind::kOptimizer
                          ? UpdateSpanOf(m.trace, range)
                          : Span{range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

namespace {

// True for an in-place update of a list of tensors.
bool IsGrouped(std::string_view op) {
  return op.ends_with("_") &&
         (op.starts_with("aten::_foreach_") || op.starts_with("aten::_fused_"));
}

// True for ops with which a program reads values: .item(), .tolist(), .numpy().
bool Reads(std::string_view op) {
  return op == "aten::_local_scalar_dense" || op == "aten::resolve_neg";
}

// Fewer ops of one kind may be anything; models have more parameters. Our own
// choice.
constexpr size_t kFewestParameters = 16;
// Names occur equally often in a loop if their counts differ by at most this
// share. A loop passes over all parameters if it has at least
// kMostOfParameters as many passes; it may pass over buffers as well.
constexpr double kEqualCounts = 0.1;
constexpr double kMostOfParameters = 0.8;

// How many tensors an op on a single tensor reads and writes.
double TensorsMoved(std::string_view op) {
  const std::string_view name = PlainName(op);
  return IsAnyOf(name, {"add", "sub", "lerp", "addcmul", "addcdiv"}) ? 3 : 2;
}
// lerp_ reads the parameter and its average, and writes the average.
constexpr double kTensorsOfLerp = 3;

using Sizes = std::vector<int64_t>;

// Returns the sizes of the parameters, taken from their gradients. Leaves out
// scalars and parameters with one element, whose sizes prove nothing.
std::set<Sizes> SizesOfParameters(const AnalysisContext& m) {
  std::set<Sizes> sizes;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (!m.tree.traits(row).accumulate_grad) continue;
    const TensorShape gradient = TensorArgument(m.trace, row, 0);
    if (ElementsOf(gradient) > 1) sizes.insert(gradient.dims);
  }
  return sizes;
}

// Maps the number of bytes of each size, stored in float32, to the size.
std::map<int64_t, Sizes> BytesOf(const std::set<Sizes>& sizes) {
  std::map<int64_t, Sizes> bytes;
  for (const Sizes& one : sizes) {
    bytes.emplace(ElementsIn(one) * static_cast<int64_t>(sizeof(float)), one);
  }
  return bytes;
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context),
        sizes_(SizesOfParameters(context)),
        bytes_(BytesOf(sizes_)),
        judged_(JudgedElsewhere(context)) {}

  WorkBetweenSteps Find() {
    const std::span<const RowId> rows = m_.tree.of_thread(m_.steps.thread);
    for (size_t i = 0; i < rows.size();) {
      // Take one outermost op with all ops inside it.
      size_t next = i + 1;
      bool is_model = IsOfModel(rows[i]), reads = Reads(NameOf(rows[i]));
      for (; next < rows.size() && OpAt(rows[next]).parent != kNone; ++next) {
        is_model |= IsOfModel(rows[next]);
        reads |= Reads(NameOf(rows[next]));
      }
      // An op that records autograd nodes raises the sequence number of the
      // next op.
      const bool makes_node =
          next < rows.size() && OpAt(rows[i]).sequence >= 0 &&
          OpAt(rows[next]).sequence > OpAt(rows[i]).sequence;
      if (makes_node && after_update_) nodes_.insert(rows[i]);
      Take(rows[i], is_model, reads);
      i = next;
    }
    Close(m_.steps.windows.size());
    DropFewSizes();
    if (!m_.trace.watched(Kind::kOpShapes)) FindLoopOverParameters();
    DropUnreadStatistics();
    for (const Span& update : m_.parts.optimizer.spans) {
      updated_.insert(SteadyStepAt(m_.steps, update.begin_ns));
    }
    updated_.erase(m_.steps.windows.size());
    found_.updated_steps = static_cast<double>(updated_.size());
    return std::move(found_);
  }

 private:
  const Op& OpAt(RowId row) const { return m_.trace.ops()[row]; }
  std::string_view NameOf(RowId row) const {
    return m_.trace.name(OpAt(row).name);
  }

  bool IsOfModel(RowId row) const {
    const std::string_view name = NameOf(row);
    return m_.tree.in_backward(row) || m_.tree.traits(row).matmul ||
           name.starts_with("aten::embedding") ||
           m_.tree.traits(row).kind == KernelClass::kAttention;
  }

  // Returns the parameter size that `one` matches, by its sizes or, for a
  // storage, by its bytes; nullptr if there is none.
  const Sizes* ParameterLike(const Argument& one) const {
    if (const auto same = sizes_.find(one.dims); same != sizes_.end()) {
      return &*same;
    }
    if (!IsStorage(one)) return nullptr;
    const auto same = bytes_.find(one.dims.front());
    return same == bytes_.end() ? nullptr : &same->second;
  }

  // True for a flat tensor of bytes: copy.deepcopy() copies storages.
  bool IsStorage(const Argument& one) const {
    return one.dims.size() == 1 && m_.trace.name(one.type) == "unsigned char";
  }

  bool CopiesWeights(RowId row) const {
    if (NameOf(row) != "aten::copy_" || OpAt(row).inputs == kNone) return false;
    const std::vector<Argument>& arguments =
        m_.trace.op_inputs()[OpAt(row).inputs].arguments;
    return !arguments.empty() && IsStorage(arguments.front()) &&
           ParameterLike(arguments.front()) != nullptr;
  }

  bool TakesWeights(RowId row) const {
    if (OpAt(row).inputs == kNone) return false;
    const auto is_weight = [&](const Argument& one) {
      return ParameterLike(one) != nullptr;
    };
    return std::ranges::any_of(
        m_.trace.op_inputs()[OpAt(row).inputs].arguments,
        [&](const Argument& one) {
          return is_weight(one) || std::ranges::any_of(one.elements, is_weight);
        });
  }

  // Processes an outermost op. is_model, reads: the op, or one inside it,
  // belongs to the model, or reads a value.
  void Take(RowId row, bool is_model, bool reads) {
    const Op& op = OpAt(row);
    if (Covers(m_.parts.optimizer.spans, op.begin_ns)) {
      after_update_ = true;
      return;
    }
    const std::string_view name = NameOf(row);
    const bool is_statistics = IsStatistics(name);
    if (is_model && !is_statistics) {
      Close(WindowAt(m_.steps, &StepWindow::host, op.begin_ns));
      after_update_ = false;
      return;
    }
    const OpTraits& traits = m_.tree.traits(row);
    if (!after_update_ || traits.zeroing || traits.communication ||
        IsGrouped(name) || name.starts_with("aten::_amp_") ||
        Covers(judged_, op.begin_ns)) {
      return;
    }
    OpBetweenSteps one{
        .row = row,
        .step = WindowAt(m_.steps, &StepWindow::host, op.begin_ns),
        .span = {op.begin_ns, op.end_ns}};
    if (one.step == m_.steps.windows.size()) return;
    if (reads) ++reads_[one.step];
    if (is_statistics) {
      one.kind = BetweenSteps::kStatistics;
    } else if (CopiesWeights(row)) {
      one.kind = BetweenSteps::kCopies;
    } else if (TakesWeights(row)) {
      one.views_weights = traits.bookkeeping;
      if (!traits.bookkeeping) one.kind = BetweenSteps::kWeights;
    }
    if (!open_.empty() &&
        op.begin_ns - open_.back().span.end_ns <= kFrameworkGapNs) {
      one.span.begin_ns = std::min(op.begin_ns, open_.back().span.end_ns);
    }
    open_.push_back(one);
  }

  // Called when a pass of the model starts in step `next`, or the recording
  // ends.
  void Close(size_t next) {
    bool in_pass = false;
    for (const OpBetweenSteps& one : open_) {
      const bool may_prepare = one.step == next ||
                               one.step != open_.front().step ||
                               !m_.steps.step_source.empty();
      // The pass may have started earlier, with ops that are no products.
      in_pass |= may_prepare && nodes_.contains(one.row);
      if (in_pass || (may_prepare && !TakesWeights(one.row))) continue;
      if (!std::ranges::binary_search(m_.steps.steady, one.step)) continue;
      if (may_prepare) prepare_.insert(one.row);
      found_.ops.push_back(one);
    }
    open_.clear();
    nodes_.clear();
  }

  // Drops findings if the ops take few different sizes of parameters: a batch
  // may happen to have the size of one weight, but not of two.
  void DropFewSizes() {
    std::set<Sizes> seen;
    for (const OpBetweenSteps& one : found_.ops) {
      if (OpAt(one.row).inputs == kNone) continue;
      for (const Argument& argument :
           m_.trace.op_inputs()[OpAt(one.row).inputs].arguments) {
        if (const Sizes* one_of = ParameterLike(argument)) seen.insert(*one_of);
        for (const Argument& element : argument.elements) {
          if (const Sizes* one_of = ParameterLike(element)) {
            seen.insert(*one_of);
          }
        }
      }
    }
    has_sizes_ = seen.size() > 1 && 2 * seen.size() > sizes_.size();
    if (has_sizes_) return;
    std::erase_if(found_.ops, [&](const OpBetweenSteps& one) {
      return prepare_.contains(one.row);
    });
    for (OpBetweenSteps& one : found_.ops) {
      if (one.kind == BetweenSteps::kWeights ||
          one.kind == BetweenSteps::kCopies) {
        one.kind = BetweenSteps::kOther;
      }
    }
  }

  // Without sizes: ops that update a tensor in place, and as many of other
  // updates, as often as there are parameters, work on the weights one by one.
  void FindLoopOverParameters() {
    const auto passes = AccumulationsOfAPass(m_.trace, m_.tree, m_.steps);
    std::map<std::pair<size_t, NameId>, std::vector<OpBetweenSteps*>> by_name;
    for (OpBetweenSteps& one : found_.ops) {
      if (one.kind == BetweenSteps::kOther && m_.tree.traits(one.row).update) {
        by_name[{one.step, OpAt(one.row).name}].push_back(&one);
      }
    }
    std::map<size_t, double> most;  // by step: ops of one name, in place
    for (const auto& [key, ops] : by_name) {
      if (m_.trace.name(key.second).ends_with('_')) {
        most[key.first] =
            std::max(most[key.first], static_cast<double>(ops.size()));
      }
    }
    for (const auto& [key, ops] : by_name) {
      const auto parameters = static_cast<double>(
          std::max(passes[key.first].size(), kFewestParameters));
      const double loop = most[key.first];
      if (loop < kMostOfParameters * parameters ||
          std::abs(static_cast<double>(ops.size()) - loop) >
              kEqualCounts * loop) {
        continue;
      }
      for (OpBetweenSteps* one : ops) one->kind = BetweenSteps::kWeights;
    }
  }

  // A program that logs values reads them. So unread statistics of anything but
  // weights may be part of the next batch.
  void DropUnreadStatistics() {
    std::map<size_t, int64_t> statistics;
    for (const OpBetweenSteps& one : found_.ops) {
      statistics[one.step] += one.kind == BetweenSteps::kStatistics;
    }
    for (OpBetweenSteps& one : found_.ops) {
      if (one.kind == BetweenSteps::kStatistics &&
          !(has_sizes_ && TakesWeights(one.row)) &&
          kReadTogether * reads_[one.step] < statistics[one.step]) {
        one.kind = BetweenSteps::kOther;
      }
    }
  }

  const AnalysisContext& m_;
  const std::set<Sizes> sizes_;
  const std::map<int64_t, Sizes> bytes_;  // of these sizes, in float32
  const std::vector<Span> judged_;
  std::set<size_t> updated_;
  std::map<size_t, int64_t> reads_;  // by step
  bool has_sizes_ = false;           // ops work on weights
  std::set<RowId> prepare_;          // ops that may prepare the next pass
  WorkBetweenSteps found_;
  std::vector<OpBetweenSteps> open_;  // since the last update
  std::set<RowId> nodes_;             // ops of open_ that autograd records
  bool after_update_ = false;
};

}  // namespace

WorkBetweenSteps FindWorkBetweenSteps(const AnalysisContext& context) {
  if (context.steps.thread == kNone) return {};
  return Finder(context).Find();
}

// Memory, not arithmetic, limits updates.
double LeftInOnePass(const AnalysisContext& context,
                     const std::vector<OpBetweenSteps>& ops) {
  const Trace& trace = context.trace;
  if (!trace.watched(Kind::kOpShapes)) {
    // Each name occurs once per parameter.
    std::set<NameId> names;
    double moved = 0;
    for (const OpBetweenSteps& one : ops) {
      const NameId name = trace.ops()[one.row].name;
      if (names.insert(name).second) moved += TensorsMoved(trace.name(name));
    }
    return std::min(1.0, kTensorsOfLerp / moved);
  }
  std::map<size_t, std::set<Sizes>> sizes_by_step;
  Paces paces;
  double ns = 0, moved = 0;
  for (const OpBetweenSteps& one : ops) {
    const double bytes = CostOf(trace, one.row).bytes;
    if (bytes <= 0) continue;
    const Op& op = trace.ops()[one.row];
    const auto length = static_cast<double>(op.end_ns - op.begin_ns);
    ns += length;
    moved += bytes;
    paces.push_back({length / bytes, bytes});
    for (const Argument& argument : trace.op_inputs()[op.inputs].arguments) {
      sizes_by_step[one.step].insert(argument.dims);
    }
  }
  const auto passes = AccumulationsOfAPass(trace, context.tree, context.steps);
  double once = 0;  // bytes
  for (const auto& [step, sizes] : sizes_by_step) {
    for (RowId row : passes[step]) {
      const TensorShape gradient = TensorArgument(trace, row, 0);
      if (!sizes.contains(gradient.dims)) continue;
      once += kTensorsOfLerp * static_cast<double>(BytesOf(trace, gradient));
    }
  }
  if (moved <= 0 || once <= 0) return 1;
  // If a GPU computes, host time does not show the pace.
  return std::min(1.0, context.has_gpu
                           ? once / moved
                           : once * MedianPace(std::move(paces)) / ns);
}

}  // namespace stepscope
