// Does a step compute a large tensor and then use only a small part of it?
// Source: PyTorch documentation, tensor views: slices are views and cost
// nothing, wherever they are taken.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
namespace selections_rules {
namespace {

// If half of the tensor is used, other reasons may decide the order.
constexpr double kMostUsed = 0.5;
// A smaller tensor stays in a core's second-level cache (1 to 2 MiB on current
// server CPUs), where passing over it costs little.
constexpr int64_t kLeastBytes = 1 << 20;
// Gathering a row of weights for each score, with its gradient, takes as long
// as 64 scores of a product: some 8 passes over the row at 10 bytes per ns,
// while a core does at least 25 operations per ns. Measured on two cores: 256
// of 1024 scores took 35 times as long, 21 of 20000 took two fifths of the
// time.
constexpr double kScoresPerRow = 64;
constexpr char kChange[] = "selecting first";

// What makes the large tensor, which decides how to select first.
enum class Maker : uint8_t {
  kGather,
  kProduct,
  kScores,  // a product from which a gather takes columns
  kSort,
  kShuffle,
  kElementwise
};

// A part of a tensor that an op takes.
struct Part {
  size_t dim = 0;
  double share = 1;
  bool at_end = false;  // touches an end of the dimension
  Dims dims = {};       // sizes of the part
};

// A chain of ops that makes a large tensor, and the ops that take parts of it.
struct Chain {
  size_t step = 0;
  std::vector<RowId> ops = {}, selections = {};
  Dims dims = {};
  int64_t bytes = 0;
  double used = 0;        // share of the tensor
  double left = 0;        // least share of the time that remains
  int64_t behind_ns = 0;  // pauses after the ops, which free memory
  Maker maker = Maker::kElementwise;
  bool sure = true;  // its source is known to be another tensor
};

// The share of each dimension that a part takes.
using Shares = std::map<size_t, double>;

// What ops have read so far of the tensors of one size.
struct Reading {
  std::vector<RowId> ops = {}, selections = {};
  std::vector<Shares> parts = {};
  double bases = 1;  // number of tensors
  int64_t bytes = 0;
  bool at_end = true, gathers = false, sure = false;
};

bool IsGather(std::string_view name) {
  return IsAnyOf(name, {"index", "index_select", "gather", "embedding"});
}

bool IsSort(std::string_view name) {
  return IsAnyOf(name, {"sort", "argsort"});
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Chain> Find() const {
    std::vector<Chain> found;
    for (const ForwardStep& step : m_.forward) {
      std::set<Dims> bases;
      for (RowId row : step.ops) {
        const Dims& dims = DimsOf(m_.trace, row, 0);
        if (PartOf(row, dims) &&
            BytesOf(m_.trace, TensorArgument(m_.trace, row, 0)) >=
                kLeastBytes) {
          bases.insert(dims);
        }
      }
      for (const Dims& base : bases) Read(step, base, found);
    }
    return found;
  }

 private:
  // Returns the part of a tensor of size `dims` that `row` takes; nullopt if
  // `row` is no selection, or takes everything.
  std::optional<Part> PartOf(RowId row, const Dims& dims) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (IsAnyOf(name, {"index", "embedding"})) return RowsOf(row, dims);
    if (name == "gather") return GatheredOf(row, dims);
    if (!IsAnyOf(name, {"slice", "narrow", "select", "index_select"})) {
      return {};
    }
    const std::optional<size_t> dim =
        DimArgument(m_.trace, row, 1, dims.size());
    if (!dim || dims[*dim] <= 0) return {};
    const int64_t size = dims[*dim];
    Part part{.dim = *dim, .dims = dims};
    int64_t count = 1;
    if (const auto range = SliceArguments(m_.trace, row)) {
      count = range->count();
      part.at_end =
          range->step == 1 && (range->begin == 0 || range->end == size);
    } else if (name == "index_select") {
      count = ElementsOf(TensorArgument(m_.trace, row, 2));
    } else {
      const int64_t at = NumberArgument(m_.trace, row, 2).value_or(0);
      part.at_end = at == 0 || at == size - 1 || at == -1 || at == -size;
      part.dims.erase(part.dims.begin() + static_cast<int64_t>(*dim));
    }
    if (name != "select") part.dims[*dim] = count;
    if (count >= size && name != "select") return {};
    part.share = static_cast<double>(count) / static_cast<double>(size);
    return part;
  }

  // PartOf() for x[index]. The gradient tells how many rows it takes.
  std::optional<Part> RowsOf(RowId row, const Dims& dims) const {
    const Op& op = m_.trace.ops()[row];
    Part part;
    if (PlainNameOf(m_.trace, row) == "embedding") {
      part.dims = ResultDims(m_.trace, row).value_or(Dims());
    } else {
      for (RowId node : m_.backward.Of(op)) {
        // The engine's range has no arguments, but the node inside it has.
        part.dims = DimsOf(m_.trace, node, 0);
        if (part.dims.empty() && node + 1 < m_.trace.ops().size()) {
          part.dims = DimsOf(m_.trace, node + 1, 0);
        }
      }
    }
    const size_t behind = dims.empty() ? 0 : dims.size() - 1;
    if (part.dims.size() <= behind ||
        !std::equal(dims.begin() + 1, dims.end(), part.dims.end() - behind)) {
      return {};
    }
    part.share = static_cast<double>(ElementsIn(part.dims)) /
                 std::max(static_cast<double>(ElementsIn(dims)), 1.0);
    return part.share < 1 ? std::optional(part) : std::nullopt;
  }

  // PartOf() for x.gather(dim, index).
  std::optional<Part> GatheredOf(RowId row, const Dims& dims) const {
    const std::optional<size_t> dim =
        DimArgument(m_.trace, row, 1, dims.size());
    const Dims& index = DimsOf(m_.trace, row, 2);
    if (!dim || index.size() != dims.size() || index[*dim] >= dims[*dim]) {
      return {};
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (i != *dim && index[i] != dims[i]) return {};
    }
    return Part{.dim = *dim,
                .share = static_cast<double>(index[*dim]) /
                         static_cast<double>(dims[*dim]),
                .dims = index};
  }

  // True if `row` may have made a tensor of size `dims`, each part of which
  // depends only on parts of the arguments. Commutes() tells on which parts.
  bool Makes(RowId row, const Dims& dims) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (name == "index") {  // x[order]: another number of rows
      const Dims& source = DimsOf(m_.trace, row, 0);
      return source.size() == dims.size() && !dims.empty() &&
             std::equal(source.begin() + 1, source.end(), dims.begin() + 1);
    }
    if (!IsElementwise(name) && !IsProduct(name) && !IsGather(name) &&
        !IsSort(name) &&
        !IsAnyOf(name,
                 {"softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum",
                  "flip", "cat", "pad", "constant_pad_nd", "randperm"})) {
      return false;
    }
    return ResultDims(m_.trace, row) == dims;
  }

  // True if selecting along `selected` before `row` gives the same result.
  // Sorting to get the first or last elements can be replaced by another op.
  bool Commutes(RowId row, const Dims& dims, const std::set<size_t>& selected,
                bool at_end) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (IsAnyOf(name, {"layer_norm", "rms_norm"})) {
      const size_t normalised = ListArgument(m_.trace, row, 1).size();
      return normalised > 0 && normalised <= dims.size() &&
             *selected.rbegin() < dims.size() - normalised;
    }
    if (IsAnyOf(name, {"softmax", "log_softmax", "cumsum"}) || IsSort(name)) {
      // sort(stable, dim, descending) has an additional flag.
      std::optional<size_t> dim;
      for (size_t i = 1; i < 3 && !dim; ++i) {
        dim = DimArgument(m_.trace, row, i, dims.size());
      }
      if (!dim) return false;
      const bool along = selected.contains(*dim);
      return !along || (IsSort(name) && at_end && selected.size() == 1);
    }
    return true;
  }

  // Finds chains on tensors of size `base`: ops that make one, followed only by
  // ops that take parts of it.
  void Read(const ForwardStep& step, const Dims& base,
            std::vector<Chain>& found) const {
    Reading now;
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const RowId row = step.ops[i];
      const bool takes = TakesDims(m_.trace, row, base);
      if (DimsOf(m_.trace, row, 0) == base && PartOf(row, base)) {
        if (!now.ops.empty()) TakePart(step.ops, i, base, now);
        continue;
      }
      const bool makes = Makes(row, base);
      // Allow labels with as many rows: y[order[begin:end]].
      if (takes && !now.selections.empty() &&
          PlainNameOf(m_.trace, now.ops.front()) == "randperm" &&
          PlainNameOf(m_.trace, row) == "index") {
        continue;
      }
      if (takes || makes) {
        Touch(step, base, row, takes, makes, now, found);
      } else if (now.gathers && now.selections.empty() &&
                 !m_.tree.traits(row).bookkeeping &&
                 !ResultDims(m_.trace, row)) {
        now = {};  // the next op may take part of either result
      }
    }
    if (!now.selections.empty()) Emit(step, base, now, found);
  }

  // Handles an op that takes a whole tensor of size `base`, or makes one.
  void Touch(const ForwardStep& step, const Dims& base, RowId row, bool takes,
             bool makes, Reading& now, std::vector<Chain>& found) const {
    const bool gathers = IsGather(PlainNameOf(m_.trace, row));
    const bool of_another = now.ops.empty() || now.gathers;
    if (gathers && !takes && !of_another &&
        PlainNameOf(m_.trace, row) == "index") {
      return;  // how many rows it makes is not recorded
    }
    const bool rows_of_it =
        gathers && takes && (!of_another || HasGradient(row));
    const bool fresh = makes && (!takes || gathers || ChangesType(row, base));
    if (!makes || rows_of_it) {
      now = {};  // all of it is used
    } else if (!now.selections.empty()) {
      if (fresh) Emit(step, base, now, found);
      now = {};
      Start(row, fresh, now);
    } else if (fresh && gathers && now.gathers) {
      now.ops.push_back(row);  // x[order] and y[order]
      ++now.bases;
    } else if (fresh || TakesTwo(m_.trace, row, base) || now.ops.empty()) {
      now = {};
      Start(row, fresh, now);
    } else {
      now.ops.push_back(row);
    }
  }

  bool HasGradient(RowId row) const {
    const Op& op = m_.trace.ops()[row];
    return !m_.backward.Of(op).empty();
  }

  void Start(RowId row, bool fresh, Reading& now) const {
    // A tensor changed in place is assumed to be used elsewhere.
    if (!fresh && IsInPlace(m_.trace, row)) return;
    now.ops = {row};
    now.gathers = IsGather(PlainNameOf(m_.trace, row));
    now.sure = fresh;
  }

  // True for x.float(), which takes a tensor of this size but of another type.
  bool ChangesType(RowId row, const Dims& base) const {
    if (!IsAnyOf(PlainNameOf(m_.trace, row), {"to", "_to_copy"}) ||
        IsInPlace(m_.trace, row)) {
      return false;
    }
    // Without a copy inside, aten::to is a view.
    const RowId next = row + 1;
    return DimsOf(m_.trace, row, 0) == base && next < m_.trace.ops().size() &&
           m_.trace.ops()[next].parent == row;
  }

  // Counts the part that ops[i] takes. Further selections after it take parts
  // of that part.
  void TakePart(std::span<const RowId> ops, size_t i, const Dims& base,
                Reading& now) const {
    Dims dims = base;
    Shares shares;
    RowId last = ops[i];
    std::vector<size_t> at(base.size());  // dimensions of the base
    for (size_t k = 0; k < at.size(); ++k) at[k] = k;
    now.selections.push_back(ops[i]);
    now.bytes = std::max(
        now.bytes, BytesOf(m_.trace, TensorArgument(m_.trace, ops[i], 0)));
    for (; i < ops.size(); ++i) {
      if (DimsOf(m_.trace, ops[i], 0) != dims) break;
      if (const std::optional<size_t> single = Squeezed(ops[i], dims)) {
        at.erase(at.begin() + static_cast<int64_t>(*single));
        dims.erase(dims.begin() + static_cast<int64_t>(*single));
        continue;
      }
      const std::optional<Part> part = PartOf(ops[i], dims);
      if (!part) break;
      last = ops[i];
      const auto known = shares.try_emplace(at[part->dim], 1).first;
      known->second *= part->share;
      now.at_end &= part->at_end;
      if (part->dims.size() < dims.size()) {
        at.erase(at.begin() + static_cast<int64_t>(part->dim));
      }
      dims = part->dims;
    }
    if (last != now.selections.back()) now.selections.push_back(last);
    now.parts.push_back(std::move(shares));
  }

  // Returns the dimension of size 1 that aten::squeeze removes.
  std::optional<size_t> Squeezed(RowId row, const Dims& dims) const {
    if (PlainNameOf(m_.trace, row) != "squeeze") return {};
    const std::optional<size_t> dim =
        DimArgument(m_.trace, row, 1, dims.size());
    return dim && dims[*dim] == 1 ? dim : std::nullopt;
  }

  // Returns the share of the tensors that is used, if parts are taken only
  // along these dimensions.
  static double Used(const Reading& now, const std::set<size_t>& dims) {
    double used = 0;
    for (const Shares& part : now.parts) {
      double share = 1;
      for (const auto& [dim, of_dim] : part) {
        if (dims.contains(dim)) share *= of_dim;
      }
      used += share;
    }
    return used / now.bases;
  }

  void Emit(const ForwardStep& step, const Dims& base, const Reading& now,
            std::vector<Chain>& found) const {
    Chain chain{.step = step.step,
                .selections = now.selections,
                .dims = base,
                .bytes = now.bytes,
                .sure = now.sure};
    std::set<size_t> selected;  // can be selected before all ops of the chain
    for (const Shares& part : now.parts) {
      for (const auto& [dim, share] : part) selected.insert(dim);
    }
    if (Used(now, selected) >= kMostUsed) return;
    for (size_t i = now.ops.size(); i-- > 0;) {
      const RowId row = now.ops[i];
      if (!Commutes(row, base, selected, now.at_end)) {
        // A softmax needs whole rows, but not all rows.
        std::set<size_t> fewer = selected;
        std::erase_if(fewer, [&](size_t dim) {
          return !Commutes(row, base, {dim}, now.at_end);
        });
        if (fewer.empty() || Used(now, fewer) >= kMostUsed) break;
        selected = std::move(fewer);
      }
      const std::string_view name = PlainNameOf(m_.trace, row);
      chain.ops.insert(chain.ops.begin(), row);
      if (IsGather(name)) chain.maker = Maker::kGather;
      if (IsProduct(name)) chain.maker = Maker::kProduct;
      if (name == "randperm") chain.maker = Maker::kShuffle;
      if (IsSort(name)) {
        chain.maker = Maker::kSort;
        break;  // a sort needs all of its input
      }
    }
    if (chain.ops.empty()) return;
    chain.used = Used(now, selected);
    chain.left = chain.used;
    const RowId last = chain.selections.back();
    if (chain.maker == Maker::kProduct &&
        PlainNameOf(m_.trace, last) == "gather" &&
        selected.contains(base.size() - 1)) {
      const RowId product = chain.ops.front();
      // With a separate right operand per batch, rows would be gathered for
      // each.
      if (WeightArgument(m_.trace, product) == 0) return;
      chain.maker = Maker::kScores;
      chain.left = kScoresPerRow * chain.used;
      if (chain.left >= kMostUsed) return;
    }
    Extend(step, selected, chain);
    for (RowId row : chain.ops) {
      const auto next = std::ranges::find(step.ops, row) + 1;
      if (next == step.ops.end()) continue;
      // Freeing takes at most as long as filling.
      const Op& op = m_.trace.ops()[row];
      chain.behind_ns += std::min(m_.trace.ops()[*next].begin_ns - op.end_ns,
                                  op.end_ns - op.begin_ns);
    }
    // Sure if ops before the chain use everything that its first op reads. Also
    // sure if it has a gradient: a tensor is carried to the next step only by
    // ops that take all of it.
    chain.sure |= chain.ops.size() < now.ops.size() ||
                  chain.maker == Maker::kSort || HasGradient(chain.ops.front());
    found.push_back(std::move(chain));
  }

  // Adds the ops that lead to the first product of the chain. They work on
  // tensors of other widths that nothing else uses.
  void Extend(const ForwardStep& step, const std::set<size_t>& selected,
              Chain& chain) const {
    Dims made = chain.dims;
    while (IsProduct(PlainNameOf(m_.trace, chain.ops.front()))) {
      const RowId product = chain.ops.front();
      const size_t at =
          IsAnyOf(PlainNameOf(m_.trace, product), {"addmm", "baddbmm"}) ? 1 : 0;
      const Dims& from = DimsOf(m_.trace, product, at);
      // Require the same rows with another width.
      if (from.size() != made.size() || from.back() == made.back() ||
          *selected.rbegin() + 1 >= from.size() ||
          !std::equal(from.begin(), from.end() - 1, made.begin()) ||
          !AddMakers(step.ops, product, from, selected, chain)) {
        return;
      }
      made = from;
    }
  }

  // Adds the ops that make the input of `product`, of size `made`. Returns
  // false unless one of them is known to make it from a tensor of another size.
  bool AddMakers(std::span<const RowId> ops, RowId product, const Dims& made,
                 const std::set<size_t>& selected, Chain& chain) const {
    const size_t at =
        static_cast<size_t>(std::ranges::find(ops, product) - ops.begin());
    for (RowId row : ops.subspan(at + 1)) {
      if (TakesDims(m_.trace, row, made)) return false;
    }
    for (size_t i = at; i-- > 0;) {
      const RowId row = ops[i];
      if (PlainNameOf(m_.trace, row) == "index") continue;
      const bool takes = TakesDims(m_.trace, row, made);
      const bool makes = Makes(row, made);
      if (!takes && !makes) continue;
      if (!makes || TakesTwo(m_.trace, row, made) ||
          !Commutes(row, made, selected, false)) {
        return false;
      }
      chain.ops.insert(chain.ops.begin(), row);
      if (!takes) return true;
    }
    return false;
  }

  const AnalysisContext& m_;
};

std::string Advice(Maker maker) {
  switch (maker) {
    case Maker::kGather:
      return "choose the indices first: x[order[begin:end]] in place of "
             "x[order][begin:end]";
    case Maker::kProduct:
      return "select first: head(h[:, -1]) in place of head(h)[:, -1], "
             "encode(items[index]) in place of encode(items)[index]";
    case Maker::kScores:
      return "score what is gathered only: (h.unsqueeze(1) * "
             "weight[index]).sum(-1) in place of (h @ weight.T).gather(1, "
             "index)";
    case Maker::kSort:
      return "torch.topk(x, k) in place of the first k of sort(x) or "
             "argsort(x)";
    case Maker::kShuffle:
      return "torch.randint(n, (k,)) in place of torch.randperm(n)[:k], or one "
             "permutation for an epoch, of which each step takes the next k";
    case Maker::kElementwise:
      break;
  }
  return "select first, and compute the part only: x[..., begin:end].float() "
         "in place of x.float()[..., begin:end]";
}

std::string AdviceCpp(Maker maker) {
  switch (maker) {
    case Maker::kGather:
      return "choose the indices first: x.index_select(0, order.slice(0, "
             "begin, end))";
    case Maker::kProduct:
      return "select first: head(h.select(1, -1)) in place of "
             "head(h).select(1, -1)";
    case Maker::kScores:
      return "score what is gathered only: (h.unsqueeze(1) * "
             "weight.index({index})).sum(-1)";
    case Maker::kSort:
      return "torch::topk(x, k) in place of the first k of sort or argsort";
    case Maker::kShuffle:
      return "torch::randint(n, {k}) in place of the first k of "
             "torch::randperm(n), or one permutation for an epoch";
    case Maker::kElementwise:
      break;
  }
  return "select first, and compute the part only: x.narrow(dim, begin, "
         "length).to(torch::kFloat)";
}

Verdict CheckLateSelection(const AnalysisContext& m) {
  const std::vector<Chain> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  std::map<const Chain*, double> times;
  bool trains = false;
  double behind_ns = 0;
  for (const Chain& one : found) {
    behind_ns += (1 - one.left) * static_cast<double>(one.behind_ns) /
                 static_cast<double>(m.steps.steady.size());
    for (RowId row : one.ops) {
      const Op& op = m.trace.ops()[row];
      trains |= AppendWithNodes(m, row, one.left, ops);
      times[&one] += static_cast<double>(op.end_ns - op.begin_ns);
    }
    for (RowId row : one.selections) {  // their gradients have the whole size
      const Op& op = m.trace.ops()[row];
      for (RowId node : m.backward.Of(op)) {
        ops.push_back({node, one.left});
      }
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Chain& largest = *std::ranges::max_element(
      found, {}, [&](const Chain& one) { return times[&one]; });
  const Op& last = m.trace.ops()[largest.selections.back()];
  Finding finding =
      FindingAbout(m, largest.ops.front(), largest.selections.back(),
                   "the ops from the large tensor to its part");
  if (!largest.sure) finding.confidence = Confidence::kHint;
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.ops.back()].name)) +
      " makes a tensor of " + InBrackets(largest.dims) + " (" +
      Bytes(static_cast<double>(largest.bytes)) + "), and only " +
      Percent(largest.used) +
      " of it is used: " + std::string(m.trace.name(last.name)) +
      " takes it out. The ops that make such tensors" +
      (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the ops, and freeing what they make, take as much less time as "
      "less is selected";
  finding.fix_python = Advice(largest.maker);
  finding.fix_cpp = AdviceCpp(largest.maker);
  finding.wrong_if = "the rest is used as well, in the next step for example";
  return FireBound(std::move(finding),
                   all.saved_ns + (m.has_gpu ? 0 : behind_ns));
}

constexpr Rule kRules[] = {
    {.id = "late-selection",
     .question = "Does a step compute a large tensor of which it then uses a "
                 "small part?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckLateSelection,
     .reference = "PyTorch documentation, Tensor Views: "
                  "https://docs.pytorch.org/docs/stable/tensor_view.html",
     .detect =
         "in two thirds of the steps, a tensor of 1 MiB or more is gathered, "
         "multiplied, sorted, shuffled (torch.randperm) or computed element by "
         "element, the only ops that "
         "take a tensor of its size afterwards are slices, gathers and the "
         "like (of x[index], the gradient tells the number of rows), and "
         "these take less than half of it",
     .avoid = "an op in between needs all of it (a mean, a normalisation), "
              "other ops take a tensor of that size, several slices together "
              "cover half of it (as queries, keys and values do), or a gather "
              "takes more than 1 in 128 scores (a row of weights would be "
              "gathered for each)",
     .fix_cpp = "select first; torch::topk in place of sort",
     .fix_python = "select first; torch.topk in place of sort"}};

}  // namespace
}  // namespace selections_rules

extern const std::span<const Rule> kSelections = selections_rules::kRules;

}  // namespace stepscope
