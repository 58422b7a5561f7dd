#include "evidence/program/op_shapes.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <utility>

#include "evidence/call_site.h"
#include "evidence/program/plain_name.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// Names as PlainNameOf() returns them, so that each also stands for its
// in-place variant.
constexpr std::string_view kElementwise[] = {
    "_to_copy",    "abs",         "add",         "addcdiv",      "addcmul",
    "alias",       "bitwise_and", "bitwise_not", "bitwise_or",   "celu",
    "clamp",       "clamp_max",   "clamp_min",   "clip",         "clone",
    "contiguous",  "cos",         "detach",      "div",          "dropout",
    "elu",         "eq",          "erf",         "exp",          "exp2",
    "expm1",       "fill",        "floor",       "floor_divide", "fmod",
    "ge",          "gelu",        "gt",          "hardsigmoid",  "hardswish",
    "hardtanh",    "le",          "leaky_relu",  "lerp",         "log",
    "log10",       "log1p",       "log2",        "log_sigmoid",  "logical_and",
    "logical_not", "logical_or",  "lt",          "masked_fill",  "maximum",
    "minimum",     "mish",        "mul",         "nan_to_num",   "ne",
    "neg",         "pow",         "reciprocal",  "relu",         "relu6",
    "remainder",   "round",       "rsqrt",       "rsub",         "selu",
    "sigmoid",     "sign",        "silu",        "sin",          "softplus",
    "sqrt",        "square",      "sub",         "tan",          "tanh",
    "threshold",   "to",          "true_divide", "trunc",        "type_as",
    "where",       "xlogy"};

constexpr std::string_view kProductNames[] = {
    "addmm", "baddbmm", "bmm", "linear", "matmul", "mm", "mv", "_sparse_mm"};

const Argument* ArgumentAt(const Trace& trace, RowId op, size_t index) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return nullptr;
  const std::vector<Argument>& list = trace.op_inputs()[inputs].arguments;
  return index < list.size() ? &list[index] : nullptr;
}

// Broadcasts sizes as NumPy does: missing leading dimensions and dimensions of
// 1 are stretched. The op did run, so the sizes are compatible.
Dims Broadcast(Dims made, std::span<const int64_t> other) {
  if (made.size() < other.size()) {
    made.insert(made.begin(), other.begin(),
                other.end() - static_cast<std::ptrdiff_t>(made.size()));
  }
  const size_t missing = made.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    made[missing + i] = std::max(made[missing + i], other[i]);
  }
  return made;
}

std::optional<Dims> ProductDims(const Trace& trace, RowId op,
                                std::string_view name) {
  const size_t first = LeftFactor(name);
  Dims left = DimsOf(trace, op, first);
  const Dims& right = DimsOf(trace, op, first + 1);
  if (left.empty() || right.empty()) return {};
  if (name == "linear") {
    // The weight of a linear layer is stored as [outputs, inputs].
    left.back() = right.front();
    return left;
  }
  if (right.size() == 1) {
    left.pop_back();
    return left;
  }
  Dims made(right.begin(), right.end() - 2);
  if (left.size() > 2) {
    made = Broadcast(std::move(made), std::span(left).first(left.size() - 2));
  }
  if (left.size() > 1) made.push_back(left[left.size() - 2]);
  made.push_back(right.back());
  return made;
}

std::optional<Dims> CatDims(const Trace& trace, RowId op) {
  const Argument* list = ArgumentAt(trace, op, 0);
  if (list == nullptr || list->elements.empty()) return {};
  Dims made = list->elements.front().dims;
  const std::optional<size_t> dim = DimArgument(trace, op, 1, made.size());
  if (!dim) return {};
  for (size_t i = 1; i < list->elements.size(); ++i) {
    // torch.cat skips an empty one-dimensional tensor, whatever dimensions the
    // other tensors have.
    if (list->elements[i].dims.size() == made.size()) {
      made[*dim] += list->elements[i].dims[*dim];
    }
  }
  return made;
}

std::optional<Dims> PadDims(const Trace& trace, RowId op) {
  Dims made = DimsOf(trace, op, 0);
  const std::vector<int64_t> pad = ListArgument(trace, op, 1);
  if (made.empty() || pad.empty() || pad.size() > 2 * made.size()) return {};
  // Two numbers per dimension, starting with the last dimension.
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    made[made.size() - 1 - i / 2] += pad[i] + pad[i + 1];
  }
  return made;
}

std::optional<Dims> GatherDims(const Trace& trace, RowId op,
                               std::string_view name) {
  Dims made = DimsOf(trace, op, 0);
  if (name == "embedding") {
    const Dims& table = made;
    if (table.size() != 2) return {};
    Dims looked_up = DimsOf(trace, op, 1);
    looked_up.push_back(table[1]);
    return looked_up;
  }
  const Dims& index = DimsOf(trace, op, 2);
  // gather makes one element for each index.
  if (name == "gather") return index;
  const std::optional<size_t> dim = DimArgument(trace, op, 1, made.size());
  if (!dim || index.size() != 1) return {};
  made[*dim] = index[0];
  return made;
}

// Returns the sizes of the result of sum(input, dims, keepdim) and similar ops.
std::optional<Dims> ReducedDims(const Trace& trace, RowId op) {
  const Dims& dims = DimsOf(trace, op, 0);
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<int64_t> over = ListArgument(trace, op, 1);
  // argmax and some others take a single dimension as a plain number.
  if (over.empty()) {
    const std::optional<int64_t> one = NumberArgument(trace, op, 1);
    if (!one) return {};
    over.push_back(*one);
  }
  for (int64_t& dim : over) {
    if (dim < 0) dim += rank;
    if (dim < 0 || dim >= rank) return {};
  }
  const bool keeps = FlagArgument(trace, op, 2);
  Dims reduced;
  for (int64_t i = 0; i < rank; ++i) {
    if (std::ranges::find(over, i) == over.end()) {
      reduced.push_back(dims[static_cast<size_t>(i)]);
    } else if (keeps) {
      reduced.push_back(1);
    }
  }
  // Return nothing for a scalar, because its empty sizes look like unknown
  // sizes to callers.
  return reduced.empty() ? std::nullopt : std::optional(std::move(reduced));
}

}  // namespace

std::string_view PlainNameOf(const Trace& trace, RowId op) {
  return PlainName(trace.name(trace.ops()[op].name));
}

bool IsInPlace(const Trace& trace, RowId op) {
  return trace.name(trace.ops()[op].name).ends_with("_");
}

Finding FindingAbout(const AnalysisContext& context, RowId first, RowId last,
                     std::string what) {
  const Op& op = context.trace.ops()[first];
  const size_t step = SteadyStepAt(context.steps, op.begin_ns);
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = {{context.steps.windows[step].number, op.begin_ns,
                       context.trace.ops()[last].end_ns, std::move(what)}};
  finding.where = CallSites(context.trace).Place(op.thread, op.begin_ns, first);
  return finding;
}

const Dims& DimsOf(const Trace& trace, RowId op, size_t index) {
  static const Dims kNoDims;
  const Argument* argument = ArgumentAt(trace, op, index);
  return argument == nullptr ? kNoDims : argument->dims;
}

bool TakesDims(const Trace& trace, RowId op, const Dims& dims) {
  const Op& call = trace.ops()[op];
  if (call.inputs == kNone) {  // use the arguments of its inner ops
    const std::span<const Op> ops = trace.ops();
    // The table holds the ops of all threads in time order, so ops of other
    // threads lie between.
    for (RowId row = op + 1;
         row < ops.size() && ops[row].begin_ns < call.end_ns; ++row) {
      if (ops[row].thread == call.thread && ops[row].inputs != kNone &&
          TakesDims(trace, row, dims)) {
        return true;
      }
    }
    return false;
  }
  const auto same = [&](const Argument& one) { return one.dims == dims; };
  return std::ranges::any_of(
      trace.op_inputs()[call.inputs].arguments, [&](const Argument& argument) {
        return same(argument) || std::ranges::any_of(argument.elements, same);
      });
}

bool TakesTwo(const Trace& trace, RowId op, const Dims& dims) {
  return DimsOf(trace, op, 0) == dims && DimsOf(trace, op, 1) == dims;
}

int64_t TensorsOfSize(const Trace& trace, RowId op, int64_t elements) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return 0;
  int64_t count = 0;
  const auto add = [&](const Argument& one) {
    count += !one.dims.empty() && ElementsIn(one.dims) == elements;
  };
  for (const Argument& one : trace.op_inputs()[inputs].arguments) {
    add(one);
    std::ranges::for_each(one.elements, add);
  }
  return count;
}

// The whole text must be a whole number: "1.5" and "True" are rejected.
std::optional<int64_t> NumberIn(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string_view TextArgument(const Trace& trace, RowId op, size_t index) {
  const Argument* argument = ArgumentAt(trace, op, index);
  return argument == nullptr ? "" : trace.name(argument->concrete);
}

std::optional<int64_t> NumberArgument(const Trace& trace, RowId op,
                                      size_t index) {
  return NumberIn(TextArgument(trace, op, index));
}

bool FlagArgument(const Trace& trace, RowId op, size_t index) {
  return TextArgument(trace, op, index) == "True";
}

std::vector<int64_t> ListArgument(const Trace& trace, RowId op, size_t index) {
  std::vector<int64_t> values;
  std::string_view text = TextArgument(trace, op, index);
  if (!text.starts_with("[")) return values;
  while (!text.empty() && text.front() != ']') {
    text.remove_prefix(1);  // "[", "," or a blank
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) continue;
    values.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  return values;
}

std::optional<size_t> DimArgument(const Trace& trace, RowId op, size_t index,
                                  size_t rank,
                                  std::optional<int64_t> otherwise) {
  std::optional<int64_t> dim = NumberArgument(trace, op, index);
  if (!dim) dim = otherwise;
  if (!dim) return {};
  if (*dim < 0) *dim += static_cast<int64_t>(rank);
  if (*dim < 0 || *dim >= static_cast<int64_t>(rank)) return {};
  return static_cast<size_t>(*dim);
}

std::optional<SliceRange> SliceArguments(const Trace& trace, RowId op) {
  const bool narrow = PlainNameOf(trace, op) == "narrow";
  if (!narrow && PlainNameOf(trace, op) != "slice") return {};
  const Dims& dims = DimsOf(trace, op, 0);
  const std::optional<size_t> dim = DimArgument(trace, op, 1, dims.size());
  if (!dim || dims[*dim] <= 0) return {};
  const int64_t size = dims[*dim];
  // As in Python, negative positions count from the end, and positions beyond
  // an end are moved to that end.
  const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp<int64_t>(*at < 0 ? *at + size : *at, 0, size);
  };
  SliceRange range{.dim = *dim,
                   .begin = place(NumberArgument(trace, op, 2), 0)};
  if (narrow) {
    const std::optional<int64_t> count = NumberArgument(trace, op, 3);
    range.end = count ? std::min(range.begin + *count, size) : size;
  } else {
    range.end =
        std::max(range.begin, place(NumberArgument(trace, op, 3), size));
    range.step = std::max<int64_t>(1, NumberArgument(trace, op, 4).value_or(1));
  }
  return range;
}

std::optional<Dims> PartDims(const Trace& trace, RowId op) {
  if (!IsAnyOf(PlainNameOf(trace, op), {"slice", "narrow", "select"})) {
    return {};
  }
  Dims part = DimsOf(trace, op, 0);
  if (const auto range = SliceArguments(trace, op)) {
    part[range->dim] = range->count();
    return part;
  }
  if (PlainNameOf(trace, op) != "select") return {};
  const auto dim = DimArgument(trace, op, 1, part.size());
  if (!dim) return {};
  part.erase(part.begin() + static_cast<std::ptrdiff_t>(*dim));
  return part;
}

bool IsElementwise(std::string_view plain_name) {
  static_assert(std::ranges::is_sorted(kElementwise));
  return std::ranges::binary_search(kElementwise, plain_name);
}

bool IsProduct(std::string_view plain_name) {
  return std::ranges::find(kProductNames, plain_name) !=
         std::ranges::end(kProductNames);
}

size_t LeftFactor(std::string_view plain_name) {
  return IsAnyOf(plain_name, {"addmm", "baddbmm"}) ? 1 : 0;
}

size_t WeightArgument(const Trace& trace, RowId op) {
  const std::string_view name = PlainNameOf(trace, op);
  const size_t at = LeftFactor(name) + 1;
  const Dims& input = DimsOf(trace, op, at - 1);
  const Dims& weight = DimsOf(trace, op, at);
  const bool convolves =
      IsAnyOf(name, {"conv1d", "conv2d", "conv3d", "convolution"}) &&
      weight.size() > 2;
  const bool multiplies =
      IsAnyOf(name, {"linear", "addmm", "mm", "matmul"}) && weight.size() == 2;
  return !input.empty() && (convolves || multiplies) ? at : 0;
}

Dims BroadcastAll(const Trace& trace, RowId op) {
  Dims made = DimsOf(trace, op, 0);
  // where, lerp and addcmul take three tensors. Numbers have no sizes, so they
  // change nothing.
  for (size_t i = 1; i < 3; ++i) {
    made = Broadcast(std::move(made), DimsOf(trace, op, i));
  }
  return made;
}

std::optional<Dims> ResultDims(const Trace& trace, RowId op) {
  const std::string_view name = PlainNameOf(trace, op);
  const Dims& first = DimsOf(trace, op, 0);
  const auto known = [](const Dims& dims) {
    return dims.empty() ? std::nullopt : std::optional<Dims>(dims);
  };
  if (IsAnyOf(name, {"to", "_to_copy", "type_as"}) ||
      (IsElementwise(name) && IsInPlace(trace, op))) {
    return known(first);
  }
  if (IsElementwise(name)) return known(BroadcastAll(trace, op));
  if (IsProduct(name)) return ProductDims(trace, op, name);
  if (IsAnyOf(name,
              {"index_add", "scatter_add", "scatter_reduce", "scatter",
               "softmax", "log_softmax", "_softmax", "_log_softmax", "sort",
               "argsort", "layer_norm", "rms_norm", "cumsum", "flip"})) {
    return known(first);
  }
  // The second argument is the old state. The result, the new state, has its
  // sizes.
  if (IsAnyOf(name, {"gru_cell", "rnn_tanh_cell", "rnn_relu_cell"})) {
    return known(DimsOf(trace, op, 1));
  }
  if (name == "lstm_cell") {  // two states, in a list
    const Argument* states = ArgumentAt(trace, op, 1);
    return states == nullptr || states->elements.empty()
               ? std::nullopt
               : known(states->elements.front().dims);
  }
  if (IsAnyOf(name, {"index_select", "gather", "embedding"})) {
    return GatherDims(trace, op, name);
  }
  if (name == "randperm") {
    const std::optional<int64_t> count = NumberArgument(trace, op, 0);
    return count ? std::optional(Dims{*count}) : std::nullopt;
  }
  if (IsAnyOf(name, {"sum", "mean", "amax", "amin", "argmax", "logsumexp"})) {
    return ReducedDims(trace, op);
  }
  if (name == "cat") return CatDims(trace, op);
  if (IsAnyOf(name, {"pad", "constant_pad_nd"})) return PadDims(trace, op);
  if (IsAnyOf(name, {"linalg_inv", "inverse"})) return known(first);
  return {};
}

bool AppendWithNodes(const AnalysisContext& context, RowId row, double left,
                     std::vector<ShortenedOp>& ops) {
  const Op& op = context.trace.ops()[row];
  ops.push_back({row, left});
  bool trains = false;
  for (RowId node : context.backward.Of(op)) {
    ops.push_back({node, left});
    trains = true;
  }
  return trains;
}

}  // namespace stepscope
