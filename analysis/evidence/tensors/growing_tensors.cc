#include "evidence/tensors/growing_tensors.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "evidence/kernel_evidence.h"
#include "evidence/program/op_shapes.h"
#include "ops/op_arguments.h"

namespace stepscope {
namespace {

// Appending a part takes at least as long as a short kernel or the call of an
// op.
constexpr double kShortKernelNs = 2'000;

// Calls of aten::cat that each append to the result of the previous call.
struct Chain {
  std::vector<int64_t> takes = {}, makes = {};  // of the last call
  NameId type = 0;
  std::vector<int64_t> first = {};
  size_t iterations = 1;
  std::vector<RowId> ops = {};
  std::vector<double> parts = {};  // by op: share of its result that is new
  double part = 0;                 // of the last call
};

// Returns the only axis along which the sizes of `parts` differ. Files of torch
// before 2.1 do not tell the axis itself.
std::optional<size_t> AxisThatDiffers(const std::vector<Argument>& parts) {
  std::optional<size_t> axis;
  for (const Argument& part : parts) {
    if (part.dims.size() != parts[0].dims.size()) return {};
    for (size_t i = 0; i < part.dims.size(); ++i) {
      if (part.dims[i] == parts[0].dims[i]) continue;
      if (axis && *axis != i) return {};
      axis = i;
    }
  }
  return axis;
}

// True if `row` appends something to a larger tensor.
bool Joins(const Trace& trace, RowId row, Chain& one) {
  const auto& arguments = trace.op_inputs()[trace.ops()[row].inputs].arguments;
  if (arguments.empty() || arguments[0].elements.size() < 2) return false;
  const std::vector<Argument>& parts = arguments[0].elements;
  one.takes = one.first = one.makes = parts[0].dims;
  one.type = parts[0].type;
  std::optional<size_t> axis = AxisThatDiffers(parts);
  if (!axis) axis = DimArgument(trace, row, 1, one.takes.size(), 0);
  if (!axis) return false;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].dims.size() != one.takes.size()) return false;
    one.makes[*axis] += parts[i].dims[*axis];
  }
  one.part =
      1 - static_cast<double>(one.takes[*axis]) /
              static_cast<double>(std::max<int64_t>(one.makes[*axis], 1));
  return true;
}

std::vector<Chain> ChainsOf(const Trace& trace, std::span<const RowId> rows) {
  std::vector<Chain> chains;
  for (RowId row : rows) {
    const Op& op = trace.ops()[row];
    if (op.parent != kNone || op.inputs == kNone ||
        trace.name(op.name) != "aten::cat") {
      continue;
    }
    Chain one;
    if (!Joins(trace, row, one)) continue;
    const auto grown = std::ranges::find_if(chains, [&](const Chain& chain) {
      return chain.makes == one.takes && chain.type == one.type;
    });
    // Keys and values of all layers have the same sizes.
    const auto same = std::ranges::find_if(chains, [&](const Chain& chain) {
      return chain.takes == one.takes && chain.makes == one.makes &&
             chain.type == one.type;
    });
    if (grown != chains.end()) {
      grown->takes = one.takes;
      grown->makes = one.makes;
      ++grown->iterations;
      grown->ops.push_back(row);
      grown->parts.push_back(one.part);
    } else if (same != chains.end()) {
      same->ops.push_back(row);
      same->parts.push_back(one.part);
    } else {
      one.ops = {row};
      one.parts = {one.part};
      chains.push_back(std::move(one));
    }
  }
  return chains;
}

// True if other ops read the tensors before all parts are appended.
bool IsReadBetween(const AnalysisContext& m, std::span<const RowId> rows,
                   const Chain& chain) {
  const Op& first = m.trace.ops()[chain.ops.front()];
  Chain joined;
  if (!Joins(m.trace, chain.ops.front(), joined)) return false;
  std::vector<int64_t> longest_dims = joined.makes;  // the longest so far
  for (RowId row : rows) {
    const Op& op = m.trace.ops()[row];
    if (op.begin_ns < first.end_ns || op.parent != kNone) continue;
    if (op.begin_ns >= m.trace.ops()[chain.ops.back()].begin_ns) break;
    if (std::ranges::binary_search(chain.ops, row)) {
      Chain one;
      if (Joins(m.trace, row, one)) longest_dims = one.makes;
      continue;
    }
    if (op.inputs == kNone || m.tree.traits(row).bookkeeping) continue;
    // Recorders give no types for tensors in lists, so only sizes are
    // compared.
    if (std::ranges::any_of(m.trace.op_inputs()[op.inputs].arguments,
                            [&](const Argument& argument) {
                              return argument.dims == longest_dims;
                            })) {
      return true;
    }
  }
  return false;
}

}  // namespace

GrowingTensors::GrowingTensors(const AnalysisContext& context)
    : m_(context),
      device_(context.has_gpu ? DeviceNsByOp(context) : std::vector<double>()) {
}

void GrowingTensors::AddThose(std::span<const RowId> rows, size_t step,
                              int64_t least_calls,
                              std::vector<Growth>& found) const {
  for (const Chain& chain : ChainsOf(m_.trace, rows)) {
    const auto calls = static_cast<int64_t>(chain.ops.size());
    if (chain.iterations < kLeastGrowing || calls < least_calls) continue;
    Growth one{.step = step,
               .span = {m_.trace.ops()[chain.ops.front()].begin_ns,
                        m_.trace.ops()[chain.ops.back()].end_ns},
               .iterations = chain.iterations,
               .first = chain.first,
               .last = chain.makes};
    std::vector<double> times;
    for (RowId row : chain.ops) times.push_back(TimeOf(row, one.trains));
    const auto [shortest, longest] = std::ranges::minmax(times);
    const bool read = IsReadBetween(m_, rows, chain);
    // Backward needs each of the tensors, as in a DenseNet, so they cannot
    // share memory.
    if (read && one.trains) continue;
    // If each tensor is read, the new part must be written in each iteration.
    const double least =
        std::min<double>(shortest, m_.has_gpu ? kShortKernelNs : kOpCallNs);
    for (size_t i = 0; i < times.size(); ++i) {
      one.ns += times[i];
      if (read) one.ns -= std::max(least, chain.parts[i] * times[i]);
    }
    if (!read) one.ns -= longest;
    found.push_back(std::move(one));
  }
}

double GrowingTensors::TimeOf(RowId row, bool& trains) const {
  const Op& op = m_.trace.ops()[row];
  double ns = 0;
  if (m_.has_gpu) {
    ns = DeviceNsInside(m_, device_, row);
  } else {
    const auto later = m_.tree.of_thread(op.thread, {op.end_ns, INT64_MAX});
    ns = static_cast<double>(
        (later.empty() ? op.end_ns : m_.trace.ops()[later.front()].begin_ns) -
        op.begin_ns);
  }
  for (RowId node : m_.backward.Of(op)) {
    const Op& backward = m_.trace.ops()[node];
    ns += m_.has_gpu ? DeviceNsInside(m_, device_, node)
                     : static_cast<double>(backward.end_ns - backward.begin_ns);
    trains = true;
  }
  return ns;
}

}  // namespace stepscope
