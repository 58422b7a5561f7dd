#include "evidence/program/recurrence.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "evidence/program/op_shapes.h"
#include "evidence/program/plain_name.h"
#include "evidence/program/recurrent_cell.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// A written-out LSTM cell takes about 20 ops, so two layers take 40.
constexpr size_t kLongestChain = 64;
// How many of the next equal gates to try. One repeat may have several, such as
// three sigmoids in each of two layers.
constexpr size_t kEqualGates = 12;

constexpr auto kCells = std::to_array<std::string_view>(
    {"aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell",
     "aten::rnn_relu_cell"});
// These ops run the whole sequence.
constexpr auto kWhole = std::to_array<std::string_view>(
    {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"});

// What the ops are for, by NameId.
struct Meaning {
  bool cell = false, whole = false, gate = false, product = false;
};
std::vector<Meaning> MeaningsOf(const Trace& trace) {
  std::vector<Meaning> all(trace.name_count());
  for (NameId id = 0; id < all.size(); ++id) {
    const std::string_view name = trace.name(id);
    const std::string_view plain = PlainName(name);
    all[id] = {.cell = std::ranges::find(kCells, name) != kCells.end(),
               .whole = std::ranges::find(kWhole, name) != kWhole.end(),
               .gate = plain == "tanh" || plain == "sigmoid",
               .product = ClassOfOp(name) == KernelClass::kMatmul};
  }
  return all;
}

// An op that computes in the forward pass, and the cell around it.
struct Leaf {
  RowId row = kNone;
  RowId cell = kNone;
  bool operator==(const Leaf&) const = default;
};

class RecurrenceFinder {
 public:
  RecurrenceFinder(const AnalysisContext& context,
                   std::vector<Meaning> meanings)
      : context_(context),
        trace_(context.trace),
        meanings_(std::move(meanings)) {}

  std::vector<Recurrence> Find() const {
    std::vector<Recurrence> found;
    std::map<size_t, std::vector<Leaf>> by_step = Leaves();
    for (const auto& [step, leaves] : by_step) {
      AddNamed(step, leaves, found);
      AddWritten(step, leaves, found);
    }
    return found;
  }

 private:
  const Op& OpAt(RowId row) const { return trace_.ops()[row]; }
  const Meaning& MeaningOf(RowId row) const {
    return meanings_[OpAt(row).name];
  }

  std::map<size_t, std::vector<Leaf>> Leaves() const {
    std::map<size_t, std::vector<Leaf>> by_step;
    for (RowId row : context_.tree.of_thread(context_.steps.thread)) {
      if (!context_.tree.computes(row) || context_.tree.in_backward(row) ||
          context_.tree.traits(row).bookkeeping) {
        continue;
      }
      const size_t step = SteadyStepAt(context_.steps, OpAt(row).begin_ns);
      if (step == context_.steps.windows.size()) continue;
      // Skip what runs inside aten::lstm and the like, which is a single call
      // already.
      Leaf leaf{.row = row};
      bool whole = false;
      for (RowId op = row; op != kNone; op = OpAt(op).parent) {
        if (MeaningOf(op).cell) leaf.cell = op;
        whole |= MeaningOf(op).whole;
      }
      if (!whole) by_step[step].push_back(leaf);
    }
    return by_step;
  }

  // Adds loops over an op that is a cell. Calls are grouped by name and, if
  // known, by sizes, so that layers of different width are different loops.
  void AddNamed(size_t step, std::span<const Leaf> leaves,
                std::vector<Recurrence>& found) const {
    std::map<std::pair<NameId, RowId>, std::vector<RowId>> kinds;
    RowId last = kNone;
    for (const Leaf& leaf : leaves) {
      if (leaf.cell == kNone || leaf.cell == last) continue;
      last = leaf.cell;
      kinds[{OpAt(last).name, OpAt(last).inputs}].push_back(last);
    }
    for (auto& [kind, cells] : kinds) {
      const auto repeats = static_cast<int64_t>(cells.size());
      if (repeats < kLeastRepeats) continue;
      Recurrence one{.step = step,
                     .cell = std::string(trace_.name(kind.first)),
                     .named = true,
                     .repeats = repeats,
                     .ops = std::move(cells)};
      Complete(leaves, one);
      one.needs_state = ReadAttention(leaves, one.ops) || NeedsState(one.ops);
      found.push_back(std::move(one));
    }
  }

  // True if a product of two activations runs between most of `cells`, followed
  // by an op whose result has the sizes of the next cell's input.
  bool ReadAttention(std::span<const Leaf> leaves,
                     std::span<const RowId> cells) const {
    size_t reading = 0;
    auto leaf = leaves.begin();
    for (size_t i = 1; i < cells.size(); ++i) {
      const Dims& input = DimsOf(trace_, cells[i], 0);
      bool attends = false, made = false;
      for (; leaf != leaves.end() &&
             OpAt(leaf->row).begin_ns < OpAt(cells[i]).begin_ns;
           ++leaf) {
        if (OpAt(leaf->row).begin_ns < OpAt(cells[i - 1]).end_ns) continue;
        made |= attends && ResultDims(trace_, leaf->row) == input;
        // Both factors of these ops have a batch dimension, which no weight
        // has.
        attends |= IsAnyOf(trace_.name(OpAt(leaf->row).name),
                           {"aten::bmm", "aten::baddbmm"});
      }
      reading += made;
    }
    return 2 * reading > cells.size();
  }

  bool IsInCell(RowId row) const {
    for (; row != kNone; row = OpAt(row).parent) {
      if (MeaningOf(row).cell) return true;
    }
    return false;
  }

  // Returns the sizes of the state. For an LSTM, the first of its two states.
  const Dims& StateOf(RowId cell) const {
    const RowId inputs = OpAt(cell).inputs;
    if (inputs != kNone) {
      const std::vector<Argument>& all = trace_.op_inputs()[inputs].arguments;
      if (all.size() > 1 && !all[1].elements.empty()) {
        return all[1].elements.front().dims;
      }
    }
    return DimsOf(trace_, cell, 1);
  }

  // True if the inputs of most of `cells` need the state of the previous cell,
  // as in a world model. As far as sizes tell, a product of that state must
  // lead to a tensor of the next input's sizes, and the input must not be
  // picked from a larger tensor.
  bool NeedsState(std::span<const RowId> cells) const {
    size_t fed = 0;
    for (size_t i = 1; i < cells.size(); ++i) {
      const Dims& input = DimsOf(trace_, cells[i], 0);
      const Dims& state = StateOf(cells[i]);
      if (input.empty() || state.empty()) continue;
      std::set<Dims> read = {state};  // sizes made from the state
      // made: sizes made from products of the state. hidden: those for which a
      // tensor of the same size was also picked from the data, so that the two
      // cannot be told apart until a loss or another op has taken both.
      std::set<Dims> made, hidden;
      bool picked = false;
      const auto pick = [&](const Dims& part) {
        picked |= part == input;
        if (made.erase(part) > 0) hidden.insert(part);
      };
      for (RowId row : context_.tree.of_thread(
               context_.steps.thread,
               {OpAt(cells[i - 1]).end_ns, OpAt(cells[i]).begin_ns})) {
        const std::string_view name = PlainNameOf(trace_, row);
        if (const std::optional<Dims> part = PartDims(trace_, row)) {
          if (name != "select" && made.contains(DimsOf(trace_, row, 0))) {
            made.insert(*part);
          } else {
            pick(*part);
          }
          continue;
        }
        if (IsInCell(row)) continue;
        if (name.ends_with("_loss")) {
          const auto both = [&](const Dims& dims) {
            return TakesDims(trace_, row, dims);
          };
          for (const Dims& dims : hidden) {
            if (!both(dims)) continue;
            made.insert(dims);
            picked &= dims != input;
          }
          std::erase_if(hidden, both);
          continue;
        }
        // In mean + deviation * noise[t], one of the two tensors is not from
        // the data.
        std::erase_if(hidden, [&](const Dims& dims) {
          const bool both = TakesTwo(trace_, row, dims);
          if (both) made.insert(dims);
          return both;
        });
        const auto takes = [&](const std::set<Dims>& sizes) {
          return std::ranges::any_of(sizes, [&](const Dims& dims) {
            return TakesDims(trace_, row, dims);
          });
        };
        const bool of_product = takes(made);
        if (!of_product && !takes(read)) continue;
        if (of_product && IsAnyOf(name, {"argmax", "multinomial"})) {
          Dims chosen = DimsOf(trace_, row, 0);
          if (!chosen.empty()) chosen.pop_back();
          made.insert(std::move(chosen));
          continue;
        }
        const std::optional<Dims> result = ResultDims(trace_, row);
        if (!result) continue;
        (of_product || IsProduct(name) ? made : read).insert(*result);
      }
      fed += !picked && made.contains(input);
    }
    return 2 * fed > cells.size();
  }

  // True if the leaves `a` and `b` are the same op on the same sizes. Where the
  // recording has no sizes, the op is enough.
  bool Same(const Leaf& a, const Leaf& b) const {
    return a.cell == kNone && b.cell == kNone &&
           OpAt(a.row).name == OpAt(b.row).name &&
           OpAt(a.row).inputs == OpAt(b.row).inputs &&
           (OpAt(a.row).inputs != kNone || !sized_);
  }

  // True if the chain of `leaves` is written like the cell of an LSTM or GRU: a
  // product, sigmoids that multiply, and tanh. Ops of attention and of norms
  // show a layer of another kind. This is all that names can tell.
  bool IsGated(std::span<const Leaf> leaves) const {
    bool product = false, multiplies = false;
    size_t sigmoids = 0, tanhs = 0;
    for (const Leaf& leaf : leaves) {
      const std::string_view name = PlainNameOf(trace_, leaf.row);
      product |= MeaningOf(leaf.row).product;
      multiplies |= IsAnyOf(name, {"mul", "addcmul", "lerp"});
      sigmoids += name == "sigmoid";
      tanhs += name == "tanh";
      if (name.find("softmax") != std::string_view::npos ||
          name.find("norm") != std::string_view::npos ||
          name.find("bmm") != std::string_view::npos ||
          name.starts_with("scaled_dot")) {
        return false;
      }
    }
    return product && multiplies && sigmoids > 0 && tanhs > 0;
  }

  // Adds chains that repeat. The distance from a gate to one of the next equal
  // gates is the length of the chain.
  void AddWritten(size_t step, std::span<const Leaf> leaves,
                  std::vector<Recurrence>& found) const {
    std::vector<size_t> gates;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].cell == kNone && MeaningOf(leaves[i].row).gate) {
        gates.push_back(i);
      }
    }
    size_t done = 0;  // earlier leaves belong to a chain already
    // By period, the latest stretch examined. Each gate inside it would lead to
    // the same stretch, which was already accepted or rejected.
    std::array<Stretch, kLongestChain + 1> known{};
    for (size_t g = 0; g < gates.size(); ++g) {
      if (gates[g] < done) continue;
      for (size_t k = g + 1; k < std::min(gates.size(), g + 1 + kEqualGates);
           ++k) {
        const size_t period = gates[k] - gates[g];
        if (period > kLongestChain) break;
        if (gates[g] >= known[period].first && gates[k] <= known[period].last) {
          continue;
        }
        known[period] = StretchAround(leaves, gates[g], period);
        const auto [first, last] = known[period];
        const size_t repeats = (last - first) / period;
        if (static_cast<int64_t>(repeats) < kLeastRepeats || first < done) {
          continue;
        }
        const size_t end = first + repeats * period;
        std::optional<Recurrence> one =
            Written(step, leaves, first, end, period);
        if (!one) continue;
        done = end;
        found.push_back(*std::move(one));
        break;
      }
    }
  }

  // The leaves [first, last).
  struct Stretch {
    size_t first = 0, last = 0;
  };

  // Returns the longest stretch around `at` that repeats with `period`. Its
  // last repeat may be incomplete.
  Stretch StretchAround(std::span<const Leaf> leaves, size_t at,
                        size_t period) const {
    size_t first = at, last = at + period;
    while (last < leaves.size() && Same(leaves[last], leaves[last - period])) {
      ++last;
    }
    while (first > 0 && Same(leaves[first - 1], leaves[first - 1 + period])) {
      --first;
    }
    return {first, last};
  }

  // Returns the chain of `period` leaves at `first` if it is a recurrent cell.
  std::optional<Recurrence> Written(size_t step, std::span<const Leaf> leaves,
                                    size_t first, size_t last,
                                    size_t period) const {
    const std::span<const Leaf> chain = leaves.subspan(first, period);
    std::vector<RowId> rows;
    for (const Leaf& leaf : chain) rows.push_back(leaf.row);
    if (sized_ ? !FeedsItself(trace_, rows) : !IsGated(chain)) return {};
    Recurrence one{.step = step,
                   .sized = sized_,
                   .repeats = static_cast<int64_t>((last - first) / period)};
    for (const Leaf& leaf : chain) {
      one.cell += (one.cell.empty() ? "" : " > ") +
                  std::string(PlainName(trace_.name(OpAt(leaf.row).name)));
    }
    for (size_t i = first; i < last; ++i) one.ops.push_back(leaves[i].row);
    Complete(leaves, one);
    if (one.nodes.empty() ||
        2 * GradientsAmong(trace_, context_.tree, one.nodes) >= one.repeats) {
      // Layers with weights of their own.
      return {};
    }
    return one;
  }

  // Fills in the fields that follow from the ops of the cell.
  void Complete(std::span<const Leaf> leaves, Recurrence& one) const {
    one.forward = {OpAt(one.ops.front()).begin_ns, OpAt(one.ops.back()).end_ns};
    for (const Leaf& leaf : leaves) {
      const Op& op = OpAt(leaf.row);
      if (op.begin_ns < one.forward.begin_ns ||
          op.begin_ns >= one.forward.end_ns) {
        continue;
      }
      const RowId call = one.named ? leaf.cell : leaf.row;
      if (std::ranges::binary_search(one.ops, call)) {
        if (MeaningOf(leaf.row).product) one.products.push_back(leaf.row);
      } else if (one.foreign.empty() && leaf.cell == kNone &&
                 MeaningOf(leaf.row).product) {
        one.foreign = trace_.name(op.name);
      }
    }
    for (RowId row : one.ops) {
      for (RowId node : context_.backward.Of(
               context_.steps.thread, {OpAt(row).begin_ns, OpAt(row).end_ns})) {
        one.nodes.push_back(node);
      }
    }
    AddProductsOf(one);
  }

  void AddProductsOf(Recurrence& one) const {
    for (RowId node : one.nodes) {
      for (RowId row : context_.tree.inside(node)) {
        if (MeaningOf(row).product && context_.tree.computes(row)) {
          one.products.push_back(row);
        }
      }
    }
  }

  const AnalysisContext& context_;
  const Trace& trace_;
  std::vector<Meaning> meanings_;
  bool sized_ = trace_.watched(Kind::kOpShapes);
};

}  // namespace

std::vector<Recurrence> FindRecurrences(const AnalysisContext& context) {
  if (context.steps.thread == kNone) return {};
  std::vector<Meaning> meanings = MeaningsOf(context.trace);
  // Skip the search in most recordings, which contain no gate and no cell.
  if (std::ranges::none_of(
          meanings, [](const Meaning& one) { return one.cell || one.gate; })) {
    return {};
  }
  return RecurrenceFinder(context, std::move(meanings)).Find();
}

}  // namespace stepscope
