// Is a layer applied to rows that were repeated just before? Source: a product
// with a concatenation is the sum of the products with its parts, W [a, b] = W1
// a + W2 b, and the product with a repeated row is a repeated row. GATv1 uses
// this decomposition for its attention (Velickovic et al. 2018; Brody et al.
// 2022, How Attentive are Graph Attention Networks?).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
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
namespace repeated_rows_rules {
namespace {

// How often a row must be repeated. With fewer repeats, adding up the products
// of the parts costs what the smaller products save. Our own choice.
constexpr double kLeastRepeats = 4;
// Share of the width of the layer's input. Less is not worth splitting the
// weight.
constexpr double kLeastShare = 0.25;
constexpr char kChange[] = "layer before its rows are repeated";

// Rows of equal width that were not scaled, masked or otherwise changed.
struct Rows {
  std::vector<RowId> ops = {};  // that made them
  double count = 0;             // number of rows
  int64_t width = 0;
  double repeated = 0;  // columns that are copies of fewer rows
  double from = 0;      // the fewest rows that they copy
};

// A layer that takes such rows, in one step.
struct Layer {
  size_t step = 0;
  RowId row = kNone;
  Rows rows = {};
};

double RowsOf(const Dims& dims) {
  return static_cast<double>(ElementsIn(dims)) /
         static_cast<double>(std::max<int64_t>(dims.back(), 1));
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Layer> Find() {
    std::vector<Layer> found;
    for (const ForwardStep& step : m_.forward) {
      made_.clear();
      last_ = kNone;
      for (RowId row : step.ops) {
        const std::string_view name = PlainNameOf(m_.trace, row);
        if (std::optional<Rows> rows = Repeated(row, name)) {
          if (!rows->ops.empty()) last_ = row;
          made_.push_back(*std::move(rows));
          continue;
        }
        if (name == "cat") {
          Join(row);
        } else if (std::optional<Rows> taken = Taken(row, name)) {
          found.push_back({step.step, row, *std::move(taken)});
        } else if (!m_.tree.traits(row).bookkeeping) {
          Forget(row);
        } else {
          continue;  // a view
        }
        last_ = row;
      }
    }
    return found;
  }

 private:
  // Returns the rows that `row` makes from fewer rows, as copies or as a view.
  std::optional<Rows> Repeated(RowId row, std::string_view name) const {
    const Dims& source = DimsOf(m_.trace, row, 0);
    if (source.size() < 2) return {};
    Dims made;
    if (name == "expand" || name == "repeat") {
      const std::vector<int64_t> sizes = ListArgument(m_.trace, row, 1);
      if (sizes.size() < source.size()) return {};
      // The dimensions of the source are the last ones of the result.
      const size_t more = sizes.size() - source.size();
      for (size_t i = 0; i < sizes.size(); ++i) {
        const int64_t before = i < more ? 1 : source[i - more];
        made.push_back(name == "repeat" ? sizes[i] * before
                       : sizes[i] == -1 ? before
                                        : sizes[i]);
      }
    } else if (name == "repeat_interleave") {
      made = source;
      const auto times = NumberArgument(m_.trace, row, 1);
      const auto dim = DimArgument(m_.trace, row, 2, source.size());
      if (!times || !dim) return {};
      made[*dim] *= *times;
    } else if (name == "index_select") {
      made = ResultDims(m_.trace, row).value_or(Dims());
    } else {
      return {};
    }
    if (made.size() < 2 || made.back() != source.back()) return {};
    Rows rows{
        .count = RowsOf(made), .width = made.back(), .from = RowsOf(source)};
    if (rows.count < kLeastRepeats * rows.from) return {};
    rows.repeated = static_cast<double>(rows.width);
    if (name != "expand") rows.ops.push_back(row);
    return rows;
  }

  // Returns the latest rows with this count and width. Views keep both.
  auto Latest(double count, int64_t width) {
    const auto at =
        std::find_if(made_.rbegin(), made_.rend(), [&](const Rows& rows) {
          return rows.count == count && rows.width == width;
        });
    return at == made_.rend() ? made_.end() : std::prev(at.base());
  }

  // Joins columns side by side, some of which are repeated.
  void Join(RowId row) {
    const RowId inputs = m_.trace.ops()[row].inputs;
    const std::optional<Dims> made = ResultDims(m_.trace, row);
    if (inputs == kNone || !made || made->size() < 2) return Forget(row);
    const std::optional<size_t> dim =
        DimArgument(m_.trace, row, 1, made->size());
    if (dim != made->size() - 1) return Forget(row);
    Rows joined{.ops = {row}, .count = RowsOf(*made), .width = made->back()};
    const auto& list = m_.trace.op_inputs()[inputs].arguments.front().elements;
    // Go through the last parts first, because the latest rows belong to them.
    for (auto part = list.rbegin(); part != list.rend(); ++part) {
      if (part->dims.size() < 2) continue;
      const auto rows = Latest(RowsOf(part->dims), part->dims.back());
      if (rows == made_.end()) continue;
      joined.repeated += rows->repeated;
      joined.from = std::max(joined.from, rows->from);
      joined.ops.insert(joined.ops.end(), rows->ops.begin(), rows->ops.end());
      made_.erase(rows);
    }
    if (joined.repeated > 0) made_.push_back(std::move(joined));
  }

  // Returns the rows that the layer `row` multiplies by its weight. They must
  // have been made just before, because otherwise the layer may take other rows
  // of the same sizes.
  std::optional<Rows> Taken(RowId row, std::string_view name) {
    if (!IsAnyOf(name, {"linear", "addmm", "mm", "matmul"})) return {};
    const size_t at = LeftFactor(name);
    const Dims& input = DimsOf(m_.trace, row, at);
    const Dims& weight = DimsOf(m_.trace, row, at + 1);
    if (input.size() < 2 || weight.size() != 2) return {};
    const auto rows = Latest(RowsOf(input), input.back());
    if (rows == made_.end() || rows->ops.empty() ||
        rows->ops.front() != last_ ||
        rows->repeated < kLeastShare * static_cast<double>(rows->width)) {
      return {};
    }
    Rows taken = std::move(*rows);
    made_.erase(rows);
    return taken;
  }

  // Forgets rows that another op takes and may have changed.
  void Forget(RowId row) {
    const RowId inputs = m_.trace.ops()[row].inputs;
    if (inputs == kNone) return;
    const auto drop = [&](const Dims& dims) {
      if (dims.size() < 2) return;
      const double count = RowsOf(dims);
      std::erase_if(made_, [&](const Rows& rows) {
        return rows.count == count && rows.width == dims.back();
      });
    };
    for (const Argument& one : m_.trace.op_inputs()[inputs].arguments) {
      drop(one.dims);
      for (const Argument& element : one.elements) drop(element.dims);
    }
  }

  const AnalysisContext& m_;
  std::vector<Rows> made_;  // of one step
  RowId last_ = kNone;      // the last op that is no view
};

// Returns the share of the layer's work that remains if each row is multiplied
// once.
double LeftOf(const Rows& rows) {
  const double share = rows.repeated / static_cast<double>(rows.width);
  return 1 - share * (1 - rows.from / rows.count);
}

Verdict CheckRepeatedRows(const AnalysisContext& m) {
  const std::vector<Layer> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Layer& one : found) {
    trains |= AppendWithNodes(m, one.row, LeftOf(one.rows), ops);
    for (RowId row : one.rows.ops) AppendWithNodes(m, row, 0, ops);
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Layer& largest = *std::ranges::max_element(
      found, {}, [](const Layer& one) { return one.rows.count; });
  const RowId first = *std::ranges::min_element(largest.rows.ops);
  Finding finding = FindingAbout(m, std::min(first, largest.row), largest.row,
                                 "the repeated rows and the layer");
  const Rows& rows = largest.rows;
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.row].name)) +
      " multiplies " + Count(std::llround(rows.count), "row") + " of width " +
      std::to_string(rows.width) + ", of which " +
      (rows.repeated < static_cast<double>(rows.width)
           ? Count(std::llround(rows.repeated), "column")
           : std::string("all columns")) +
      " are copies of at most " + Count(std::llround(rows.from), "row") + " (" +
      std::string(m.trace.name(m.trace.ops()[first].name)) +
      "). Making these rows and multiplying them" +
      (trains ? ", with the backward passes," : "") + " takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: each row is multiplied once, and repeating and adding up the "
      "results costs nothing";
  finding.fix_python =
      "apply the layer before repeating, part by part: left, right = "
      "layer.weight.split([a.size(-1), b.size(-1)], 1), then F.linear(a, "
      "left).unsqueeze(2) + F.linear(b, right, layer.bias).unsqueeze(1), which "
      "adds all pairs by broadcasting; rows of a graph are gathered behind it, "
      "F.linear(x, left)[source]";
  finding.fix_cpp =
      "apply the layer before repeating, part by part: "
      "torch::nn::functional::linear(a, left).unsqueeze(2) + "
      "torch::nn::functional::linear(b, right).unsqueeze(1), with left and "
      "right of layer->weight.split({..}, 1)";
  finding.wrong_if =
      "the repeated rows are changed before the layer by something that is not "
      "linear";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "repeated-rows",
     .question = "Is a layer applied to rows that were repeated just before?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckRepeatedRows,
     .reference = "Brody, Alon and Yahav 2022, How Attentive are Graph "
                  "Attention Networks?: https://arxiv.org/abs/2105.14491",
     .detect =
         "in two thirds of the steps, a product with a matrix takes rows of "
         "which a quarter of the columns or more were made by repeat, "
         "repeat_interleave, expand or index_select from a quarter of the rows "
         "or fewer, alone or joined to others by cat, and this takes 1 % of "
         "the step",
     .avoid = "another op that is no view runs between making the rows and the "
              "product, such as an activation or a dropout, or rows are "
              "gathered by aten::index, whose result is not recorded",
     .fix_cpp = "the layer on the rows before they are repeated, then sums by "
                "broadcasting",
     .fix_python = "the layer on the rows before they are repeated, then sums "
                   "by broadcasting"}};

}  // namespace
}  // namespace repeated_rows_rules

extern const std::span<const Rule> kRepeatedRows = repeated_rows_rules::kRules;

}  // namespace stepscope
