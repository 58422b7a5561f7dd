// Are functions written out in separate ops although PyTorch has one op for
// them? Source: PyTorch documentation of torch.nn.functional: layer_norm,
// rms_norm, batch_norm, gelu, cross_entropy and embedding_bag pass over their
// input once or twice, and have a backward pass of their own.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace written_functions_rules {
namespace {

constexpr char kChange[] = "functions in one op";

enum class Function : uint8_t {
  kLayerNorm,
  kRmsNorm,
  kBatchNorm,
  kGelu,
  kCrossEntropy,
  kEmbeddingBag,
};
struct Words {
  const char* what;
  const char* python;
  const char* cpp;
};
constexpr Words kWords[] = {  // by function
    {"layer normalisation", "nn.LayerNorm(width)",
     "torch::nn::LayerNorm(options)"},
    {"root mean square normalisation", "nn.RMSNorm(width), since PyTorch 2.4",
     "torch::rms_norm(x, shape, weight, eps), since PyTorch 2.4"},
    {"batch normalisation", "nn.BatchNorm1d or nn.BatchNorm2d(channels)",
     "torch::nn::BatchNorm2d(channels)"},
    {"GELU", "F.gelu(x, approximate=\"tanh\")", "torch::gelu(x, \"tanh\")"},
    {"cross entropy",
     "F.cross_entropy(logits, target) on the logits, or F.log_softmax",
     "torch::nn::functional::cross_entropy(logits, target)"},
    {"mean or sum of embeddings", "nn.EmbeddingBag(rows, width, mode=\"mean\")",
     "torch::nn::EmbeddingBag(options)"}};
const Words& WordsOf(Function function) {
  return kWords[static_cast<size_t>(function)];
}

// The ops of one written-out function in one step, in time order.
struct Written {
  size_t step = 0;
  Function function = Function::kLayerNorm;
  std::vector<RowId> ops = {};
  Dims dims = {};
};

// A mean, variance or sum that keeps its dimensions.
struct Reduction {
  Dims dims = {};                  // of its input
  int64_t elements = 0;            // of its result
  std::vector<int64_t> over = {};  // dimensions from 0, ascending
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Written> Find() {
    std::vector<Written> found;
    for (const ForwardStep& step : m_.forward) {
      ops_.clear();
      for (RowId row : step.ops) {
        if (!m_.tree.traits(row).bookkeeping) ops_.push_back(row);
      }
      for (size_t i = 0; i < ops_.size(); ++i) {
        std::optional<Written> one = WrittenAt(i);
        // Without a gradient, it may only prepare the input.
        if (!one || !HasGradient(*one)) continue;
        one->step = step.step;
        while (i + 1 < ops_.size() && ops_[i] != one->ops.back()) ++i;
        found.push_back(*std::move(one));
      }
    }
    return found;
  }

 private:
  std::string_view NameOf(size_t i) const {
    return PlainNameOf(m_.trace, ops_[i]);
  }
  bool Takes(size_t i, int64_t elements) const {
    return TakesElements(m_.trace, ops_[i], elements);
  }
  // Returns the number of elements of an argument; 0 for numbers.
  int64_t Argument(size_t i, size_t index) const {
    const Dims& dims = DimsOf(m_.trace, ops_[i], index);
    return dims.empty() ? 0 : ElementsIn(dims);
  }
  bool TakesBoth(size_t i, int64_t a, int64_t b) const {
    const int64_t first = Argument(i, 0), second = Argument(i, 1);
    return (first == a && second == b) || (first == b && second == a);
  }

  bool HasGradient(const Written& one) {
    return std::ranges::any_of(one.ops, [&](RowId row) {
      return !m_.backward.Of(m_.trace.ops()[row]).empty();
    });
  }

  // Returns the function whose characteristic op is ops_[i].
  std::optional<Written> WrittenAt(size_t i) const {
    const std::string_view name = NameOf(i);
    if (IsAnyOf(name, {"sqrt", "rsqrt", "std"})) return Norm(i);
    if (IsAnyOf(name, {"tanh", "erf"})) return Gelu(i);
    if (name == "log") return CrossEntropy(i);
    if (name == "embedding") return EmbeddingBag(i);
    return {};
  }

  Written Of(Function function, size_t from, size_t to, Dims dims) const {
    return {.function = function,
            .ops = {ops_.begin() + static_cast<std::ptrdiff_t>(from),
                    ops_.begin() + static_cast<std::ptrdiff_t>(to) + 1},
            .dims = std::move(dims)};
  }

  std::optional<Reduction> ReductionAt(size_t i) const {
    const std::string_view name = NameOf(i);
    if (!IsAnyOf(name, {"mean", "var", "std"})) return {};
    const RowId inputs = m_.trace.ops()[ops_[i]].inputs;
    if (inputs == kNone) return {};
    const auto& list = m_.trace.op_inputs()[inputs].arguments;
    // mean(x, dims, keepdim), var(x, dims, correction, keepdim)
    const size_t keeps = name == "mean" ? 2 : 3;
    if (list.size() <= keeps || m_.trace.name(list[keeps].concrete) != "True") {
      return {};
    }
    Reduction one{.dims = list[0].dims};
    if (one.dims.size() < 2) return {};
    one.elements = ElementsIn(one.dims);
    for (int64_t dim : ListArgument(m_.trace, ops_[i], 1)) {
      if (dim < 0) dim += static_cast<int64_t>(one.dims.size());
      if (dim < 0 || dim >= static_cast<int64_t>(one.dims.size())) return {};
      one.elements /= std::max<int64_t>(1, one.dims[static_cast<size_t>(dim)]);
      one.over.push_back(dim);
    }
    std::ranges::sort(one.over);
    if (one.over.empty() || one.elements == ElementsIn(one.dims)) return {};
    return one;
  }

  // Returns the function that normalises over these dimensions.
  static std::optional<Function> FunctionOver(const Reduction& one,
                                              bool subtracts) {
    const auto rank = static_cast<int64_t>(one.dims.size());
    const auto count = static_cast<int64_t>(one.over.size());
    if (one.over.front() == rank - count) {  // the last ones
      return subtracts ? Function::kLayerNorm : Function::kRmsNorm;
    }
    // All dimensions except the channels.
    const bool over_batch =
        count == rank - 1 && std::ranges::count(one.over, 1) == 0;
    if (over_batch && subtracts) return Function::kBatchNorm;
    return {};
  }

  // Returns the norm in which ops_[i] makes a standard deviation or its
  // inverse. Ops before it centre, square and average the input. Ops after it
  // divide by the result, and often scale and shift.
  std::optional<Written> Norm(size_t i) const {
    size_t first = i;
    std::optional<Reduction> reduction = ReductionAt(i);
    // A few ops may lie in between, such as adding epsilon and a clamp.
    while (!reduction && first > 0 && i - first < 4) {
      reduction = ReductionAt(--first);
    }
    if (!reduction) return {};
    const int64_t whole = ElementsIn(reduction->dims);
    const int64_t few = reduction->elements;
    bool subtracts = false;
    while (first > 0 && Prepares(first - 1, whole, few)) --first;
    size_t last = i;
    while (last + 1 < ops_.size() && last - i < 4 &&
           ((NameOf(last + 1) == "sub" && TakesBoth(last + 1, whole, few)) ||
            (Takes(last + 1, few) && !Takes(last + 1, whole)))) {
      ++last;
    }
    if (last + 1 == ops_.size() || !IsAnyOf(NameOf(last + 1), {"div", "mul"}) ||
        !TakesBoth(last + 1, whole, few)) {
      return {};
    }
    ++last;
    while (last + 1 < ops_.size() && Scales(last + 1, whole)) ++last;
    for (size_t k = first; k <= last; ++k) {
      subtracts |= NameOf(k) == "sub" && TakesBoth(k, whole, few);
    }
    const std::optional<Function> function =
        FunctionOver(*reduction, subtracts);
    if (!function) return {};
    return Of(*function, first, last, reduction->dims);
  }

  // True for ops before the standard deviation.
  bool Prepares(size_t i, int64_t whole, int64_t few) const {
    if (NameOf(i) == "sub") return TakesBoth(i, whole, few);
    return IsAnyOf(NameOf(i), {"mean", "var", "pow", "square"}) &&
           Argument(i, 0) == whole;
  }
  // True for scaling or shifting a tensor by numbers or a smaller tensor.
  bool Scales(size_t i, int64_t whole) const {
    const int64_t a = Argument(i, 0), b = Argument(i, 1);
    return IsAnyOf(NameOf(i), {"mul", "add"}) && (a == whole || b == whole) &&
           a != b;
  }

  // 0.5 x (1 + tanh(c (x + d x^3))), 0.5 x (1 + erf(x / sqrt(2)))
  std::optional<Written> Gelu(size_t i) const {
    const Dims& dims = DimsOf(m_.trace, ops_[i], 0);
    const int64_t whole = ElementsIn(dims);
    if (dims.empty()) return {};
    const auto is_part = [&](size_t at) {
      return IsAnyOf(NameOf(at), {"mul", "div", "add", "pow"}) &&
             Argument(at, 0) == whole &&
             (Argument(at, 1) == 0 || Argument(at, 1) == whole);
    };
    size_t first = i, last = i;
    bool cubes = NameOf(i) == "erf";
    while (first > 0 && i - first < 5 && is_part(first - 1)) {
      --first;
      cubes |= NameOf(first) == "pow" &&
               NumberArgument(m_.trace, ops_[first], 1) == 3;
    }
    while (last + 1 < ops_.size() && last - i < 3 && is_part(last + 1)) ++last;
    const bool adds_one =
        last > i && NameOf(i + 1) == "add" && Argument(i + 1, 1) == 0;
    if (!cubes || first == i || !adds_one || last < i + 2) return {};
    return Of(Function::kGelu, first, last, dims);
  }

  // Finds the logarithm of a softmax, up to the op that picks from it or adds
  // it up.
  std::optional<Written> CrossEntropy(size_t i) const {
    const Dims& dims = DimsOf(m_.trace, ops_[i], 0);
    const int64_t whole = ElementsIn(dims);
    if (dims.size() < 2) return {};
    size_t first = i;
    while (first > 0 && i - first < 7 && Takes(first - 1, whole) &&
           IsAnyOf(NameOf(first - 1), {"add", "clamp", "clamp_min", "div",
                                       "sum", "exp", "softmax", "sub"})) {
      --first;
      if (NameOf(first) == "softmax") break;
    }
    const bool from_softmax = first < i && NameOf(first) == "softmax";
    bool from_exp = false;
    for (size_t k = first; k < i; ++k) from_exp |= NameOf(k) == "exp";
    if (!from_softmax && !from_exp) return {};
    for (size_t last = i + 1; last < ops_.size() && last - i <= 6; ++last) {
      if (IsAnyOf(NameOf(last), {"sum", "gather", "nll_loss", "nll_loss_nd",
                                 "mean", "index"}) &&
          Argument(last, 0) == whole) {
        return Of(Function::kCrossEntropy, first, last, dims);
      }
      if (!Takes(last, whole) && NameOf(last) != "one_hot" &&
          NameOf(last) != "arange") {
        return {};
      }
    }
    return {};
  }

  // Finds looked-up rows of which only the mean or sum over a group is read.
  std::optional<Written> EmbeddingBag(size_t i) const {
    const std::optional<Dims> rows = ResultDims(m_.trace, ops_[i]);
    if (!rows || rows->size() < 3 || i + 1 == ops_.size() ||
        !IsAnyOf(NameOf(i + 1), {"mean", "sum"}) ||
        DimsOf(m_.trace, ops_[i + 1], 0) != *rows) {
      return {};
    }
    const std::vector<int64_t> over = ListArgument(m_.trace, ops_[i + 1], 1);
    const auto rank = static_cast<int64_t>(rows->size());
    if (over.size() != 1 || (over[0] != rank - 2 && over[0] != -2)) return {};
    for (size_t k = i + 2; k < ops_.size(); ++k) {
      if (TakesDims(m_.trace, ops_[k], *rows)) return {};
    }
    return Of(Function::kEmbeddingBag, i, i + 1, *rows);
  }

  const AnalysisContext& m_;
  std::vector<RowId> ops_;  // of one step, without views
};

// Appends the ops that a single op makes unnecessary: all ops but the one with
// the median time, and all nodes but the one with the median time, because the
// single op may be as fast as one pass over the tensor. For embeddings: all ops
// but the sum.
void AppendSaved(const AnalysisContext& m, const Written& one,
                 std::vector<ShortenedOp>& ops) {
  const auto append_but_median = [&](std::vector<RowId> rows) {
    if (rows.empty()) return;
    const auto median = rows.begin() + std::ssize(rows) / 2;
    std::ranges::nth_element(rows, median, {}, [&](RowId row) {
      return m.trace.ops()[row].end_ns - m.trace.ops()[row].begin_ns;
    });
    rows.erase(median);
    for (RowId row : rows) ops.push_back({row, 0});
  };
  std::vector<RowId> behind;
  for (RowId row : one.ops) {
    for (RowId node : m.backward.Of(m.trace.ops()[row])) behind.push_back(node);
  }
  if (one.function == Function::kEmbeddingBag) {
    ops.push_back({one.ops.front(), 0});
    // The gradients of the rows are only added to those of the table.
    for (RowId node : m.backward.Of(m.trace.ops()[one.ops.front()])) {
      ops.push_back({node, 0.5});
    }
    for (RowId node : m.backward.Of(m.trace.ops()[one.ops.back()])) {
      ops.push_back({node, 0});
    }
    return;
  }
  append_but_median(one.ops);
  append_but_median(std::move(behind));
}

Verdict CheckWrittenFunction(const AnalysisContext& m) {
  const std::vector<Written> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  std::map<Function, double> runs;
  for (const Written& one : found) {
    AppendSaved(m, one, ops);
    runs[one.function] += 1 / static_cast<double>(m.steps.steady.size());
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Written& longest =
      *std::ranges::max_element(found, {}, [&](const Written& one) {
        return m.trace.ops()[one.ops.back()].end_ns -
               m.trace.ops()[one.ops.front()].begin_ns;
      });
  Finding finding = FindingAbout(m, longest.ops.front(), longest.ops.back(),
                                 WordsOf(longest.function).what);
  finding.evidence = "Written out in single ops: ";
  std::string python, cpp;
  for (const auto& [function, count] : runs) {
    const Words& words = WordsOf(function);
    if (!python.empty()) finding.evidence += ", ";
    finding.evidence += std::string(words.what) + " (" +
                        MeanCount(count, "time") + " per step)";
    python += (python.empty() ? "" : "; ") + std::string(words.python);
    cpp += (cpp.empty() ? "" : "; ") + std::string(words.cpp);
  }
  finding.evidence += "; that of " + InBrackets(longest.dims) + " in " +
                      Count(static_cast<int64_t>(longest.ops.size()), "op") +
                      ", each of which passes over the tensor. What one op "
                      "does away with takes " +
                      Milliseconds(all.ns * 1e-6) +
                      " per step, with the backward passes.";
  finding.assumption =
      "at best: the one op takes no longer than the median of these, forward "
      "and backward";
  finding.fix_python = std::move(python);
  finding.fix_cpp = std::move(cpp);
  finding.wrong_if = "the function differs from PyTorch's on purpose";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "function-by-hand",
     .question =
         "Are functions written out in single ops that PyTorch has in one?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckWrittenFunction,
     .reference = "PyTorch documentation, torch.nn.functional: "
                  "https://docs.pytorch.org/docs/stable/nn.functional.html",
     .detect =
         "in two thirds of the steps, ops with a backward pass follow each "
         "other that make a layer, root mean square or batch normalisation, a "
         "GELU, the logarithm of a softmax that is picked from or added up, or "
         "the mean or sum of embeddings; what one op does away with takes 1 % "
         "of the step",
     .avoid = "inputs are normalised without gradients, the statistics are of "
              "other dimensions, or other ops lie in between",
     .fix_cpp = "torch::nn::functional has these",
     .fix_python = "nn.LayerNorm, nn.RMSNorm, nn.BatchNorm2d, F.gelu, "
                   "F.cross_entropy, nn.EmbeddingBag"}};

}  // namespace
}  // namespace written_functions_rules

extern const std::span<const Rule> kWrittenFunctions =
    written_functions_rules::kRules;

}  // namespace stepscope
