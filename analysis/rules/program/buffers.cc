// Is a whole buffer copied to replace a few of its rows? Source: the reference
// implementation of MoCo (He et al. 2020), which overwrites its queue of keys
// in place, with a pointer to the oldest ones.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace buffers_rules {
namespace {

constexpr char kChange[] = "buffer overwritten in place";
// Share of the buffer. Replacing more costs about as much as copying all of it.
constexpr double kMostReplaced = 0.5;

// A copy of the buffer in which some rows are replaced by as many new ones.
struct Shift {
  size_t step = 0;
  RowId row = kNone;
  Dims buffer = {};
  double replaced = 0;  // the share of the buffer that is new
  bool shifts = true;   // the other rows move to new places
  // Time after the op. Freeing an old buffer takes at most as long as filling a
  // new one.
  int64_t freed_ns = 0;
};

// A view of a tensor without its first or its last rows.
struct Slice {
  Dims from = {};
  Dims part = {};
};

// A buffer to which rows are appended, before a slice drops as many.
struct Join {
  RowId row = kNone;
  Dims buffer = {};
  Dims made = {};
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Shift> Find() {
    std::vector<Shift> found;
    for (const ForwardStep& step : m_.forward) {
      std::vector<Slice> slices;  // of this step
      std::vector<Join> joins;    // of this step
      int64_t filled_ns = 0;
      for (size_t i = 0; i < step.ops.size(); ++i) {
        const RowId row = step.ops[i];
        std::optional<Shift> shift;
        if (auto slice = SliceOf(row)) {
          shift = CutOf(row, *slice, joins);
          if (!shift) slices.push_back(*std::move(slice));
        } else if (PlainNameOf(m_.trace, row) == "cat") {
          shift = ShiftOf(row, slices);
          if (!shift) AddJoin(row, joins);
        } else {
          shift = CopyWithRows(row);
        }
        if (!shift || HasGradient(shift->row)) continue;
        shift->step = step.step;
        if (i + 1 < step.ops.size()) {
          const Op& op = m_.trace.ops()[shift->row];
          filled_ns += op.end_ns - op.begin_ns;
          shift->freed_ns =
              std::clamp<int64_t>(m_.trace.ops()[step.ops[i + 1]].begin_ns -
                                      m_.trace.ops()[row].end_ns,
                                  0, filled_ns);
        }
        found.push_back(*std::move(shift));
      }
    }
    return found;
  }

 private:
  // A result with a gradient must not be changed in place.
  bool HasGradient(RowId row) {
    return !m_.backward.Of(m_.trace.ops()[row]).empty();
  }

  std::optional<Slice> SliceOf(RowId row) const {
    const auto range = SliceArguments(m_.trace, row);
    Slice slice{.from = DimsOf(m_.trace, row, 0)};
    // Exactly one end must be cut off. A slice from the middle, or of all rows,
    // is no shift.
    if (!range || range->dim != 0 || range->step != 1 || range->count() == 0 ||
        (range->begin > 0) == (range->end < slice.from[0])) {
      return {};
    }
    slice.part = slice.from;
    slice.part[0] = range->count();
    return slice;
  }

  // Checks for torch.cat of one of `slices` and as many rows as were cut off.
  std::optional<Shift> ShiftOf(RowId row,
                               const std::vector<Slice>& slices) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    const std::optional<Dims> made = ResultDims(m_.trace, row);
    if (inputs == kNone || !made ||
        DimArgument(m_.trace, row, 1, made->size(), 0) != 0) {
      return {};
    }
    for (const Argument& part :
         m_.trace.op_inputs()[inputs].arguments.front().elements) {
      for (const Slice& slice : slices) {
        if (slice.from != *made || slice.part != part.dims) continue;
        const double replaced = 1 - static_cast<double>(part.dims[0]) /
                                        static_cast<double>((*made)[0]);
        if (replaced > kMostReplaced) continue;
        return Shift{.row = row, .buffer = *made, .replaced = replaced};
      }
    }
    return {};
  }

  // Adds torch.cat of a buffer and fewer other rows.
  void AddJoin(RowId row, std::vector<Join>& joins) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    const std::optional<Dims> made = ResultDims(m_.trace, row);
    if (inputs == kNone || !made || made->empty() ||
        DimArgument(m_.trace, row, 1, made->size(), 0) != 0) {
      return;
    }
    for (const Argument& part :
         m_.trace.op_inputs()[inputs].arguments.front().elements) {
      if (!part.dims.empty() &&
          static_cast<double>(part.dims[0]) >=
              (1 - kMostReplaced) * static_cast<double>((*made)[0])) {
        joins.push_back({.row = row, .buffer = part.dims, .made = *made});
        return;
      }
    }
  }

  // Checks for a slice that leaves as many rows of one of `joins` as its buffer
  // has.
  std::optional<Shift> CutOf(RowId row, const Slice& slice,
                             const std::vector<Join>& joins) const {
    const RowId parent = m_.trace.ops()[row].parent;
    for (const Join& join : joins) {
      // torch.cat takes slices of its result, too.
      if (parent == join.row || slice.from != join.made ||
          slice.part != join.buffer) {
        continue;
      }
      return Shift{.row = join.row,
                   .buffer = join.buffer,
                   .replaced = 1 - static_cast<double>(join.buffer[0]) /
                                       static_cast<double>(join.made[0])};
    }
    return {};
  }

  // Checks for index_copy(buffer, 0, rows, fresh) and similar ops that are not
  // in place.
  std::optional<Shift> CopyWithRows(RowId row) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (IsInPlace(m_.trace, row)) return {};
    size_t fresh = 0;  // index of the argument with the new rows
    if (IsAnyOf(name, {"index_copy", "scatter"})) {
      fresh = name == "scatter" ? 2 : 3;
    } else if (name == "index_put") {
      fresh = 2;
    } else if (IsAnyOf(name, {"slice_scatter", "select_scatter"})) {
      fresh = 1;
    } else {
      return {};
    }
    const Dims& buffer = DimsOf(m_.trace, row, 0);
    const Dims& written = DimsOf(m_.trace, row, fresh);
    if (buffer.empty() || written.empty() || ElementsIn(buffer) <= 0) return {};
    const double replaced = static_cast<double>(ElementsIn(written)) /
                            static_cast<double>(ElementsIn(buffer));
    if (replaced > kMostReplaced) return {};
    return Shift{
        .row = row, .buffer = buffer, .replaced = replaced, .shifts = false};
  }

  const AnalysisContext& m_;
};

Verdict CheckShiftedBuffer(const AnalysisContext& m) {
  const std::vector<Shift> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  ops.reserve(found.size());
  double freed_ns = 0;
  for (const Shift& one : found) {
    ops.push_back({one.row, one.replaced});
    freed_ns += static_cast<double>(one.freed_ns);
  }
  // On a device, the caching allocator keeps freed blocks, which takes no time.
  if (m.has_gpu) freed_ns = 0;
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Shift& largest = *std::ranges::max_element(
      found, {}, [](const Shift& one) { return ElementsIn(one.buffer); });
  const std::string name(m.trace.name(m.trace.ops()[largest.row].name));
  Finding finding =
      FindingAbout(m, largest.row, largest.row, "the copy of the buffer");
  finding.evidence =
      name + " makes a new tensor of " + InBrackets(largest.buffer) +
      ", of which " + Percent(largest.replaced) + " are new; the rest is " +
      (largest.shifts ? "copied from one of the same size without its first or "
                        "last rows"
                      : "copied as it was") +
      ". Such copies take " + Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: only the new elements are written";
  finding.fix_python =
      "allocate the buffer once and overwrite the oldest elements: "
      "buffer[at:at + n] = new; at = (at + n) % len(buffer). Where the order "
      "matters, twice the length and a moving window need a copy only once a "
      "round";
  finding.fix_cpp =
      "allocate the buffer once and overwrite the oldest elements: "
      "buffer.slice(0, at, at + n).copy_(fresh), at = (at + n) % "
      "buffer.size(0)";
  if (!largest.shifts) {
    finding.fix_python = "write in place: " + name.substr(name.rfind(':') + 1) +
                         "_ in place of " + name.substr(name.rfind(':') + 1) +
                         ", or buffer[rows] = fresh";
    finding.fix_cpp = finding.fix_python;
  }
  finding.wrong_if =
      "earlier versions of the buffer are still in use, or what reads it needs "
      "the elements in order";
  return FireBound(
      std::move(finding),
      all.saved_ns + freed_ns / static_cast<double>(m.steps.steady.size()),
      all.edit);
}

constexpr Rule kRules[] = {
    {.id = "shifted-buffer",
     .question = "Is all of a buffer copied to replace a few of its rows?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckShiftedBuffer,
     .reference = "He et al. 2020, Momentum Contrast for Unsupervised Visual "
                  "Representation Learning: https://arxiv.org/abs/1911.05722",
     .detect =
         "in two thirds of the steps, torch.cat joins a tensor without its "
         "first "
         "or last rows to new ones, at most as many, so that the result is as "
         "large as that tensor was; or aten::index_copy, index_put, scatter "
         "and the like, not in place, write at most half of a tensor. This "
         "takes 1 % of the step",
     .avoid = "the result has a gradient, which rules out a change in place",
     .fix_cpp = "a buffer allocated once, and copy_ into a slice of it",
     .fix_python = "a buffer allocated once, and buffer[at:at + n] = new"}};

}  // namespace
}  // namespace buffers_rules

extern const std::span<const Rule> kBuffers = buffers_rules::kRules;

}  // namespace stepscope
