#include "evidence/tensors/late_selections.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "evidence/program/op_shapes.h"
#include "evidence/tensors/taken_part.h"
#include "ops/contains.h"
#include "steps/forward_steps.h"

namespace stepscope {
namespace {

using Maker = LateSelection::Maker;

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

  std::vector<LateSelection> Find() const {
    std::vector<LateSelection> found;
    for (const ForwardStep& step : m_.forward) {
      std::set<Dims> bases;
      for (RowId row : step.ops) {
        const Dims& dims = DimsOf(m_.trace, row, 0);
        if (PartTaken(m_, row, dims) &&
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
            std::vector<LateSelection>& found) const {
    Reading now;
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const RowId row = step.ops[i];
      const bool takes = TakesDims(m_.trace, row, base);
      if (DimsOf(m_.trace, row, 0) == base && PartTaken(m_, row, base)) {
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
             bool makes, Reading& now,
             std::vector<LateSelection>& found) const {
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
      if (const std::optional<size_t> single =
              SqueezedDim(m_.trace, ops[i], dims)) {
        at.erase(at.begin() + static_cast<int64_t>(*single));
        dims.erase(dims.begin() + static_cast<int64_t>(*single));
        continue;
      }
      const std::optional<TakenPart> part = PartTaken(m_, ops[i], dims);
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
            std::vector<LateSelection>& found) const {
    LateSelection chain{.step = step.step,
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
              LateSelection& chain) const {
    Dims made = chain.dims;
    while (IsProduct(PlainNameOf(m_.trace, chain.ops.front()))) {
      const RowId product = chain.ops.front();
      const size_t at = LeftFactor(PlainNameOf(m_.trace, product));
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
                 const std::set<size_t>& selected, LateSelection& chain) const {
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

}  // namespace

std::vector<LateSelection> FindLateSelections(const AnalysisContext& context) {
  return Finder(context).Find();
}

}  // namespace stepscope
