#include "ops/op_arguments.h"

#include <stepscope/op_cost.h>

#include <algorithm>

namespace stepscope {
namespace {

// Scalars, lists and None also have type names, but no element size.
TensorShape ShapeOf(const Trace& trace, const Argument& argument) {
  if (ElementBytes(trace.name(argument.type)) <= 0) return {};
  return {argument.dims, argument.type};
}

}  // namespace

TensorShape TensorArgument(const Trace& trace, RowId op, size_t index) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return {};
  const std::vector<Argument>& arguments = trace.op_inputs()[inputs].arguments;
  return index < arguments.size() ? ShapeOf(trace, arguments[index])
                                  : TensorShape();
}

// A tensor list is one argument with elements.
bool Takes(const Trace& trace, RowId op, const TensorShape& tensor) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return false;
  const auto same = [&](const Argument& argument) {
    return argument.type == tensor.type && argument.dims == tensor.dims;
  };
  return std::ranges::any_of(
      trace.op_inputs()[inputs].arguments, [&](const Argument& argument) {
        return same(argument) || std::ranges::any_of(argument.elements, same);
      });
}

bool HasArguments(const Trace& trace, RowId op) {
  const RowId inputs = trace.ops()[op].inputs;
  return inputs != kNone && !trace.op_inputs()[inputs].arguments.empty();
}

bool TakesCutList(const Trace& trace, RowId op) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return false;
  const auto& arguments = trace.op_inputs()[inputs].arguments;
  return !arguments.empty() && arguments[0].elements.empty() &&
         trace.name(arguments[0].type).starts_with("TensorList");
}

// More than half, because a single weight may have either order for other
// reasons.
bool HasChannelsLastWeights(const Trace& trace) {
  int64_t known = 0, last = 0;
  for (const Op& op : trace.ops()) {
    if (op.inputs == kNone || trace.name(op.name) != "aten::conv2d") continue;
    const std::vector<Argument>& list = trace.op_inputs()[op.inputs].arguments;
    if (list.size() < 2 || list[1].strides.size() != 4) continue;
    const Argument& weight = list[1];
    // With one input channel or a 1 x 1 kernel, both orders can have the same
    // strides.
    if (weight.dims.size() != 4 || weight.dims[1] <= 1 ||
        weight.dims[2] * weight.dims[3] <= 1)
      continue;
    ++known;
    last += weight.strides[1] == 1;
  }
  return 2 * last > known;
}

std::string InBrackets(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(dims[i]);
  }
  return text + "]";
}

int64_t ElementsIn(const Dims& dims) {
  int64_t elements = 1;
  for (int64_t size : dims) elements *= size;
  return elements;
}

int64_t ElementsOf(const TensorShape& tensor) {
  return tensor.known() ? ElementsIn(tensor.dims) : 0;
}

int64_t BytesOf(const Trace& trace, const TensorShape& tensor) {
  return ElementsOf(tensor) * ElementBytes(trace.name(tensor.type));
}

TensorShape SourceOf(const Trace& trace, RowId op) {
  const std::string_view name = trace.name(trace.ops()[op].name);
  return TensorArgument(trace, op, name == "aten::copy_" ? 1 : 0);
}

}  // namespace stepscope
